"""Triton kernels of message passing: sums over the edges of a node, without atomics.

A program owns one node and all channels. It walks over the node's edges, CHUNK at a time, and
every row of an output is written by exactly one program, so the bits are the same every time. Sums
are float32 whatever the inputs are. Edges from ``target_ptr[-1]`` on are padding: they enter no
sum, and the programs take turns in writing their rows. Numbers of nodes and edges are not
specialised, so that all batches share one compiled kernel. What is absent is None.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def write_rest(
    out, given, first, rows, C: tl.constexpr, BLOCK_C: tl.constexpr, CHUNK: tl.constexpr
):
    """Rows ``first`` … ``rows`` − 1 of ``given``, or zeros; every program takes its share."""
    channel = tl.arange(0, BLOCK_C)
    mine = first + tl.program_id(0) * CHUNK
    for start in range(mine, rows, tl.num_programs(0) * CHUNK):
        row = (start + tl.arange(0, CHUNK)).to(tl.int64)
        inside = (row < rows)[:, None] & (channel < C)[None, :]
        value = tl.zeros([CHUNK, BLOCK_C], tl.float32)
        if given is not None:
            value += tl.load(given + row[:, None] * C + channel, inside, other=0.0)
        tl.store(out + row[:, None] * C + channel, value.to(out.dtype.element_ty), inside)


@triton.jit
def _own(row, eps):
    """(1 + ε) · row."""
    if eps is not None:
        row = row * (1.0 + tl.load(eps).to(tl.float32))
    return row


@triton.jit
def _root_degree(ptr, node, real):
    """1 / √(1 + edges of a node)."""
    edges = tl.load(ptr + node + 1, real, other=0) - tl.load(ptr + node, real, other=0)
    return tl.rsqrt(1.0 + edges.to(tl.float32))


@triton.jit
def sum_kernel(
    values, out, add, eps, ptr, index, order, degree_ptr, e,
    C: tl.constexpr, E_ROW: tl.constexpr, BLOCK_C: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """out_n = Σ values[k] over the edges k of node n, in their ``order``, + add[n]; grid (nodes,).

    With ``index`` values are those of nodes: the row index[k] is taken in place of k, and
    (1 + ε) values[n] is added; ``degree_ptr`` weights the row m in the sum of node n by
    1 / √(d_m d_n), d = 1 + edges. With edge states ``e`` each summand is ReLU(values + e[k]).
    """
    node = tl.program_id(0)
    channel = tl.arange(0, BLOCK_C)
    wide = channel < C
    acc = tl.zeros([CHUNK, BLOCK_C], tl.float32)
    end = tl.load(ptr + node + 1)
    for start in range(tl.load(ptr + node), end, CHUNK):
        edge = (start + tl.arange(0, CHUNK)).to(tl.int64)
        real = edge < end
        if order is not None:
            edge = tl.load(order + edge, real, other=0).to(tl.int64)
        row = edge
        if index is not None:
            row = tl.load(index + edge, real, other=0).to(tl.int64)
        inside = real[:, None] & wide[None, :]
        value = tl.load(values + row[:, None] * C + channel, inside, other=0.0).to(tl.float32)
        if e is not None:
            value += tl.load(e + edge[:, None] * E_ROW + channel, inside, other=0.0).to(tl.float32)
            value = tl.where(value <= 0.0, 0.0, value)  # NaN stays NaN
        if degree_ptr is not None:
            value *= _root_degree(degree_ptr, row, real)[:, None]
        acc += value
    total = tl.sum(acc, 0)
    here = node.to(tl.int64) * C + channel
    if index is not None:
        own = _own(tl.load(values + here, wide, other=0.0).to(tl.float32), eps)
        if degree_ptr is not None:
            scale = _root_degree(degree_ptr, node, node >= 0)
            total = (total + own * scale) * scale
        else:
            total += own
    if add is not None:
        total += tl.load(add + here, wide, other=0.0).to(tl.float32)
    tl.store(out + here, total.to(out.dtype.element_ty), wide)


@triton.jit(do_not_specialize=["nodes", "rows"])
def gather_kernel(
    x, out, index, ptr, nodes, rows, C: tl.constexpr, BLOCK_C: tl.constexpr, CHUNK: tl.constexpr
):
    """out[k] = x[index[k]], 0 where that is negative and from ptr[nodes] on;
    grid (rows / CHUNK,)."""
    row = tl.program_id(0).to(tl.int64) * CHUNK + tl.arange(0, CHUNK)
    channel = tl.arange(0, BLOCK_C)
    wide = channel < C
    end = rows if ptr is None else tl.minimum(tl.load(ptr + nodes), rows)
    found = tl.load(index + row, row < end, other=-1).to(tl.int64)
    real = (found >= 0)[:, None] & wide[None, :]
    value = tl.load(x + found[:, None] * C + channel, real, other=0.0)
    tl.store(out + row[:, None] * C + channel, value, (row < rows)[:, None] & wide[None, :])


@triton.jit(do_not_specialize=["nodes", "edges"])
def gine_gradient_kernel(
    dy, x_grad, e_grad, x, e, dx, de, eps, target, ptr, order, target_ptr, nodes, edges,
    C: tl.constexpr, E_ROW: tl.constexpr, BLOCK_C: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """m_st = dy_t [x_s + e_st > 0], de = m (+ what arrives at e) and, by source,
    dx_s = (1 + ε) dy_s + Σ m_st (+ what arrives at x); grid (nodes,)."""
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
        acc += grad
        at = edge[:, None] * C + channel
        if e_grad is not None:
            grad += tl.load(e_grad + at, inside, other=0.0).to(tl.float32)
        tl.store(de + at, grad.to(de.dtype.element_ty), inside)
    total = _own(tl.load(dy + here, wide, other=0.0).to(tl.float32), eps) + tl.sum(acc, 0)
    if x_grad is not None:
        total += tl.load(x_grad + here, wide, other=0.0).to(tl.float32)
    tl.store(dx + here, total.to(dx.dtype.element_ty), wide)
    write_rest(de, e_grad, tl.load(target_ptr + nodes), edges, C, BLOCK_C, CHUNK)


@triton.jit
def _message(
    own, y, e, source, start, end, C: tl.constexpr, BLOCK_C: tl.constexpr, CHUNK: tl.constexpr
):
    """x_t + y_s + e_st of the edges ``start`` … ``end`` − 1, CHUNK at most."""
    edge = (start + tl.arange(0, CHUNK)).to(tl.int64)
    channel = tl.arange(0, BLOCK_C)
    inside = (edge < end)[:, None] & (channel < C)[None, :]
    other = tl.load(source + edge, edge < end, other=0).to(tl.int64)
    value = tl.load(y + other[:, None] * C + channel, inside, other=0.0).to(tl.float32)
    value += own[None, :]
    if e is not None:
        value += tl.load(e + edge[:, None] * C + channel, inside, other=0.0).to(tl.float32)
    return value, inside, edge


@triton.jit
def sum_and_max_kernel(
    x, y, e, total, top, source, ptr, C: tl.constexpr, BLOCK_C: tl.constexpr, CHUNK: tl.constexpr
):
    """Sum and largest of x_t + y_s + e_st over the edges into t, 0 without any; grid (nodes,)."""
    node = tl.program_id(0)
    channel = tl.arange(0, BLOCK_C)
    wide = channel < C
    here = node.to(tl.int64) * C + channel
    own = tl.load(x + here, wide, other=0.0).to(tl.float32)
    acc = tl.zeros([CHUNK, BLOCK_C], tl.float32)
    most = tl.full([CHUNK, BLOCK_C], float("-inf"), tl.float32)
    begin, end = tl.load(ptr + node), tl.load(ptr + node + 1)
    for start in range(begin, end, CHUNK):
        value, inside, _ = _message(own, y, e, source, start, end, C, BLOCK_C, CHUNK)
        acc += tl.where(inside, value, 0.0)
        most = tl.maximum(most, tl.where(inside, value, float("-inf")))
    largest = tl.where(begin < end, tl.max(most, 0), 0.0)
    tl.store(total + here, tl.sum(acc, 0).to(total.dtype.element_ty), wide)
    tl.store(top + here, largest, wide)


@triton.jit(do_not_specialize=["nodes", "edges"])
def sum_and_max_gradient_kernel(
    x, y, e, top, d_total, d_top, dx, dm, source, ptr, nodes, edges,
    C: tl.constexpr, BLOCK_C: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """dm_st = d total_t + d top_t / (number of the largest), the last where the message is one of
    them, and dx_t = Σ dm_st; grid (nodes,)."""
    node = tl.program_id(0)
    channel = tl.arange(0, BLOCK_C)
    wide = channel < C
    here = node.to(tl.int64) * C + channel
    own = tl.load(x + here, wide, other=0.0).to(tl.float32)
    largest = tl.load(top + here, wide, other=0.0)
    of_sum = tl.load(d_total + here, wide, other=0.0).to(tl.float32)
    of_max = tl.load(d_top + here, wide, other=0.0).to(tl.float32)
    count = tl.zeros([CHUNK, BLOCK_C], tl.float32)
    begin, end = tl.load(ptr + node), tl.load(ptr + node + 1)
    for start in range(begin, end, CHUNK):
        value, inside, _ = _message(own, y, e, source, start, end, C, BLOCK_C, CHUNK)
        count += tl.where(inside & (value == largest[None, :]), 1.0, 0.0)
    share = of_max / tl.maximum(tl.sum(count, 0), 1.0)
    acc = tl.zeros([CHUNK, BLOCK_C], tl.float32)
    for start in range(begin, end, CHUNK):
        value, inside, edge = _message(own, y, e, source, start, end, C, BLOCK_C, CHUNK)
        grad = of_sum[None, :] + tl.where(value == largest[None, :], share[None, :], 0.0)
        acc += tl.where(inside, grad, 0.0)
        tl.store(dm + edge[:, None] * C + channel, grad.to(dm.dtype.element_ty), inside)
    tl.store(dx + here, tl.sum(acc, 0).to(dx.dtype.element_ty), wide)
    write_rest(dm, None, tl.load(ptr + nodes), edges, C, BLOCK_C, CHUNK)
