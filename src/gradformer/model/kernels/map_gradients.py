"""The Triton kernel of what the gated convolution makes of du: gradients of its map and its edges.

Two programs walk over the same edges at the same time, one for each of them, so that what both
read comes from memory once. The map's half is :mod:`.map_weights`. How programs share the edges is
told in :mod:`.edge_tiles`, and how de = du W needs no passing from thread to thread in
:mod:`.edge_map`.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.attention.kernels.products import add_factors, factors
from gradformer.model.kernels.edge_gradients import NUMBERS, slope_of
from gradformer.model.kernels.edge_map import (
    cut,
    load_block,
    load_shared,
    map_parts,
    renamed,
    renamed_back,
    rows_at,
    store_block,
)
from gradformer.model.kernels.edge_tiles import (
    STEP,
    block_channels,
    rounded_as,
    share_of,
    tile_rows,
    words_at,
    zero_sums,
)
from gradformer.model.kernels.map_weights import weight_pieces
from gradformer.model.kernels.messages import write_rest


@triton.jit
def _blocks(x, row, C: tl.constexpr):
    """Rows of x [·, C], in blocks of STEP channels."""
    found = ()
    for k in tl.static_range((C + STEP - 1) // STEP):
        found += (load_block(rows_at(x, row, C), k, C),)
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
    EXACT: tl.constexpr,
):  # fmt: skip
    """de = du W (+ what arrives at e), and ``partial``, one warp for every 16 of ROWS.

    A thread holds du that was asked for a tile ago. It asks for what else it needs while the
    products run, and for the next du after them.
    """
    WARPS: tl.constexpr = ROWS // 16
    INTO: tl.constexpr = (IN + STEP - 1) // STEP
    along, total = zero_sums(ROWS // 2, INTO), zero_sums(ROWS // 2, INTO)
    each = tl.arange(0, ROWS)
    begin, end = share_of(piece, pieces, last, ROWS)
    first, left = tile_rows(begin, end, last, ROWS)
    row = tl.minimum(each, left - 1)
    changes = _blocks(du + first * C, row, C)
    parts = map_parts(weight, du, BLOCK_IN, C, IN, IN, 1, EXACT)
    tl.debug_barrier()  # here, so that none is needed in the loop
    for tile in range(begin, end):
        first, left = tile_rows(tile, end, last, ROWS)
        row = tl.minimum(each, left - 1)
        arrived, states, words = (), (), ()
        if e_grad is not None:
            arrived = _blocks(e_grad + first * IN, row, IN)
        if partial is not None:
            states = _blocks(before + first * IN, row, IN)
            for j in tl.static_range(0 if passes is None else INTO):
                words += (tl.load(words_at(passes, first + row, j, IN))[:, None],)
        values = tl.zeros([ROWS, BLOCK_IN], tl.float32)
        for k in tl.static_range(len(changes)):
            change = factors(renamed(changes[k], WARPS), EXACT)
            values = add_factors(values, change, parts[k], EXACT)
        then, rest = tile_rows(tile + 1, end, last, ROWS)  # behind the end one row will do
        changes = _blocks(du + then * C, tl.minimum(each, rest - 1), C)
        found, more_along, more_total = cut(values, BLOCK_IN), (), ()
        for j in tl.static_range(INTO):
            value = renamed_back(found[j], WARPS)
            if e_grad is not None:
                value += arrived[j]
            store_block(rows_at(de + first * IN, row, IN), value, j, IN)
            if partial is not None:
                grad = tl.where((each < left)[:, None], rounded_as(value, de), 0.0)
                factor = load_shared(gamma, j, IN) * load_shared(stats + IN, j, IN)
                learned = load_shared(stats, j, IN), factor, load_shared(beta, j, IN)
                channel = block_channels(j)[None, :]
                word = None
                if passes is not None:
                    word = words[j]
                apart, slope = slope_of(grad, states[j], channel, learned, word, scale)
                more_along += (along[j] + _halves(slope * apart),)
                more_total += (total[j] + _halves(slope),)
        if partial is not None:
            along, total = more_along, more_total
    if partial is not None:
        partial += piece * 2 * IN
        for j in tl.static_range(INTO):
            channel = block_channels(j)
            tl.store(partial + channel, tl.sum(along[j], 0), channel < IN)
            tl.store(partial + IN + channel, tl.sum(total[j], 0), channel < IN)


@triton.jit(do_not_specialize=NUMBERS)
def map_gradient_kernel(
    du, e, dw, db, dw_row, db_row, e_grad, weight, de, partial, ptr, nodes, edges,
    before, gamma, beta, stats, passes, scale,
    IN: tl.constexpr, C: tl.constexpr, E_ROW: tl.constexpr, GROUPS: tl.constexpr,
    BLOCK_IN: tl.constexpr, EXACT: tl.constexpr, REMAKE: tl.constexpr,
):  # fmt: skip
    """Pieces of dW = Σ du eᵀ and db = Σ du, whose rows are ``dw_row`` and ``db_row`` numbers apart,
    GROUPS a program, one a warp; and, by as many other programs, de = du W (+ what arrives at e)
    where it is asked for.

    With REMAKE the edge states were not kept: they are made again of those ``e`` of the layer
    before, and of its u, ``before``. With ``partial``, e comes from the norm of the layer before,
    whose u is ``before``: it is made as ``slope_kernel`` would make it of de. That layer reads no
    padded rows of de; without ``partial`` they are 0.
    """
    last = tl.load(ptr + nodes)
    piece, pieces, state = tl.program_id(0), tl.num_programs(0), 0
    if de is not None:
        piece, pieces = piece // 2, pieces // 2
        # The other way round in the second half: a core that has one of each gets both kinds.
        state = (tl.program_id(0) + 2 * piece // pieces) % 2
    if state == 0:
        weight_pieces(
            piece, pieces, last, du, e, dw, db, dw_row, db_row,
            before if REMAKE else None, gamma, beta, stats, passes if REMAKE else None, scale,
            IN, C, E_ROW, GROUPS, EXACT,
        )  # fmt: skip
    elif de is not None:
        _states(
            piece, pieces, last, du, e_grad, weight, de, partial,
            before, gamma, beta, stats, passes, scale,
            IN, C, GROUPS * STEP, BLOCK_IN, EXACT,
        )  # fmt: skip
    if de is not None and partial is None:
        write_rest(de, None, last, edges, IN, BLOCK_IN, GROUPS * STEP)
