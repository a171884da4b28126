"""Gradients dW = Σ du eᵀ and db = Σ du of the gated convolution's map, inside a Triton kernel.

A product of tf32 takes rows c and c + 4 of every eight (c = 0..3), channels r and r + 8 of STEP
(r = 0..7), of both factors from thread 4r + c. Which row and which channel is which is free to
choose: the thread loads channels 2r and 2r + 1. Of a product it then has channels 4c … 4c + 3 of e,
and 2r and 2r + 1 of du. Nothing passes from thread to thread. Each warp sums products of its own
rows, and leaves a piece.

So a block of STEP channels of a tile of STEP · GROUPS rows is [4, 32 · GROUPS, 2]: at [c, (k, g,
r), b] row 16 g + 4 k + c, channel 2 r + b, which are thread 4 r + c of warp g.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.attention.kernels.products import add_factors, factors
from gradformer.model.kernels.edge_tiles import (
    STEP,
    block_channels,
    passes_through,
    rounded_as,
    share_of,
    tile_rows,
    words_at,
)


@triton.jit
def _pair_channels(k: tl.constexpr, SIZE: tl.constexpr):
    """Channels of block k, [SIZE, 2]."""
    return tl.arange(0, 2)[None, :] + (tl.arange(0, SIZE) % 8)[:, None] * 2 + k * STEP


@triton.jit
def _pairs(x, row, k: tl.constexpr, SIZE: tl.constexpr, X_ROW: tl.constexpr, C: tl.constexpr):
    """Block k of rows [4, SIZE, 1] of x [·, C], as float32 [4, SIZE, 2]."""
    channel = _pair_channels(k, SIZE)[None, :, :]
    if (C + STEP - 1) // STEP * STEP == C:
        value = tl.load(x + row * X_ROW + channel)
    else:
        value = tl.load(x + row * X_ROW + channel, channel < C, other=0.0)
    return value.to(tl.float32)


@triton.jit
def _pair_rows(GROUPS: tl.constexpr):
    """Rows of a tile, [4, 32 · GROUPS, 1]."""
    place = tl.arange(0, 32 * GROUPS)[None, :, None]
    row = place // 8 % GROUPS * STEP + place // (8 * GROUPS) * 4
    return row + tl.arange(0, 4)[:, None, None]


@triton.jit
def _pair_row(x, k: tl.constexpr, SIZE: tl.constexpr, C: tl.constexpr):
    """Block k of x [C], as float32 [SIZE, 2]."""
    channel = _pair_channels(k, 8)
    value = tl.load(x + channel, channel < C, other=0.0).to(tl.float32)
    return tl.reshape(tl.broadcast_to(value[None, :, :], [SIZE // 8, 8, 2]), [SIZE, 2])


@triton.jit
def _pair_words(passes, first, left, j: tl.constexpr, GROUPS: tl.constexpr, C: tl.constexpr):
    """Words of a tile's rows, [4, 32 · GROUPS, 1]; each is loaded once."""
    place = tl.arange(0, 4 * GROUPS)[None, :]
    row = place % GROUPS * STEP + place // GROUPS * 4 + tl.arange(0, 4)[:, None]
    word = tl.load(words_at(passes, first + tl.minimum(row, left - 1), j, C))
    return tl.reshape(tl.broadcast_to(word[:, :, None], [4, 4 * GROUPS, 8]), [4, 32 * GROUPS, 1])


@triton.jit
def _change(value, channel, learned, word, scale):
    """drop(ReLU(γ ẑ + β)) of u, as it was."""
    apart = value - learned[0]
    value = apart * learned[1] + learned[2]
    if word is not None:
        value *= scale
    return tl.where(passes_through(apart, channel, learned, word), value, 0.0)


@triton.jit
def _asked(
    du, e, before, passes, tile, end, last,
    IN: tl.constexpr, C: tl.constexpr, E_ROW: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """Blocks of a tile's du, e and ``before``, and words of what passes."""
    SIZE: tl.constexpr = 32 * GROUPS
    first, left = tile_rows(tile, end, last, GROUPS * STEP)
    row = tl.minimum(_pair_rows(GROUPS), left - 1)
    changes, states, values, words = (), (), (), ()
    for k in tl.static_range((C + STEP - 1) // STEP):
        changes += (_pairs(du + first * C, row, k, SIZE, C, C),)
    for j in tl.static_range((IN + STEP - 1) // STEP):
        states += (_pairs(e + first * E_ROW, row, j, SIZE, E_ROW, IN),)
        if before is not None:
            values += (_pairs(before + first * IN, row, j, SIZE, IN, IN),)
        if passes is not None:
            words += (_pair_words(passes, first, left, j, GROUPS, IN),)
    return changes, states, values, words


@triton.jit
def _left(x, GROUPS: tl.constexpr):
    """A block as left factor [groups, channels, rows]."""
    x = tl.trans(tl.reshape(x, [4, 4, GROUPS, 8, 2]), 2, 4, 3, 1, 0)
    return tl.reshape(x, [GROUPS, STEP, STEP])


@triton.jit
def _right(x, GROUPS: tl.constexpr):
    """A block as right factor [groups, rows, channels]."""
    x = tl.trans(tl.reshape(x, [4, 4, GROUPS, 8, 2]), 2, 1, 0, 4, 3)
    return tl.reshape(x, [GROUPS, STEP, STEP])


@triton.jit
def _leave(
    sums, totals, dw, db, dw_row, db_row, IN: tl.constexpr, C: tl.constexpr, GROUPS: tl.constexpr
):
    """Each warp's piece: sums [groups, STEP, STEP] of dW, totals [4, 8 · GROUPS, 2] of db."""
    INTO: tl.constexpr = len(sums) // len(totals)
    place = tl.arange(0, 8 * GROUPS)
    dw += (place // 8 * dw_row)[:, None, None]
    db += (place // 8 * db_row)[:, None]
    for k in tl.static_range(len(totals)):
        out = _pair_channels(k, 8 * GROUPS)
        for j in tl.static_range(INTO):
            into = block_channels(j)[None, None, :]
            value = tl.reshape(sums[k * INTO + j], [GROUPS, 2, 8, 2, 4, 2])
            value = tl.reshape(tl.trans(value, 0, 2, 1, 4, 5, 3), [8 * GROUPS, 2, STEP])
            inside = (out < C)[:, :, None] & (into < IN)
            tl.store(dw + out[:, :, None] * IN + into, value, inside)
        tl.store(db + out, tl.sum(totals[k], 0), out < C)


@triton.jit
def weight_pieces(
    piece, pieces, last, du, e, dw, db, dw_row, db_row,
    before, gamma, beta, stats, passes, scale,
    IN: tl.constexpr, C: tl.constexpr, E_ROW: tl.constexpr, GROUPS: tl.constexpr,
    EXACT: tl.constexpr,
):  # fmt: skip
    """GROUPS pieces of dW = Σ du eᵀ and db = Σ du; a tile is asked for one tile ahead.

    With ``before``, u of the layer before, e is what that layer was given.
    """
    BLOCKS: tl.constexpr = (C + STEP - 1) // STEP
    INTO: tl.constexpr = (IN + STEP - 1) // STEP
    SIZE: tl.constexpr = 32 * GROUPS
    sums, totals = (), ()
    for _ in tl.static_range(BLOCKS * INTO):
        sums += (tl.zeros([GROUPS, STEP, STEP], tl.float32),)
    for _ in tl.static_range(BLOCKS):
        totals += (tl.zeros([4, 8 * GROUPS, 2], tl.float32),)
    begin, end = share_of(piece, pieces, last, GROUPS * STEP)
    asked = _asked(du, e, before, passes, begin, end, last, IN, C, E_ROW, GROUPS)
    for tile in range(begin, end):
        changes, states, values, words = asked
        asked = _asked(du, e, before, passes, tile + 1, end, last, IN, C, E_ROW, GROUPS)
        real = _pair_rows(GROUPS) < tile_rows(tile, end, last, GROUPS * STEP)[1]
        givens, found, more = (), (), ()
        for j in tl.static_range(INTO):
            state = states[j]
            if before is not None:
                factor = _pair_row(gamma, j, SIZE, IN) * _pair_row(stats + IN, j, SIZE, IN)
                learned = _pair_row(stats, j, SIZE, IN), factor, _pair_row(beta, j, SIZE, IN)
                channel = _pair_channels(j, SIZE)[None, :, :]
                word = None
                if passes is not None:
                    word = words[j]
                state += _change(values[j], channel, learned, word, scale)
            givens += (factors(_right(rounded_as(state, du), GROUPS), EXACT),)
        for k in tl.static_range(BLOCKS):
            change = tl.where(real, changes[k], 0.0)
            more += (totals[k] + tl.sum(tl.reshape(change, [4, 4, 8 * GROUPS, 2]), 1),)
            change = factors(_left(change, GROUPS), EXACT)
            for j in tl.static_range(INTO):
                found += (add_factors(sums[k * INTO + j], change, givens[j], EXACT),)
        sums, totals = found, more
    dw += piece.to(tl.int64) * GROUPS * dw_row
    db += piece.to(tl.int64) * GROUPS * db_row
    _leave(sums, totals, dw, db, dw_row, db_row, IN, C, GROUPS)
