"""Triton kernels of message passing: sums over the edges of a node, without atomics.

A program owns one node and all channels. It walks over the node's edges, CHUNK at a time, and
every row of an output is written by exactly one program, so the bits are the same every time. Sums
are float32 whatever the inputs are. Edges from ``target_ptr[-1]`` on are padding: they enter no
sum, and the programs take turns in writing zeros to their rows. Numbers of nodes and edges are not
specialised, so that all batches share one compiled kernel.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

GATE_EPS = tl.constexpr(1e-6)


@triton.jit
def _clear(out, first, rows, C: tl.constexpr, BLOCK_C: tl.constexpr, CHUNK: tl.constexpr):
    """Zero the rows ``first`` … ``rows`` − 1; every program takes its share."""
    channel = tl.arange(0, BLOCK_C)
    mine = first + tl.program_id(0) * CHUNK
    for start in range(mine, rows, tl.num_programs(0) * CHUNK):
        row = (start + tl.arange(0, CHUNK)).to(tl.int64)
        inside = (row < rows)[:, None] & (channel < C)[None, :]
        zero = tl.zeros([CHUNK, BLOCK_C], out.dtype.element_ty)
        tl.store(out + row[:, None] * C + channel, zero, inside)


@triton.jit
def _own(row, eps, EPS: tl.constexpr):
    """(1 + ε) · row."""
    if EPS:
        row = row * (1.0 + tl.load(eps).to(tl.float32))
    return row


@triton.jit
def sum_kernel(
    values, out, eps, ptr, index, order,
    C: tl.constexpr, BLOCK_C: tl.constexpr, CHUNK: tl.constexpr,
    ORDERED: tl.constexpr, GATHER: tl.constexpr, OWN: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    """out_n = Σ values[k] over the edges k of node n; grid (nodes,).

    ORDERED takes the edges through ``order``; GATHER takes the row index[k] in place of k; OWN
    adds (1 + ε) values[n].
    """
    node = tl.program_id(0)
    channel = tl.arange(0, BLOCK_C)
    wide = channel < C
    acc = tl.zeros([CHUNK, BLOCK_C], tl.float32)
    end = tl.load(ptr + node + 1)
    for start in range(tl.load(ptr + node), end, CHUNK):
        row = (start + tl.arange(0, CHUNK)).to(tl.int64)
        real = row < end
        if ORDERED:
            row = tl.load(order + row, real, other=0).to(tl.int64)
        if GATHER:
            row = tl.load(index + row, real, other=0).to(tl.int64)
        inside = real[:, None] & wide[None, :]
        acc += tl.load(values + row[:, None] * C + channel, inside, other=0.0).to(tl.float32)
    total = tl.sum(acc, 0)
    here = node.to(tl.int64) * C + channel
    if OWN:
        total += _own(tl.load(values + here, wide, other=0.0).to(tl.float32), eps, EPS)
    tl.store(out + here, total.to(out.dtype.element_ty), wide)


@triton.jit(do_not_specialize=["nodes", "rows"])
def gather_kernel(
    x, out, index, ptr, nodes, rows,
    C: tl.constexpr, BLOCK_C: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """out[k] = x[index[k]], 0 from ptr[nodes] on; grid (rows / CHUNK,)."""
    row = tl.program_id(0).to(tl.int64) * CHUNK + tl.arange(0, CHUNK)
    channel = tl.arange(0, BLOCK_C)
    wide = channel < C
    real = row < tl.minimum(tl.load(ptr + nodes), rows)
    found = tl.load(index + row, real, other=0).to(tl.int64)
    value = tl.load(x + found[:, None] * C + channel, real[:, None] & wide[None, :], other=0.0)
    tl.store(out + row[:, None] * C + channel, value, (row < rows)[:, None] & wide[None, :])


@triton.jit
def gine_kernel(
    x, e, y, eps, source, ptr,
    C: tl.constexpr, E_ROW: tl.constexpr, BLOCK_C: tl.constexpr, CHUNK: tl.constexpr,
    EPS: tl.constexpr,
):  # fmt: skip
    """y_t = (1 + ε) x_t + Σ ReLU(x_s + e_st); grid (nodes,)."""
    node = tl.program_id(0)
    channel = tl.arange(0, BLOCK_C)
    wide = channel < C
    acc = tl.zeros([CHUNK, BLOCK_C], tl.float32)
    end = tl.load(ptr + node + 1)
    for start in range(tl.load(ptr + node), end, CHUNK):
        edge = (start + tl.arange(0, CHUNK)).to(tl.int64)
        other = tl.load(source + edge, edge < end, other=0).to(tl.int64)
        inside = (edge < end)[:, None] & wide[None, :]
        message = tl.load(x + other[:, None] * C + channel, inside, other=0.0).to(tl.float32)
        message += tl.load(e + edge[:, None] * E_ROW + channel, inside, other=0.0).to(tl.float32)
        acc += tl.where(message <= 0.0, 0.0, message)  # NaN stays NaN
    here = node.to(tl.int64) * C + channel
    total = _own(tl.load(x + here, wide, other=0.0).to(tl.float32), eps, EPS) + tl.sum(acc, 0)
    tl.store(y + here, total.to(y.dtype.element_ty), wide)


@triton.jit(do_not_specialize=["nodes", "edges"])
def gine_gradient_kernel(
    dy, x, e, dx, de, eps, target, ptr, order, target_ptr, nodes, edges,
    C: tl.constexpr, E_ROW: tl.constexpr, BLOCK_C: tl.constexpr, CHUNK: tl.constexpr,
    EPS: tl.constexpr,
):  # fmt: skip
    """de_st = dy_t [x_s + e_st > 0] and dx_s = (1 + ε) dy_s + Σ de_st, by source; grid (nodes,)."""
    node = tl.program_id(0)
    channel = tl.arange(0, BLOCK_C)
    wide = channel < C
    here = node.to(tl.int64) * C + channel
    own = tl.load(x + here, wide, other=0.0).to(tl.float32)
    acc = tl.zeros([CHUNK, BLOCK_C], tl.float32)
    end = tl.load(ptr + node + 1)
    for start in range(tl.load(ptr + node), end, CHUNK):
        place = start + tl.arange(0, CHUNK)
        real = place < end
        edge = tl.load(order + place, real, other=0).to(tl.int64)
        other = tl.load(target + edge, real, other=0).to(tl.int64)
        inside = real[:, None] & wide[None, :]
        grad = tl.load(dy + other[:, None] * C + channel, inside, other=0.0).to(tl.float32)
        message = tl.load(e + edge[:, None] * E_ROW + channel, inside, other=0.0).to(tl.float32)
        grad = tl.where(own[None, :] + message > 0.0, grad, 0.0)
        tl.store(de + edge[:, None] * C + channel, grad.to(de.dtype.element_ty), inside)
        acc += grad
    total = _own(tl.load(dy + here, wide, other=0.0).to(tl.float32), eps, EPS) + tl.sum(acc, 0)
    tl.store(dx + here, total.to(dx.dtype.element_ty), wide)
    _clear(de, tl.load(target_ptr + nodes), edges, C, BLOCK_C, CHUNK)


# --- gated convolution: node terms are the columns A | D | B | E of one tensor [nodes, 4 C] -------


@triton.jit(do_not_specialize=["nodes", "edges"])
def gated_kernel(
    terms, c, r, u, h, mean, inverse, source, ptr, nodes, edges,
    C: tl.constexpr, C_ROW: tl.constexpr, BLOCK_C: tl.constexpr, CHUNK: tl.constexpr,
    POSITION: tl.constexpr,
):  # fmt: skip
    """u_st = D_t + E_s + c_st, g = σ(u) r, mean_t = Σ g B_s / (Σ g + 1e-6), h = A + mean.

    ``inverse`` keeps 1 / (Σ g + 1e-6); grid (nodes,).
    """
    node = tl.program_id(0)
    channel = tl.arange(0, BLOCK_C)
    wide = channel < C
    own = terms + node.to(tl.int64) * (4 * C) + channel
    own_d = tl.load(own + C, wide, other=0.0).to(tl.float32)
    numerator = tl.zeros([CHUNK, BLOCK_C], tl.float32)
    denominator = tl.zeros([CHUNK, BLOCK_C], tl.float32)
    end = tl.load(ptr + node + 1)
    for start in range(tl.load(ptr + node), end, CHUNK):
        edge = (start + tl.arange(0, CHUNK)).to(tl.int64)
        real = edge < end
        inside = real[:, None] & wide[None, :]
        other = tl.load(source + edge, real, other=0).to(tl.int64)
        other = terms + other[:, None] * (4 * C) + channel
        value = own_d[None, :] + tl.load(other + 3 * C, inside, other=0.0).to(tl.float32)
        value += tl.load(c + edge[:, None] * C_ROW + channel, inside, other=0.0).to(tl.float32)
        value = value.to(u.dtype.element_ty)  # the backward pass sees what is stored
        tl.store(u + edge[:, None] * C + channel, value, inside)
        gate = tl.where(inside, tl.sigmoid(value.to(tl.float32)), 0.0)
        if POSITION:
            gate *= tl.load(r + edge, real, other=0.0).to(tl.float32)[:, None]
        numerator += gate * tl.load(other + 2 * C, inside, other=0.0).to(tl.float32)
        denominator += gate
    share = 1.0 / (tl.sum(denominator, 0) + GATE_EPS)
    found = tl.sum(numerator, 0) * share
    here = node.to(tl.int64) * C + channel
    tl.store(mean + here, found, wide)
    tl.store(inverse + here, share, wide)
    found += tl.load(own, wide, other=0.0).to(tl.float32)
    tl.store(h + here, found.to(h.dtype.element_ty), wide)
    _clear(u, tl.load(ptr + nodes), edges, C, BLOCK_C, CHUNK)


@triton.jit(do_not_specialize=["nodes", "edges"])
def gated_target_kernel(
    dh, u_grad, terms, r, u, mean, inverse, d_terms, du, dr, share, source, ptr, nodes, edges,
    C: tl.constexpr, BLOCK_C: tl.constexpr, CHUNK: tl.constexpr,
    POSITION: tl.constexpr, U_GRAD: tl.constexpr,
):  # fmt: skip
    """By target: share = dh / (Σ g + 1e-6), dg = share (B_s − mean), dr = Σ_c dg σ(u),
    du = dg r σ'(u) (+ what arrives at u), dA = dh, dD = Σ du; grid (nodes,)."""
    node = tl.program_id(0)
    channel = tl.arange(0, BLOCK_C)
    wide = channel < C
    here = node.to(tl.int64) * C + channel
    grad = tl.load(dh + here, wide, other=0.0).to(tl.float32)
    own_mean = tl.load(mean + here, wide, other=0.0)
    own_share = grad * tl.load(inverse + here, wide, other=0.0)
    tl.store(share + here, own_share, wide)
    acc = tl.zeros([CHUNK, BLOCK_C], tl.float32)
    end = tl.load(ptr + node + 1)
    for start in range(tl.load(ptr + node), end, CHUNK):
        edge = (start + tl.arange(0, CHUNK)).to(tl.int64)
        real = edge < end
        inside = real[:, None] & wide[None, :]
        other = tl.load(source + edge, real, other=0).to(tl.int64)
        other = terms + other[:, None] * (4 * C) + channel
        b = tl.load(other + 2 * C, inside, other=0.0).to(tl.float32)
        at = edge[:, None] * C + channel
        gate = tl.sigmoid(tl.load(u + at, inside, other=0.0).to(tl.float32))
        change = tl.where(inside, own_share[None, :] * (b - own_mean[None, :]) * gate, 0.0)
        if POSITION:
            tl.store(dr + edge, tl.sum(change, 1).to(dr.dtype.element_ty), real)
            change *= tl.load(r + edge, real, other=0.0).to(tl.float32)[:, None]
        change *= 1.0 - gate
        if U_GRAD:
            change += tl.load(u_grad + at, inside, other=0.0).to(tl.float32)
        tl.store(du + at, change.to(du.dtype.element_ty), inside)
        acc += change
    own = d_terms + node.to(tl.int64) * (4 * C) + channel
    tl.store(own, grad.to(d_terms.dtype.element_ty), wide)
    tl.store(own + C, tl.sum(acc, 0).to(d_terms.dtype.element_ty), wide)
    first = tl.load(ptr + nodes)
    _clear(du, first, edges, C, BLOCK_C, CHUNK)
    if POSITION:
        _clear(dr, first, edges, 1, 1, CHUNK)


@triton.jit
def gated_source_kernel(
    r, u, du, share, d_terms, target, ptr, order,
    C: tl.constexpr, BLOCK_C: tl.constexpr, CHUNK: tl.constexpr, POSITION: tl.constexpr,
):  # fmt: skip
    """By source: dB = Σ σ(u) r share_t and dE = Σ du; grid (nodes,)."""
    node = tl.program_id(0)
    channel = tl.arange(0, BLOCK_C)
    wide = channel < C
    d_b = tl.zeros([CHUNK, BLOCK_C], tl.float32)
    d_e = tl.zeros([CHUNK, BLOCK_C], tl.float32)
    end = tl.load(ptr + node + 1)
    for start in range(tl.load(ptr + node), end, CHUNK):
        place = start + tl.arange(0, CHUNK)
        real = place < end
        edge = tl.load(order + place, real, other=0).to(tl.int64)
        inside = real[:, None] & wide[None, :]
        at = edge[:, None] * C + channel
        gate = tl.sigmoid(tl.load(u + at, inside, other=0.0).to(tl.float32))
        if POSITION:
            gate *= tl.load(r + edge, real, other=0.0).to(tl.float32)[:, None]
        other = tl.load(target + edge, real, other=0).to(tl.int64)
        d_b += gate * tl.load(share + other[:, None] * C + channel, inside, other=0.0)
        d_e += tl.load(du + at, inside, other=0.0).to(tl.float32)
    own = d_terms + node.to(tl.int64) * (4 * C) + channel
    tl.store(own + 2 * C, tl.sum(d_b, 0).to(d_terms.dtype.element_ty), wide)
    tl.store(own + 3 * C, tl.sum(d_e, 0).to(d_terms.dtype.element_ty), wide)
