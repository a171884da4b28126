"""Triton kernels of the gated convolution: over nodes, and over edge rows where they are mapped.

Node terms are the columns A | D | B | E of one tensor [nodes, 4 C]. Every row of an output is
written by exactly one program, sums are float32 and run in a fixed order, without atomics. Edges
from ``ptr[nodes]`` on are padding: they enter no sum, and their rows of u and its gradient are 0.
Numbers of nodes and edges are not specialised, so that all batches share one compiled kernel.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.attention.draw_kernels import _keep, _row_keys
from gradformer.model.message_kernels import write_rest

GATE_EPS = tl.constexpr(1e-6)
NUMBERS = ["nodes", "edges", "chunk", "threshold"]  # all batches share one compiled kernel


@triton.jit(do_not_specialize=["nodes", "edges"])
def edge_kernel(
    e, weight, bias, terms, u, source, target, ptr, nodes, edges,
    IN: tl.constexpr, C: tl.constexpr, E_ROW: tl.constexpr, MAP: tl.constexpr,
    BLOCK_IN: tl.constexpr, BLOCK_C: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """u_st = D_t + E_s + W e_st + b; grid (edges / ROWS,). Without MAP, ``e`` is mapped already."""
    first = tl.program_id(0).to(tl.int64) * ROWS
    row = tl.arange(0, ROWS)
    real = first + row < tl.load(ptr + nodes)
    channel = tl.arange(0, BLOCK_C)
    wide = (channel < C)[None, :]
    inside = real[:, None] & wide
    at_target = tl.load(target + first + row, real, other=0)[:, None] * (4 * C) + channel
    at_source = tl.load(source + first + row, real, other=0)[:, None] * (4 * C) + channel
    value = tl.load(terms + C + at_target, inside, other=0.0).to(tl.float32)
    value += tl.load(terms + 3 * C + at_source, inside, other=0.0).to(tl.float32)
    if MAP:
        given = _edge_tile(e + first * E_ROW, row, real, terms, IN, E_ROW, BLOCK_IN)
        column = tl.arange(0, BLOCK_IN)
        turned = weight + channel[None, :] * IN + column[:, None]
        turned = tl.load(turned, wide & (column < IN)[:, None], other=0.0)
        turned = turned.to(terms.dtype.element_ty).to(tl.float32)
        value += tl.load(bias + channel, channel < C, other=0.0).to(tl.float32)[None, :]
        value = tl.dot(given, turned, value, input_precision=PRECISION)
    else:
        value += tl.load(e + first * E_ROW + row[:, None] * E_ROW + channel, inside, other=0.0)
    value = tl.where(inside, value, 0.0).to(u.dtype.element_ty)
    tl.store(
        u + first * C + row[:, None] * C + channel, value, (first + row < edges)[:, None] & wide
    )


@triton.jit
def _edge_tile(
    e, row, real, like, IN: tl.constexpr, E_ROW: tl.constexpr, BLOCK_IN: tl.constexpr
):  # fmt: skip
    """Rows of e as float32, rounded as ``like`` is: products of short floats are exact in tf32."""
    column = tl.arange(0, BLOCK_IN)
    value = tl.load(
        e + row[:, None] * E_ROW + column, real[:, None] & (column < IN)[None, :], other=0.0
    )
    return value.to(like.dtype.element_ty).to(tl.float32)


@triton.jit
def node_kernel(
    terms, r, u, h, mean, inverse, source, ptr,
    C: tl.constexpr, BLOCK_C: tl.constexpr, CHUNK: tl.constexpr, POSITION: tl.constexpr,
):  # fmt: skip
    """g = σ(u) r, inverse_t = 1 / (Σ g + 1e-6), mean_t = inverse_t Σ g B_s, h = A + mean;
    grid (nodes,)."""
    node = tl.program_id(0)
    channel = tl.arange(0, BLOCK_C)
    wide = channel < C
    numerator = tl.zeros([CHUNK, BLOCK_C], tl.float32)
    denominator = tl.zeros([CHUNK, BLOCK_C], tl.float32)
    end = tl.load(ptr + node + 1)
    for start in range(tl.load(ptr + node), end, CHUNK):
        edge = (start + tl.arange(0, CHUNK)).to(tl.int64)
        real = edge < end
        inside = real[:, None] & wide[None, :]
        other = tl.load(source + edge, real, other=0).to(tl.int64)
        value = tl.load(u + edge[:, None] * C + channel, inside, other=0.0).to(tl.float32)
        gate = tl.where(inside, tl.sigmoid(value), 0.0)
        if POSITION:
            gate *= tl.load(r + edge, real, other=0.0).to(tl.float32)[:, None]
        b = terms + other[:, None] * (4 * C) + 2 * C + channel
        numerator += gate * tl.load(b, inside, other=0.0).to(tl.float32)
        denominator += gate
    share = 1.0 / (tl.sum(denominator, 0) + GATE_EPS)
    found = tl.sum(numerator, 0) * share
    here = node.to(tl.int64) * C + channel
    tl.store(mean + here, found, wide)
    tl.store(inverse + here, share, wide)
    a = terms + node.to(tl.int64) * (4 * C) + channel
    found += tl.load(a, wide, other=0.0).to(tl.float32)
    tl.store(h + here, found.to(h.dtype.element_ty), wide)


# --- the edge norm: e' = e + drop(ReLU(γ ẑ + β)) with ẑ = (u − mean) rstd -------------------------


@triton.jit
def _norm_of(norm, channel, C: tl.constexpr):
    """Mean, rstd, γ, β of some channels."""
    gamma, beta, stats = norm
    wide = channel < C
    return (
        tl.load(stats + channel, wide, other=0.0),
        tl.load(stats + C + channel, wide, other=0.0),
        tl.load(gamma + channel, wide, other=0.0),
        tl.load(beta + channel, wide, other=0.0),
    )


@triton.jit
def _slope(grad, value, at, edge, channel, inside, learned, draw, DROP: tl.constexpr):
    """ẑ, and dy: what arrives at γ ẑ + β of that at e'."""
    mean, rstd, gamma, beta = learned
    normed = (value - mean[None, :]) * rstd[None, :]
    slope = tl.load(grad + at, inside, other=0.0).to(tl.float32)
    if DROP:
        graph_id, index, seed, scale, threshold, edges = draw
        graph = tl.load(graph_id + edge, edge < edges, other=0)
        place = tl.load(index + edge, edge < edges, other=0)
        keys = _row_keys(seed, graph, place * 0, place)
        slope = tl.where(_keep(keys[:, None], channel[None, :], threshold), slope * scale, 0.0)
    return normed, tl.where(normed * gamma[None, :] + beta[None, :] > 0.0, slope, 0.0)


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=["seed"])
def slope_kernel(
    e_grad, u, gamma, beta, stats, partial, ptr, nodes, edges, chunk,
    graph_id, index, seed, scale, threshold,
    C: tl.constexpr, BLOCK_C: tl.constexpr, ROWS: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """partial [chunks, 2, C]: Σ dy ẑ and Σ dy of ``chunk`` edge rows; grid (chunks,)."""
    channel = tl.arange(0, BLOCK_C)
    wide = channel < C
    learned = _norm_of((gamma, beta, stats), channel, C)
    draw = (graph_id, index, seed, scale, threshold, edges)
    along = tl.zeros([ROWS, BLOCK_C], tl.float32)
    total = tl.zeros([ROWS, BLOCK_C], tl.float32)
    last = tl.load(ptr + nodes)
    begin = tl.program_id(0).to(tl.int64) * chunk
    for first in range(begin, tl.minimum(begin + chunk, last), ROWS):
        edge = first + tl.arange(0, ROWS)
        inside = (edge < last)[:, None] & wide[None, :]
        at = edge[:, None] * C + channel
        value = tl.load(u + at, inside, other=0.0).to(tl.float32)
        normed, slope = _slope(e_grad, value, at, edge, channel, inside, learned, draw, DROP)
        along += slope * normed
        total += slope
    partial += tl.program_id(0) * 2 * C + channel
    tl.store(partial, tl.sum(along, 0), wide)
    tl.store(partial + C, tl.sum(total, 0), wide)


@triton.jit
def slope_sums_kernel(
    partial, dgamma, dbeta, chunks,
    C: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """dγ = Σ dy ẑ and dβ = Σ dy over all chunks; grid (channels / BLOCK_C,)."""
    channel = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    chunk = tl.arange(0, BLOCK_P)
    listed = (chunk < chunks)[:, None] & (channel < C)[None, :]
    at = partial + chunk[:, None] * (2 * C) + channel
    tl.store(dgamma + channel, tl.sum(tl.load(at, listed, other=0.0), 0), channel < C)
    tl.store(dbeta + channel, tl.sum(tl.load(at + C, listed, other=0.0), 0), channel < C)


# --- backward -------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=["seed"])
def target_gradient_kernel(
    dh, out_grad, terms, r, u, mean, inverse, d_terms, du, dr, source, ptr, nodes, edges,
    gamma, beta, stats, dgamma, dbeta, graph_id, index, seed, scale, threshold,
    C: tl.constexpr, BLOCK_C: tl.constexpr, CHUNK: tl.constexpr,
    POSITION: tl.constexpr, OUT_GRAD: tl.constexpr, NORM: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """By target: dg = dh_t inverse_t (B_s − mean_t), dr = Σ_c dg σ(u), du = dg r σ'(u) (+ what
    arrives at u, directly or with NORM through e'), dA = dh, dD = Σ du; grid (nodes,)."""
    node = tl.program_id(0)
    channel = tl.arange(0, BLOCK_C)
    wide = channel < C
    here = node.to(tl.int64) * C + channel
    grad = tl.load(dh + here, wide, other=0.0).to(tl.float32)
    own_mean = tl.load(mean + here, wide, other=0.0)
    share = grad * tl.load(inverse + here, wide, other=0.0)
    if NORM:
        learned = _norm_of((gamma, beta, stats), channel, C)
        draw = (graph_id, index, seed, scale, threshold, edges)
        one = tl.load(stats + 2 * C + channel, wide, other=0.0)  # 1 / rows
        along = tl.load(dgamma + channel, wide, other=0.0) * one
        total = tl.load(dbeta + channel, wide, other=0.0) * one
    d_d = tl.zeros([CHUNK, BLOCK_C], tl.float32)
    end = tl.load(ptr + node + 1)
    for start in range(tl.load(ptr + node), end, CHUNK):
        edge = (start + tl.arange(0, CHUNK)).to(tl.int64)
        real = edge < end
        inside = real[:, None] & wide[None, :]
        other = tl.load(source + edge, real, other=0).to(tl.int64)
        b = terms + other[:, None] * (4 * C) + 2 * C + channel
        b = tl.load(b, inside, other=0.0).to(tl.float32)
        at = edge[:, None] * C + channel
        value = tl.load(u + at, inside, other=0.0).to(tl.float32)
        gate = tl.sigmoid(value)
        change = tl.where(inside, share[None, :] * (b - own_mean[None, :]) * gate, 0.0)
        if POSITION:
            tl.store(dr + edge, tl.sum(change, 1).to(dr.dtype.element_ty), real)
            change *= tl.load(r + edge, real, other=0.0).to(tl.float32)[:, None]
        change *= 1.0 - gate
        if OUT_GRAD and NORM:
            normed, slope = _slope(out_grad, value, at, edge, channel, inside, learned, draw, DROP)
            slope -= total[None, :] + normed * along[None, :]
            change += tl.where(inside, slope * (learned[1] * learned[2])[None, :], 0.0)
        elif OUT_GRAD:
            change += tl.load(out_grad + at, inside, other=0.0).to(tl.float32)
        tl.store(du + at, change.to(du.dtype.element_ty), inside)
        d_d += change
    own = d_terms + node.to(tl.int64) * (4 * C) + channel
    tl.store(own, grad.to(d_terms.dtype.element_ty), wide)
    tl.store(own + C, tl.sum(d_d, 0).to(d_terms.dtype.element_ty), wide)
    first = tl.load(ptr + nodes)
    write_rest(du, du, first, edges, C, BLOCK_C, CHUNK, False)
    if POSITION:
        write_rest(dr, dr, first, edges, 1, 1, CHUNK, False)


@triton.jit
def source_gradient_kernel(
    dh, r, u, du, inverse, d_terms, target, ptr, order,
    C: tl.constexpr, BLOCK_C: tl.constexpr, CHUNK: tl.constexpr, POSITION: tl.constexpr,
):  # fmt: skip
    """By source: dB = Σ σ(u) r dh_t inverse_t and dE = Σ du; grid (nodes,)."""
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
        there = tl.load(target + edge, real, other=0).to(tl.int64)[:, None] * C + channel
        share = tl.load(dh + there, inside, other=0.0).to(tl.float32)
        d_b += gate * share * tl.load(inverse + there, inside, other=0.0)
        d_e += tl.load(du + at, inside, other=0.0).to(tl.float32)
    own = d_terms + node.to(tl.int64) * (4 * C) + channel
    tl.store(own + 2 * C, tl.sum(d_b, 0).to(d_terms.dtype.element_ty), wide)
    tl.store(own + 3 * C, tl.sum(d_e, 0).to(d_terms.dtype.element_ty), wide)


@triton.jit(do_not_specialize=["nodes", "edges", "chunk"])
def map_gradient_kernel(
    du, e_grad, e, weight, de, dw, db, ptr, nodes, edges, chunk, dw_row, db_row,
    IN: tl.constexpr, C: tl.constexpr, E_ROW: tl.constexpr, BLOCK_IN: tl.constexpr,
    BLOCK_C: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr, E_GRAD: tl.constexpr,
):  # fmt: skip
    """Of ``chunk`` edge rows: de = Wᵀ du (+ what arrives at e), and this program's pieces of
    dW = Σ du eᵀ and db = Σ du, whose rows are ``dw_row`` and ``db_row`` numbers apart;
    grid (pieces,)."""
    channel = tl.arange(0, BLOCK_C)
    column = tl.arange(0, BLOCK_IN)
    row = tl.arange(0, ROWS)
    wide = (channel < C)[None, :]
    narrow = (column < IN)[None, :]
    at_weight = channel[:, None] * IN + column[None, :]
    some = (channel < C)[:, None] & narrow
    matrix = tl.load(weight + at_weight, some, other=0.0).to(du.dtype.element_ty).to(tl.float32)
    d_weight = tl.zeros([BLOCK_C, BLOCK_IN], tl.float32)
    d_bias = tl.zeros([BLOCK_C], tl.float32)
    last = tl.load(ptr + nodes)
    begin = tl.program_id(0).to(tl.int64) * chunk
    for first in range(begin, tl.minimum(begin + chunk, edges), ROWS):
        exists = (first + row < edges)[:, None]
        change = tl.load(du + first * C + row[:, None] * C + channel, exists & wide, other=0.0)
        change = change.to(tl.float32)
        there = first * IN + row[:, None] * IN + column
        out = tl.zeros([ROWS, BLOCK_IN], tl.float32)
        if E_GRAD:
            out = tl.load(e_grad + there, exists & narrow, other=0.0).to(tl.float32)
        out = tl.dot(change, matrix, out, input_precision=PRECISION)
        tl.store(de + there, out.to(de.dtype.element_ty), exists & narrow)
        given = _edge_tile(e + first * E_ROW, row, first + row < last, du, IN, E_ROW, BLOCK_IN)
        d_weight = tl.dot(tl.trans(change), given, d_weight, input_precision=PRECISION)
        d_bias += tl.sum(change, 0)
    piece = tl.program_id(0).to(tl.int64)
    tl.store(dw + piece * dw_row + at_weight, d_weight, some)
    tl.store(db + piece * db_row + channel, d_bias, channel < C)
