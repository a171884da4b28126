"""Triton kernels of edge states: u of the gated convolution, and e' = e + drop(ReLU(norm(u))).

The map of the edge states is made on tensor cores: see :mod:`gradformer.attention.product_kernels`.

``stats`` [3, C] holds mean, rstd and 1/rows, as in :mod:`gradformer.model.norm_kernels`. Its sums
over all edges are made where u is made, one piece a program, always in the same order.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.attention.draw_kernels import _site_key
from gradformer.model.edge_tile_kernels import (
    STEP,
    _add_mapped,
    _channels,
    _keys,
    _learned,
    _map_blocks,
    _row,
    _rows,
    _share,
    _updated,
)
from gradformer.model.message_kernels import write_rest
from gradformer.model.norm_kernels import _settle

NUMBERS = ["nodes", "edges", "pieces", "threshold"]  # all batches share one compiled kernel


@triton.jit
def _store(x, values, row, real, C: tl.constexpr):
    """Values [rows, STEP] of all channels into real rows of x [·, C]."""
    for k in tl.static_range(len(values)):
        channel = _channels(k)
        at = x + row[:, None] * C + channel[None, :]
        tl.store(at, values[k].to(x.dtype.element_ty), real & (channel < C)[None, :])


# --- u --------------------------------------------------------------------------------------------


@triton.jit
def _pairs(x, ROWS: tl.constexpr):
    """[rows, …] → [rows / 16, 2, 8, …]: rows that are 8 apart, which one thread holds."""
    return tl.reshape(x, [ROWS // 16, 2, 8, x.shape[1]])


@triton.jit
def _pair_means(values, ROWS: tl.constexpr):
    means = ()
    for k in tl.static_range(len(values)):
        means += (tl.sum(_pairs(values[k], ROWS), 1) * 0.5,)
    return means


@triton.jit
def _over_rows(x):
    """Sums [STEP] of what threads have summed."""
    return tl.sum(tl.sum(x, 0), 0)


@triton.jit(do_not_specialize=NUMBERS)
def edge_kernel(
    e, weight, bias, terms, u, moments, source, target, ptr, nodes, edges,
    IN: tl.constexpr, C: tl.constexpr, E_ROW: tl.constexpr, MAP: tl.constexpr,
    PADDING: tl.constexpr, MOMENTS: tl.constexpr, ROWS: tl.constexpr, EXACT: tl.constexpr,
    BLOCK_C: tl.constexpr,
):  # fmt: skip
    """u_st = D_t + E_s + W e_st + b. Without MAP, ``e`` is mapped.

    With PADDING padded rows are written too, as 0. With MOMENTS also moments [programs, 2, C]:
    mean, and Σ (u − mean)², of each program's edges. Every thread sums deviations from the mean of
    the first two numbers it has, near enough to that of all that no digits are lost.
    """
    BLOCKS: tl.constexpr = (C + STEP - 1) // STEP
    last = tl.load(ptr + nodes)
    sums, squares, centers = (), (), ()
    if MAP:
        blocks = _map_blocks(weight, terms, IN, C, 1, IN, EXACT)
    for _ in tl.static_range(BLOCKS):
        sums += (tl.zeros([ROWS // 16, 8, STEP], tl.float32),)
        squares += (tl.zeros([ROWS // 16, 8, STEP], tl.float32),)
        centers += (tl.zeros([ROWS // 16, 8, STEP], tl.float32),)
    counts = tl.zeros([ROWS // 16, 8, 1], tl.float32)
    begin, end = _share(tl.program_id(0), tl.num_programs(0), last, ROWS)
    for tile in range(begin, end):
        first = tl.cast(tile, tl.int64) * ROWS
        left = (last - first).to(tl.int32)
        real = (tl.arange(0, ROWS) < left)[:, None]
        row = tl.minimum(tl.arange(0, ROWS), left - 1)
        both = tl.arange(0, 2 * ROWS)
        at = first + tl.minimum(both % ROWS, left - 1)
        node = tl.load(tl.where(both < ROWS, target + at, source + at))
        at = node * (4 * C) + tl.where(both < ROWS, C, 3 * C)
        values = ()
        for k in tl.static_range(BLOCKS):
            channel = _channels(k)
            value = _rows(terms, at, channel, 1, C)
            value = tl.sum(tl.reshape(value, [2, ROWS, STEP]), 0)
            if MAP:
                value += _row(bias, channel, C)
            else:
                value += _rows(e + first * E_ROW, row, channel, E_ROW, C)
            values += (value,)
        if MAP:
            values = _add_mapped(values, e + first * E_ROW, row, blocks, terms, IN, E_ROW, EXACT)
        if MOMENTS:
            if tile == begin:
                centers = _pair_means(values, ROWS)
            listed = _pairs(real, ROWS)
            counts += tl.sum(listed.to(tl.float32), 1)
            more_sums, more_squares = (), ()
            for k in tl.static_range(BLOCKS):
                apart = _pairs(values[k], ROWS) - centers[k][:, None, :, :]
                apart = tl.where(listed, apart, 0.0)
                more_sums += (sums[k] + tl.sum(apart, 1),)
                more_squares += (squares[k] + tl.sum(apart * apart, 1),)
            sums, squares = more_sums, more_squares
        _store(u + first * C, values, row, real, C)
    if MOMENTS:
        share = 1.0 / tl.maximum(counts, 1.0)
        whole = 1.0 / tl.maximum(_over_rows(counts), 1.0)
        moments += tl.program_id(0) * 2 * C
        for k in tl.static_range(BLOCKS):
            channel = _channels(k)
            mean = _over_rows(counts * centers[k] + sums[k]) * whole
            apart = centers[k] + sums[k] * share - mean[None, None, :]
            square = squares[k] - sums[k] * sums[k] * share + counts * apart * apart
            tl.store(moments + channel, mean, channel < C)
            tl.store(moments + C + channel, _over_rows(square), channel < C)
    if PADDING:
        write_rest(u, u, last, edges, C, BLOCK_C, ROWS, False)


# --- its norm, and what follows -------------------------------------------------------------------


@triton.jit(do_not_specialize=NUMBERS)
def moments_kernel(
    moments, running_mean, running_var, stats, ptr, nodes, pieces, momentum, eps,
    C: tl.constexpr, ROWS: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
    TRAINING: tl.constexpr,
):  # fmt: skip
    """stats, and running statistics, from the moments [pieces, 2, C] that ``edge_kernel`` leaves;
    grid (channels / BLOCK_C,)."""
    channel = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    last = tl.load(ptr + nodes)
    count = last.to(tl.float32)
    mean = tl.zeros([BLOCK_C], tl.float32)
    square = tl.zeros([BLOCK_C], tl.float32)
    if TRAINING:
        piece = tl.arange(0, BLOCK_P)
        begin, end = _share(piece, pieces, last, ROWS)
        rows = tl.maximum(tl.minimum(end * ROWS, last) - begin * ROWS, 0).to(tl.float32)[:, None]
        at = moments + piece[:, None] * (2 * C) + channel
        inside = (channel < C)[None, :] & (rows > 0.0)
        means = tl.load(at, inside, other=0.0)
        squares = tl.load(at + C, inside, other=0.0)
        mean = tl.sum(rows * means, 0) / tl.maximum(count, 1.0)
        apart = means - mean[None, :]
        square = tl.sum(squares + rows * apart * apart, 0)
    _settle(
        mean, square, count, running_mean, running_var, stats, channel, momentum, eps,
        True, C, TRAINING,
    )  # fmt: skip


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=["seed"])
def update_kernel(
    u, e, new, gamma, beta, stats, ptr, nodes, edges, graph_id, index, seed, scale, threshold,
    C: tl.constexpr, E_ROW: tl.constexpr, ROWS: tl.constexpr, DROP: tl.constexpr,
    BLOCK_C: tl.constexpr,
):  # fmt: skip
    """e', 0 in padded rows; grid (tiles of ROWS edges,)."""
    last = tl.load(ptr + nodes)
    first = tl.program_id(0).to(tl.int64) * ROWS
    if first < last:
        left = (last - first).to(tl.int32)
        real = (tl.arange(0, ROWS) < left)[:, None]
        row = tl.minimum(tl.arange(0, ROWS), left - 1)
        keys = _keys(_site_key(seed), graph_id + first, index + first, row) if DROP else 0
        values = ()
        for k in tl.static_range((C + STEP - 1) // STEP):
            channel = _channels(k)
            given = _rows(e + first * E_ROW, row, channel, E_ROW, C)
            value = _rows(u + first * C, row, channel, C, C)
            learned = _learned(gamma, beta, stats, channel, C)
            values += (_updated(given, value, channel, learned, (keys, scale, threshold), DROP),)
        _store(new + first * C, values, row, real, C)
    write_rest(new, new, last, edges, C, BLOCK_C, 32, False)
