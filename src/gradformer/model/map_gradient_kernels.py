"""The Triton kernel of what the gated convolution makes of du: gradients of its map and its edges.

Two programs walk over the same edges at the same time, one for each of them, so that what both
read comes from memory once. How programs share the edges is told in
:mod:`gradformer.model.edge_tile_kernels`, and how de = du W needs no passing from thread to thread
in :mod:`gradformer.model.edge_map_kernels`.

The same holds for dW = Σ du eᵀ. A product of tf32 takes rows c and c + 4 of every eight (c = 0..3),
channels r and r + 8 of STEP (r = 0..7), of both factors from thread 4r + c. Which row and which
channel is which is free to choose: the thread loads channels 2r and 2r + 1. Of a product it then
has channels 4c … 4c + 3 of e, and 2r and 2r + 1 of du. Each warp sums products of its own rows, and
leaves a piece.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.attention.product_kernels import add_factors, factors
from gradformer.model.edge_gradient_kernels import NUMBERS, _slope
from gradformer.model.edge_map_kernels import (
    _at,
    _block,
    _cut,
    _given,
    _map_parts,
    _put,
    _shared,
    _taken,
)
from gradformer.model.edge_tile_kernels import (
    STEP,
    _channels,
    _passed,
    _rounded,
    _share,
    _words,
    _zeros,
)
from gradformer.model.message_kernels import write_rest


@triton.jit
def _tile(tile, end, last, ROWS: tl.constexpr):
    """First row of a tile, and how many there are to the last one before tile ``end``."""
    first = tl.cast(tile, tl.int64) * ROWS
    stop = tl.maximum(tl.minimum(tl.cast(end, tl.int64) * ROWS, last), 1)
    return first, (stop - first).to(tl.int32)


# --- the map --------------------------------------------------------------------------------------
# A block of STEP channels of a tile of STEP · GROUPS rows is [4, 32 · GROUPS, 2]: at [c, (k, g, r),
# b] row 16 g + 4 k + c, channel 2 r + b, which are thread 4 r + c of warp g.


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
    word = tl.load(_words(passes, first + tl.minimum(row, left - 1), j, C))
    return tl.reshape(tl.broadcast_to(word[:, :, None], [4, 4 * GROUPS, 8]), [4, 32 * GROUPS, 1])


@triton.jit
def _change(value, channel, learned, word, scale, DROP: tl.constexpr):
    """drop(ReLU(γ ẑ + β)) of u, as it was."""
    apart = value - learned[0]
    value = apart * learned[1] + learned[2]
    if DROP:
        value *= scale
    return tl.where(_passed(apart, channel, learned, word, DROP), value, 0.0)


@triton.jit
def _asked(
    du, e, before, passes, tile, end, last,
    IN: tl.constexpr, C: tl.constexpr, E_ROW: tl.constexpr, GROUPS: tl.constexpr,
    REMAKE: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """Blocks of a tile's du, e and ``before``, and words of what passes."""
    SIZE: tl.constexpr = 32 * GROUPS
    first, left = _tile(tile, end, last, GROUPS * STEP)
    row = tl.minimum(_pair_rows(GROUPS), left - 1)
    changes, states, values, words = (), (), (), ()
    for k in tl.static_range((C + STEP - 1) // STEP):
        changes += (_pairs(du + first * C, row, k, SIZE, C, C),)
    for j in tl.static_range((IN + STEP - 1) // STEP):
        states += (_pairs(e + first * E_ROW, row, j, SIZE, E_ROW, IN),)
        if REMAKE:
            values += (_pairs(before + first * IN, row, j, SIZE, IN, IN),)
        if DROP:
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
            into = _channels(j)[None, None, :]
            value = tl.reshape(sums[k * INTO + j], [GROUPS, 2, 8, 2, 4, 2])
            value = tl.reshape(tl.trans(value, 0, 2, 1, 4, 5, 3), [8 * GROUPS, 2, STEP])
            inside = (out < C)[:, :, None] & (into < IN)
            tl.store(dw + out[:, :, None] * IN + into, value, inside)
        tl.store(db + out, tl.sum(totals[k], 0), out < C)


@triton.jit
def _weights(
    piece, pieces, last, du, e, dw, db, dw_row, db_row,
    before, gamma, beta, stats, passes, scale,
    IN: tl.constexpr, C: tl.constexpr, E_ROW: tl.constexpr, GROUPS: tl.constexpr,
    EXACT: tl.constexpr, REMAKE: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """GROUPS pieces of dW = Σ du eᵀ and db = Σ du; a tile is asked for one tile ahead."""
    BLOCKS: tl.constexpr = (C + STEP - 1) // STEP
    INTO: tl.constexpr = (IN + STEP - 1) // STEP
    SIZE: tl.constexpr = 32 * GROUPS
    sums, totals = (), ()
    for _ in tl.static_range(BLOCKS * INTO):
        sums += (tl.zeros([GROUPS, STEP, STEP], tl.float32),)
    for _ in tl.static_range(BLOCKS):
        totals += (tl.zeros([4, 8 * GROUPS, 2], tl.float32),)
    begin, end = _share(piece, pieces, last, GROUPS * STEP)
    asked = _asked(du, e, before, passes, begin, end, last, IN, C, E_ROW, GROUPS, REMAKE, DROP)
    for tile in range(begin, end):
        changes, states, values, words = asked
        asked = _asked(
            du, e, before, passes, tile + 1, end, last, IN, C, E_ROW, GROUPS, REMAKE, DROP
        )
        real = _pair_rows(GROUPS) < _tile(tile, end, last, GROUPS * STEP)[1]
        givens, found, more = (), (), ()
        for j in tl.static_range(INTO):
            state = states[j]
            if REMAKE:
                factor = _pair_row(gamma, j, SIZE, IN) * _pair_row(stats + IN, j, SIZE, IN)
                learned = _pair_row(stats, j, SIZE, IN), factor, _pair_row(beta, j, SIZE, IN)
                channel, word = _pair_channels(j, SIZE)[None, :, :], words[j] if DROP else 0
                state += _change(values[j], channel, learned, word, scale, DROP)
            givens += (factors(_right(_rounded(state, du), GROUPS), EXACT),)
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


# --- the edge states ------------------------------------------------------------------------------


@triton.jit
def _blocks(x, row, C: tl.constexpr):
    """Rows of x [·, C], in blocks of STEP channels."""
    found = ()
    for k in tl.static_range((C + STEP - 1) // STEP):
        found += (_block(_at(x, row, C), k, C),)
    return found


@triton.jit
def _halves(x):
    """[rows, channels] → [rows / 2, channels]: sums of two rows, which one thread holds."""
    return tl.sum(tl.reshape(x, [2, x.shape[0] // 2, x.shape[1]]), 0)


@triton.jit
def _states(
    piece, pieces, last, du, e_grad, weight, de, partial,
    before, gamma, beta, stats, passes, scale,
    IN: tl.constexpr, C: tl.constexpr, ROWS: tl.constexpr, BLOCK_IN: tl.constexpr,
    EXACT: tl.constexpr, E_GRAD: tl.constexpr, SLOPES: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """de = du W (+ what arrives at e) and with SLOPES ``partial``, one warp for every 16 of ROWS.

    A thread holds du that was asked for a tile ago. It asks for what else it needs while the
    products run, and for the next du after them.
    """
    WARPS: tl.constexpr = ROWS // 16
    INTO: tl.constexpr = (IN + STEP - 1) // STEP
    along, total = _zeros(ROWS // 2, INTO), _zeros(ROWS // 2, INTO)
    each = tl.arange(0, ROWS)
    begin, end = _share(piece, pieces, last, ROWS)
    first, left = _tile(begin, end, last, ROWS)
    row = tl.minimum(each, left - 1)
    changes = _blocks(du + first * C, row, C)
    parts = _map_parts(weight, du, BLOCK_IN, C, IN, IN, 1, EXACT)
    tl.debug_barrier()  # here, so that none is needed in the loop
    for tile in range(begin, end):
        first, left = _tile(tile, end, last, ROWS)
        row = tl.minimum(each, left - 1)
        arrived, states, words = (), (), ()
        if E_GRAD:
            arrived = _blocks(e_grad + first * IN, row, IN)
        if SLOPES:
            states = _blocks(before + first * IN, row, IN)
            for j in tl.static_range(INTO if DROP else 0):
                words += (tl.load(_words(passes, first + row, j, IN))[:, None],)
        values = tl.zeros([ROWS, BLOCK_IN], tl.float32)
        for k in tl.static_range(len(changes)):
            change = factors(_given(changes[k], WARPS), EXACT)
            values = add_factors(values, change, parts[k], EXACT)
        then, rest = _tile(tile + 1, end, last, ROWS)  # behind the end one row will do
        changes = _blocks(du + then * C, tl.minimum(each, rest - 1), C)
        found, more_along, more_total = _cut(values, BLOCK_IN), (), ()
        for j in tl.static_range(INTO):
            value = _taken(found[j], WARPS)
            if E_GRAD:
                value += arrived[j]
            _put(_at(de + first * IN, row, IN), value, j, IN)
            if SLOPES:
                grad = tl.where((each < left)[:, None], _rounded(value, de), 0.0)
                factor = _shared(gamma, j, IN) * _shared(stats + IN, j, IN)
                learned = _shared(stats, j, IN), factor, _shared(beta, j, IN)
                channel, word = _channels(j)[None, :], words[j] if DROP else 0
                apart, slope = _slope(grad, states[j], channel, learned, word, scale, DROP)
                more_along += (along[j] + _halves(slope * apart),)
                more_total += (total[j] + _halves(slope),)
        if SLOPES:
            along, total = more_along, more_total
    if SLOPES:
        partial += piece * 2 * IN
        for j in tl.static_range(INTO):
            channel = _channels(j)
            tl.store(partial + channel, tl.sum(along[j], 0), channel < IN)
            tl.store(partial + IN + channel, tl.sum(total[j], 0), channel < IN)


# --- both -----------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=NUMBERS)
def map_gradient_kernel(
    du, e, dw, db, dw_row, db_row, e_grad, weight, de, partial, ptr, nodes, edges,
    before, gamma, beta, stats, passes, scale,
    IN: tl.constexpr, C: tl.constexpr, E_ROW: tl.constexpr, GROUPS: tl.constexpr,
    BLOCK_IN: tl.constexpr, EXACT: tl.constexpr, REMAKE: tl.constexpr, STATES: tl.constexpr,
    E_GRAD: tl.constexpr, SLOPES: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """Pieces of dW = Σ du eᵀ and db = Σ du, whose rows are ``dw_row`` and ``db_row`` numbers apart,
    GROUPS a program, one a warp; and with STATES, by as many other programs, de = du W (+ what
    arrives at e).

    With REMAKE the edge states were not kept: they are made again of those ``e`` of the layer
    before, and of its u, ``before``. With SLOPES, e comes from the norm of the layer before, whose
    u is ``before``: then also ``partial``, as ``slope_kernel`` would make it of de. That layer
    reads no padded rows of de; without SLOPES they are 0.
    """
    last = tl.load(ptr + nodes)
    piece, pieces, state = tl.program_id(0), tl.num_programs(0), 0
    if STATES:
        piece, pieces = piece // 2, pieces // 2
        # The other way round in the second half: a core that has one of each gets both kinds.
        state = (tl.program_id(0) + 2 * piece // pieces) % 2
    if state == 0:
        _weights(
            piece, pieces, last, du, e, dw, db, dw_row, db_row,
            before, gamma, beta, stats, passes, scale,
            IN, C, E_ROW, GROUPS, EXACT, REMAKE, REMAKE and DROP,
        )  # fmt: skip
    elif STATES:
        _states(
            piece, pieces, last, du, e_grad, weight, de, partial,
            before, gamma, beta, stats, passes, scale,
            IN, C, GROUPS * STEP, BLOCK_IN, EXACT, E_GRAD, SLOPES, DROP,
        )  # fmt: skip
    if STATES and not SLOPES:
        write_rest(de, de, last, edges, IN, BLOCK_IN, GROUPS * STEP, False)
