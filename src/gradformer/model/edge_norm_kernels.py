"""Triton kernels of the edge norm inside the gated convolution, where edges are many.

e' = e + drop(ReLU(γ ẑ + β)) with ẑ = (u − mean) rstd. What is summed over all edges is summed over
tiles of rows by the programs that have the numbers at hand, and over the tiles by a small kernel of
a few channels a program, always in the same order. Then every program is free of the others.

``stats`` [3, C] holds mean, rstd and 1/rows, as in :mod:`gradformer.model.norm_kernels`.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.attention.draw_kernels import _keep, _row_keys
from gradformer.model.norm_kernels import _settle

NUMBERS = ["nodes", "edges", "tiles", "threshold"]  # all batches share one compiled kernel


@triton.jit
def norm_of(norm, channel, C: tl.constexpr):
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
def _dropped(value, edge, channel, draw):
    """The value times a factor where the draw keeps it, otherwise 0."""
    graph_id, index, seed, scale, threshold, edges = draw
    graph = tl.load(graph_id + edge, edge < edges, other=0)
    place = tl.load(index + edge, edge < edges, other=0)
    keys = _row_keys(seed, graph, place * 0, place)
    return tl.where(_keep(keys[:, None], channel[None, :], threshold), value * scale, 0.0)


# --- forward --------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["nodes"])
def moments_kernel(
    moments, running_mean, running_var, stats, ptr, nodes, momentum, eps,
    C: tl.constexpr, ROWS: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr,
    TRAINING: tl.constexpr,
):  # fmt: skip
    """stats, and running statistics, from the moments [tiles, 2, C] that ``edge_kernel`` leaves;
    grid (channels / BLOCK_C,)."""
    channel = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    wide = (channel < C)[None, :]
    last = tl.load(ptr + nodes)
    count = last.to(tl.float32)
    total = tl.zeros([BLOCK_T, BLOCK_C], tl.float32)
    square = tl.zeros([BLOCK_T, BLOCK_C], tl.float32)
    if TRAINING:
        for start in range(0, tl.cdiv(last, ROWS), BLOCK_T):
            tile = start + tl.arange(0, BLOCK_T)
            rows = tl.minimum(tl.maximum(last - tile * ROWS, 0), ROWS).to(tl.float32)[:, None]
            at = tile[:, None] * (2 * C) + channel
            total += rows * tl.load(moments + at, wide & (rows > 0.0), other=0.0)
    mean = tl.sum(total, 0) / tl.maximum(count, 1.0)
    if TRAINING:
        for start in range(0, tl.cdiv(last, ROWS), BLOCK_T):
            tile = start + tl.arange(0, BLOCK_T)
            rows = tl.minimum(tl.maximum(last - tile * ROWS, 0), ROWS).to(tl.float32)[:, None]
            at = tile[:, None] * (2 * C) + channel
            apart = tl.load(moments + at, wide & (rows > 0.0), other=0.0) - mean[None, :]
            inner = tl.load(moments + C + at, wide & (rows > 0.0), other=0.0)
            square += inner + rows * apart * apart
    _settle(
        mean, tl.sum(square, 0), count, running_mean, running_var, stats, channel, momentum, eps,
        True, C, TRAINING,
    )  # fmt: skip


@triton.jit
def updated_rows(
    e, u, edge, channel, inside, learned, draw,
    C: tl.constexpr, E_ROW: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """e' = e + drop(ReLU(γ ẑ + β)) where ``inside``, otherwise 0."""
    mean, rstd, gamma, beta = learned
    before = tl.load(e + edge[:, None] * E_ROW + channel, inside, other=0.0).to(tl.float32)
    value = tl.load(u + edge[:, None] * C + channel, inside, other=0.0).to(tl.float32)
    value = (value - mean[None, :]) * rstd[None, :] * gamma[None, :] + beta[None, :]
    value = tl.where(value <= 0.0, 0.0, value)  # NaN stays NaN
    if DROP:
        value = _dropped(value, edge, channel, draw)
    return tl.where(inside, before + value, 0.0)


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=["seed"])
def update_kernel(
    u, e, new, gamma, beta, stats, ptr, nodes, edges, graph_id, index, seed, scale, threshold,
    C: tl.constexpr, E_ROW: tl.constexpr, BLOCK_C: tl.constexpr, ROWS: tl.constexpr,
    DROP: tl.constexpr,
):  # fmt: skip
    """e', 0 in padded rows; grid (tiles of ROWS edges,)."""
    edge = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    channel = tl.arange(0, BLOCK_C)
    wide = (channel < C)[None, :]
    inside = (edge < tl.load(ptr + nodes))[:, None] & wide
    learned = norm_of((gamma, beta, stats), channel, C)
    draw = (graph_id, index, seed, scale, threshold, edges)
    value = updated_rows(e, u, edge, channel, inside, learned, draw, C, E_ROW, DROP)
    at = edge[:, None] * C + channel
    tl.store(new + at, value.to(new.dtype.element_ty), (edge < edges)[:, None] & wide)


# --- backward -------------------------------------------------------------------------------------


@triton.jit
def slope_of(grad, value, at, edge, channel, inside, learned, draw, DROP: tl.constexpr):
    """ẑ, and dy: what arrives at γ ẑ + β of that at e'."""
    mean, rstd, gamma, beta = learned
    normed = (value - mean[None, :]) * rstd[None, :]
    slope = tl.load(grad + at, inside, other=0.0).to(tl.float32)
    if DROP:
        slope = _dropped(slope, edge, channel, draw)
    return normed, tl.where(normed * gamma[None, :] + beta[None, :] > 0.0, slope, 0.0)


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=["seed"])
def slope_kernel(
    e_grad, u, gamma, beta, stats, partial, ptr, nodes, edges,
    graph_id, index, seed, scale, threshold,
    C: tl.constexpr, BLOCK_C: tl.constexpr, ROWS: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """partial [tiles, 2, C]: Σ dy ẑ and Σ dy of ROWS edges; grid (tiles,)."""
    edge = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    channel = tl.arange(0, BLOCK_C)
    wide = channel < C
    inside = (edge < tl.load(ptr + nodes))[:, None] & wide[None, :]
    at = edge[:, None] * C + channel
    value = tl.load(u + at, inside, other=0.0).to(tl.float32)
    learned = norm_of((gamma, beta, stats), channel, C)
    draw = (graph_id, index, seed, scale, threshold, edges)
    normed, slope = slope_of(e_grad, value, at, edge, channel, inside, learned, draw, DROP)
    partial += tl.program_id(0) * 2 * C + channel
    tl.store(partial, tl.sum(slope * normed, 0), wide)
    tl.store(partial + C, tl.sum(slope, 0), wide)


@triton.jit(do_not_specialize=["tiles"])
def slope_sums_kernel(
    partial, dgamma, dbeta, tiles,
    C: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """dγ = Σ dy ẑ and dβ = Σ dy over all tiles; grid (channels / BLOCK_C,)."""
    channel = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    along = tl.zeros([BLOCK_T, BLOCK_C], tl.float32)
    total = tl.zeros([BLOCK_T, BLOCK_C], tl.float32)
    for start in range(0, tiles, BLOCK_T):
        tile = start + tl.arange(0, BLOCK_T)
        listed = (tile < tiles)[:, None] & (channel < C)[None, :]
        at = partial + tile[:, None] * (2 * C) + channel
        along += tl.load(at, listed, other=0.0)
        total += tl.load(at + C, listed, other=0.0)
    tl.store(dgamma + channel, tl.sum(along, 0), channel < C)
    tl.store(dbeta + channel, tl.sum(total, 0), channel < C)
