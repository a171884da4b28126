"""Triton kernels of what the gated convolution makes of du: gradients of its map and of its edges.

How programs share the edges is told in :mod:`gradformer.model.edge_tile_kernels`.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.attention.draw_kernels import _site_key
from gradformer.attention.product_kernels import add_factors, factors
from gradformer.model.edge_gradient_kernels import NUMBERS, _slope, _write
from gradformer.model.edge_tile_kernels import (
    STEP,
    _add_mapped,
    _channels,
    _keys,
    _learned,
    _map_blocks,
    _rounded,
    _rows,
    _share,
    _updated,
)
from gradformer.model.message_kernels import write_rest

# --- the map --------------------------------------------------------------------------------------


@triton.jit
def _outer(sums, changes, givens, EXACT: tl.constexpr):
    """Sums [groups, STEP, STEP] + a b for all a [groups, STEP, rows], b [groups, rows, STEP].

    ``givens`` are factors.
    """
    found = ()
    for k in tl.static_range(len(changes)):
        change = factors(changes[k], EXACT)
        for j in tl.static_range(len(givens)):
            found += (add_factors(sums[k * len(givens) + j], change, givens[j], EXACT),)
    return found


@triton.jit
def _pair_sums(x):
    """[groups, channels, rows] → [groups, channels, rows / 2], of rows that one thread holds."""
    return tl.sum(tl.reshape(x, [x.shape[0], x.shape[1], 2, x.shape[2] // 2]), 2)


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=["seed"])
def weight_gradient_kernel(
    du, e, dw, db, dw_row, db_row, ptr, nodes,
    before, gamma, beta, stats, graph_id, index, seed, scale, threshold,
    IN: tl.constexpr, C: tl.constexpr, E_ROW: tl.constexpr, GROUPS: tl.constexpr,
    EXACT: tl.constexpr, REMAKE: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """Pieces of dW = Σ du eᵀ and db = Σ du, whose rows are ``dw_row`` and ``db_row`` numbers apart.

    A tile is GROUPS of STEP edges. Each warp has sums of its own group, so that what it reads is
    read by no other, and they are added in the end.
    With REMAKE the edge states were not kept: they are made again of those ``e`` of the layer
    before, and of its u, ``before``.
    """
    BLOCKS: tl.constexpr = (C + STEP - 1) // STEP
    INTO: tl.constexpr = (IN + STEP - 1) // STEP
    ROWS: tl.constexpr = GROUPS * STEP
    last = tl.load(ptr + nodes)
    site, sums, totals = _site_key(seed) if DROP else 0, (), ()
    for _ in tl.static_range(BLOCKS * INTO):
        sums += (tl.zeros([GROUPS, STEP, STEP], tl.float32),)
    for _ in tl.static_range(BLOCKS):
        totals += (tl.zeros([GROUPS, STEP, STEP // 2], tl.float32),)
    each = tl.arange(0, GROUPS)[:, None] * STEP + tl.arange(0, STEP)[None, :]
    begin, end = _share(tl.program_id(0), tl.num_programs(0), last, ROWS)
    for first in range(begin.to(tl.int64) * ROWS, end.to(tl.int64) * ROWS, ROWS):
        left = (last - first).to(tl.int32)
        row = tl.minimum(each, left - 1)
        keys = _keys(site, graph_id + first, index + first, row) if DROP else 0
        givens, changes, more = (), (), ()
        for j in tl.static_range(INTO):
            channel = _channels(j)
            given = _rows(e + first * E_ROW, row, channel, E_ROW, IN)
            if REMAKE:
                given = _updated(
                    given, _rows(before + first * IN, row, channel, IN, IN), channel,
                    _learned(gamma, beta, stats, channel, IN), (keys, scale, threshold), DROP,
                )  # fmt: skip
            givens += (factors(_rounded(given, du), EXACT),)
        for k in tl.static_range(BLOCKS):
            channel = _channels(k)[None, :, None]
            at = du + first * C + each[:, None, :] * C + channel
            change = tl.load(at, (each < left)[:, None, :] & (channel < C), other=0.0)
            changes += (change.to(tl.float32),)
            more += (totals[k] + _pair_sums(changes[k]),)
        sums, totals = _outer(sums, changes, givens, EXACT), more
    dw += tl.program_id(0).to(tl.int64) * dw_row
    db += tl.program_id(0).to(tl.int64) * db_row
    for k in tl.static_range(BLOCKS):
        out = _channels(k)
        for j in tl.static_range(INTO):
            into = _channels(j)[None, :]
            at = dw + out[:, None] * IN + into
            tl.store(at, tl.sum(sums[k * INTO + j], 0), (out < C)[:, None] & (into < IN))
        tl.store(db + out, tl.sum(tl.sum(totals[k], 2), 0), out < C)


# --- the edge states ------------------------------------------------------------------------------


@triton.jit
def _thread_sums(x):
    """[rows, channels] → [rows / 16, 8, channels]: sums of rows 8 apart, which one thread holds."""
    return tl.sum(tl.reshape(x, [x.shape[0] // 16, 2, 8, x.shape[1]]), 1)


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=["seed"])
def state_gradient_kernel(
    du, e_grad, weight, de, partial, ptr, nodes, edges,
    before, gamma, beta, stats, graph_id, index, seed, scale, threshold,
    IN: tl.constexpr, C: tl.constexpr, ROWS: tl.constexpr, BLOCK_IN: tl.constexpr,
    EXACT: tl.constexpr, E_GRAD: tl.constexpr, SLOPES: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """de = du W (+ what arrives at e), 0 in padded rows.

    With SLOPES, e comes from the norm of the layer before, whose u is ``before``: then also
    ``partial``, as ``slope_kernel`` would make it of de.
    """
    BLOCKS: tl.constexpr = (IN + STEP - 1) // STEP
    last = tl.load(ptr + nodes)
    site = _site_key(seed) if DROP else 0
    blocks = _map_blocks(weight, du, C, IN, IN, 1, EXACT)
    learned, along, total = (), (), ()
    for j in tl.static_range(BLOCKS):
        if SLOPES:
            learned += (_learned(gamma, beta, stats, _channels(j), IN),)
        along += (tl.zeros([ROWS // 16, 8, STEP], tl.float32),)
        total += (tl.zeros([ROWS // 16, 8, STEP], tl.float32),)
    begin, end = _share(tl.program_id(0), tl.num_programs(0), last, ROWS)
    # Stages that are told here, not at the launch, let all loads go ahead, not only the products'.
    for tile in tl.range(begin, end, num_stages=2):
        first = tl.cast(tile, tl.int64) * ROWS
        left = (last - first).to(tl.int32)
        real = tl.arange(0, ROWS) < left
        row = tl.minimum(tl.arange(0, ROWS), left - 1)
        keys = _keys(site, graph_id + first, index + first, row) if DROP else 0
        values, more_along, more_total = (), (), ()
        for j in tl.static_range(BLOCKS):
            if E_GRAD:
                values += (_rows(e_grad + first * IN, row, _channels(j), IN, IN),)
            else:
                values += (tl.zeros([ROWS, STEP], tl.float32),)
        values = _add_mapped(values, du + first * C, row, blocks, du, C, C, EXACT)
        for j in tl.static_range(BLOCKS):
            channel = _channels(j)
            _write(de + first * IN, values[j], row, real, channel, IN)
            if SLOPES:
                grad = tl.where(real[:, None], _rounded(values[j], de), 0.0)
                value = _rows(before + first * IN, row, channel, IN, IN)
                draw = (keys, scale, threshold)
                apart, slope = _slope(grad, value, channel, learned[j], draw, DROP)
                more_along += (along[j] + _thread_sums(slope * apart),)
                more_total += (total[j] + _thread_sums(slope),)
        if SLOPES:
            along, total = more_along, more_total
    if SLOPES:
        partial += tl.program_id(0) * 2 * IN
        for j in tl.static_range(BLOCKS):
            channel = _channels(j)
            tl.store(partial + channel, tl.sum(tl.sum(along[j], 0), 0), channel < IN)
            tl.store(partial + IN + channel, tl.sum(tl.sum(total[j], 0), 0), channel < IN)
    write_rest(de, de, last, edges, IN, BLOCK_IN, ROWS, False)
