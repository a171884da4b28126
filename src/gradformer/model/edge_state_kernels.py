"""Triton kernels of edge states: u of the gated convolution, and e' = e + drop(ReLU(norm(u))).

The map of the edge states is made on tensor cores: see :mod:`gradformer.model.product_kernels`.

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
    _channels,
    _keys,
    _learned,
    _rounded,
    _row,
    _rows,
    _share,
    _updated,
)
from gradformer.model.message_kernels import write_rest
from gradformer.model.norm_kernels import _settle
from gradformer.model.product_kernels import _add_product, _factors

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
def _map_blocks(weight, like, IN: tl.constexpr, C: tl.constexpr, EXACT: tl.constexpr):
    """The map's blocks [STEP inputs, STEP outputs], those of the same inputs together, as factors
    of products."""
    blocks = ()
    for j in tl.static_range((IN + STEP - 1) // STEP):
        for k in tl.static_range((C + STEP - 1) // STEP):
            into, onto = _channels(j)[:, None], _channels(k)[None, :]
            block = tl.load(weight + onto * IN + into, (into < IN) & (onto < C), other=0.0)
            blocks += (_factors(_rounded(block, like), EXACT),)
    return blocks


@triton.jit
def _add_mapped(
    values, e, row, blocks, like, IN: tl.constexpr, E_ROW: tl.constexpr, EXACT: tl.constexpr
):
    """Values [rows, STEP] of all outputs + those of the map of e."""
    OUT: tl.constexpr = len(values)
    for j in tl.static_range((IN + STEP - 1) // STEP):
        given = _factors(_rounded(_rows(e, row, _channels(j), E_ROW, IN), like), EXACT)
        found = ()
        for k in tl.static_range(OUT):
            found += (_add_product(values[k], given, blocks[j * OUT + k], EXACT),)
        values = found
    return values


@triton.jit
def _means(values, real, count):
    means = ()
    for k in tl.static_range(len(values)):
        means += (tl.sum(tl.where(real, values[k], 0.0), 0) / count,)
    return means


@triton.jit
def _sum_of_pairs(value, ROWS: tl.constexpr):
    """[rows, STEP] → [rows / 16, 8, STEP]: rows that are 8 apart, which lie in one thread."""
    return tl.sum(tl.reshape(value, [ROWS // 16, 2, 8, STEP]), 1)


@triton.jit(do_not_specialize=NUMBERS)
def edge_kernel(
    e, weight, bias, terms, u, moments, source, target, ptr, nodes, edges,
    IN: tl.constexpr, C: tl.constexpr, E_ROW: tl.constexpr, MAP: tl.constexpr,
    PADDING: tl.constexpr, MOMENTS: tl.constexpr, ROWS: tl.constexpr, EXACT: tl.constexpr,
    BLOCK_C: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """u_st = D_t + E_s + W e_st + b. Without MAP, ``e`` is mapped.

    With PADDING padded rows are written too, as 0. With MOMENTS also moments [programs, 2, C]:
    mean, and Σ (u − mean)², of each program's edges. Deviations are summed from the mean of the
    program's first tile, near enough to theirs that no digits are lost.
    """
    BLOCKS: tl.constexpr = (C + STEP - 1) // STEP
    last = tl.load(ptr + nodes)
    sums, squares, centers = (), (), ()
    if MAP:
        blocks = _map_blocks(weight, terms, IN, C, EXACT)
    for _ in tl.static_range(BLOCKS):
        sums += (tl.zeros([ROWS // 16, 8, STEP], tl.float32),)
        squares += (tl.zeros([ROWS // 16, 8, STEP], tl.float32),)
        centers += (tl.zeros([STEP], tl.float32),)
    begin, end = _share(tl.program_id(0), tl.num_programs(0), last, ROWS)
    for tile in tl.range(begin, end, num_stages=STAGES):
        first = tl.cast(tile, tl.int64) * ROWS
        left = (last - first).to(tl.int32)
        real = (tl.arange(0, ROWS) < left)[:, None]
        row = tl.minimum(tl.arange(0, ROWS), left - 1)
        at_target = tl.load(target + first + row)
        at_source = tl.load(source + first + row)
        values = ()
        for k in tl.static_range(BLOCKS):
            channel = _channels(k)
            value = _rows(terms + C, at_target, channel, 4 * C, C)
            value += _rows(terms + 3 * C, at_source, channel, 4 * C, C)
            if MAP:
                value += _row(bias, channel, C)
            else:
                value += _rows(e + first * E_ROW, row, channel, E_ROW, C)
            values += (value,)
        if MAP:
            values = _add_mapped(values, e + first * E_ROW, row, blocks, terms, IN, E_ROW, EXACT)
        if MOMENTS:
            if tile == begin:
                centers = _means(values, real, tl.minimum(left, ROWS))
            more_sums, more_squares = (), ()
            for k in tl.static_range(BLOCKS):
                apart = tl.where(real, values[k] - centers[k][None, :], 0.0)
                more_sums += (sums[k] + _sum_of_pairs(apart, ROWS),)
                more_squares += (squares[k] + _sum_of_pairs(apart * apart, ROWS),)
            sums, squares = more_sums, more_squares
        _store(u + first * C, values, row, real, C)
    if MOMENTS:
        count = tl.maximum(tl.minimum(end * ROWS, last) - begin * ROWS, 1).to(tl.float32)
        moments += tl.program_id(0) * 2 * C
        for k in tl.static_range(BLOCKS):
            channel = _channels(k)
            total, square = tl.sum(tl.sum(sums[k], 0), 0), tl.sum(tl.sum(squares[k], 0), 0)
            square = tl.maximum(square - total * total / count, 0.0)
            tl.store(moments + channel, centers[k] + total / count, channel < C)
            tl.store(moments + C + channel, square, channel < C)
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
