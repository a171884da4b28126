"""The Triton kernel that makes u of the gated convolution, the map of the edge states inside it.

Edge states are loaded, mapped on tensor cores, and stored without passing from thread to thread. Of
a block of STEP channels and 16 · warps rows, a thread loads and stores channels 4c … 4c + 3 (c =
0..3), of two rows. A product of tf32 takes columns c and c + 4 of every eight of its left factor
from it, and gives it columns 2c and 2c + 1, of two rows as well. Which column and which row is
which is free to choose: they are renamed such that these are the same numbers, and the map's with
them. So warps need not wait for each other.
"""

# mypy: ignore-errors
# Triton drops the branch of a constant ``if`` that is not taken, so both are written out:
# ruff: noqa: RET505
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.attention.kernels.draws import mix, site_key
from gradformer.attention.kernels.products import add_factors, factors
from gradformer.model.kernels.edge_tiles import (
    STEP,
    block_channels,
    rounded_as,
    share_of,
    store_passed,
    updated,
    words_at,
)
from gradformer.model.kernels.messages import write_rest

# --- names ----------------------------------------------------------------------------------------


@triton.jit
def renamed(x, WARPS: tl.constexpr):
    """A block as it is loaded, renamed for a product."""
    x = tl.reshape(x, [2, WARPS, 8, 4, 2, 2])
    return tl.reshape(tl.trans(x, 1, 0, 2, 4, 5, 3), [16 * WARPS, STEP])


@triton.jit
def renamed_back(x, WARPS: tl.constexpr):
    """A block of a product, renamed back."""
    x = tl.reshape(x, [WARPS, 2, 8, 2, 4, 2])
    return tl.reshape(tl.trans(x, 1, 0, 2, 4, 3, 5), [16 * WARPS, STEP])


# --- the map --------------------------------------------------------------------------------------


@triton.jit
def _map_part(
    matrix, like, block: tl.constexpr, SIZE: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr,
    IN_STEP: tl.constexpr, OUT_STEP: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """The map from a block of inputs to SIZE outputs, renamed, as factors of products."""
    into, onto = block_channels(block)[:, None], tl.arange(0, SIZE)[None, :]
    at = matrix + into * IN_STEP + onto * OUT_STEP
    part = tl.load(at, (into < IN) & (onto < OUT), other=0.0)
    part = tl.reshape(part, [4, 2, 2, SIZE // STEP, 4, 2, 2])
    part = tl.reshape(tl.trans(part, 1, 2, 0, 3, 5, 4, 6), [STEP, SIZE])
    return factors(rounded_as(part, like), EXACT)


@triton.jit
def map_parts(
    matrix, like, SIZE: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr,
    IN_STEP: tl.constexpr, OUT_STEP: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """All of M_io = matrix[i·IN_STEP + o·OUT_STEP], one part for each block of inputs."""
    parts = ()
    for i in tl.static_range((IN + STEP - 1) // STEP):
        parts += (_map_part(matrix, like, i, SIZE, IN, OUT, IN_STEP, OUT_STEP, EXACT),)
    return parts


@triton.jit
def _halves(x):
    """Left and right half of the columns of x."""
    return tl.split(tl.trans(tl.reshape(x, [x.shape[0], 2, x.shape[1] // 2]), 0, 2, 1))


@triton.jit
def cut(x, SIZE: tl.constexpr):
    """Columns of x, SIZE, in blocks of STEP, at most four: Triton knows recursion from 3.5 on."""
    if SIZE == STEP:
        return (x,)
    elif SIZE == 2 * STEP:
        return _halves(x)
    else:
        left, right = _halves(x)
        return _halves(left) + _halves(right)


# --- rows -----------------------------------------------------------------------------------------


@triton.jit
def rows_at(x, row, X_ROW: tl.constexpr):
    """Where the first block of some rows lies."""
    return x + row[:, None] * X_ROW + tl.arange(0, STEP)[None, :]


@triton.jit
def load_block(at, k: tl.constexpr, C: tl.constexpr):
    """Block k of rows, as float32."""
    if (C + STEP - 1) // STEP * STEP == C:
        value = tl.load(at + k * STEP)
    else:
        inside = (block_channels(k) < C)[None, :]
        value = tl.load(at + k * STEP, inside, other=0.0)
    return value.to(tl.float32)


@triton.jit
def load_shared(x, k: tl.constexpr, C: tl.constexpr):
    """Block k of x [C], as float32 [1, STEP]."""
    return load_block((x + tl.arange(0, STEP))[None, :], k, C)


@triton.jit
def store_block(at, value, k: tl.constexpr, C: tl.constexpr):
    """Block k of rows. Those that the last one stands in for write what it does."""
    value = value.to(at.dtype.element_ty)
    if (C + STEP - 1) // STEP * STEP == C:
        tl.store(at + k * STEP, value)
    else:
        tl.store(at + k * STEP, value, (block_channels(k) < C)[None, :])


@triton.jit
def _first(tile, last, ROWS: tl.constexpr):
    """First row of a tile. The last one ends with the last row, and may share some with others."""
    return tl.minimum(tl.cast(tile, tl.int64) * ROWS, tl.maximum(last - ROWS, 0))


@triton.jit
def _numbers(source, target, graph_id, index, first, row):
    onto, other = tl.load(target + first + row), tl.load(source + first + row)
    graph, place = onto, other
    if graph_id is not None:
        graph, place = tl.load(graph_id + first + row), tl.load(index + first + row)
    return onto, other, graph, place


# --- u --------------------------------------------------------------------------------------------


@triton.jit(
    do_not_specialize=["nodes", "edges", "threshold"], do_not_specialize_on_alignment=["seed"]
)
def map_kernel(
    e, weight, bias, terms, u, source, target, ptr, nodes, edges,
    new, before, gamma, beta, stats, passes, graph_id, index, seed, scale, threshold,
    IN: tl.constexpr, C: tl.constexpr, E_ROW: tl.constexpr, PADDING: tl.constexpr,
    ROWS: tl.constexpr, EXACT: tl.constexpr, BLOCK_IN: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """u_st = D_t + E_s + W e_st + b, for up to 64 channels; one warp for every 16 of ROWS.

    With ``new`` the edge states are not there yet: they are made of those ``e`` of the layer before
    and of its u, ``before``, and written as ``new``; with a dropout also ``passes``. With PADDING
    padded rows of u and ``new`` are 0.

    Block by block, a thread holds edge states that were asked for a tile ago; in their place it
    asks for D and E while the products run, and in the place of these for the next tile's states.
    """
    WARPS: tl.constexpr = ROWS // 16
    INS: tl.constexpr = (IN + STEP - 1) // STEP
    BLOCKS: tl.constexpr = (C + STEP - 1) // STEP
    last = tl.load(ptr + nodes)
    begin, end = share_of(tl.program_id(0), tl.num_programs(0), last, ROWS)
    row = tl.maximum(tl.minimum(tl.arange(0, ROWS), last - 1), 0)
    first = _first(begin, last, ROWS)
    numbers = _numbers(source, target, graph_id, index, first, row)
    e_rows, u_rows = (), ()
    for j in tl.static_range(INS):
        e_rows += (load_block(rows_at(e + first * E_ROW, row, E_ROW), j, IN),)
        if new is not None:
            u_rows += (load_block(rows_at(before + first * IN, row, IN), j, IN),)
    site = 0 if seed is None else site_key(seed)
    parts = map_parts(weight, terms, BLOCK_C, IN, C, 1, IN, EXACT)
    tl.debug_barrier()  # here, so that none is needed in the loop
    for tile in range(begin, end):
        first = _first(tile, last, ROWS)
        onto, other, graph, place = numbers
        keys = None
        if seed is not None:
            keys = mix(mix(site + graph.to(tl.uint32)) + place.to(tl.uint32))[:, None]
        values = tl.zeros([ROWS, BLOCK_C], tl.float32)
        d_rows, s_rows = (), ()
        d_at, s_at = rows_at(terms + C, onto, 4 * C), rows_at(terms + 3 * C, other, 4 * C)
        u_at = rows_at(u + first * C, row, C)
        new_at = None if new is None else rows_at(new + first * IN, row, IN)
        for j in tl.static_range(INS):
            state = e_rows[j]
            if new is not None:
                factor = load_shared(gamma, j, IN) * load_shared(stats + IN, j, IN)
                learned = load_shared(stats, j, IN), factor, load_shared(beta, j, IN)
                channel = block_channels(j)[None, :]
                state, passed = updated(state, u_rows[j], channel, learned, keys, scale, threshold)
                store_block(new_at, state, j, IN)
                if passes is not None:
                    store_passed(passed, words_at(passes, first + row, j, IN))
            if j < BLOCKS:
                d_rows += (load_block(d_at, j, C),)
                s_rows += (load_block(s_at, j, C),)
            left = factors(renamed(rounded_as(state, terms), WARPS), EXACT)
            values = add_factors(values, left, parts[j], EXACT)
        for k in tl.static_range(INS, BLOCKS):
            d_rows += (load_block(d_at, k, C),)
            s_rows += (load_block(s_at, k, C),)
        first = _first(tile + 1, last, ROWS)
        then = tl.where(tile + 1 < end, row, 0)  # behind the end one row will do
        numbers = _numbers(source, target, graph_id, index, first, then)
        e_at = rows_at(e + first * E_ROW, then, E_ROW)
        before_at = None if new is None else rows_at(before + first * IN, then, IN)
        found = cut(values, BLOCK_C)
        e_rows, u_rows = (), ()
        for k in tl.static_range(INS if INS > BLOCKS else BLOCKS):
            if k < BLOCKS:
                value = load_shared(bias, k, C) + renamed_back(found[k], WARPS)
                store_block(u_at, d_rows[k] + s_rows[k] + value, k, C)
            if k < INS:
                e_rows += (load_block(e_at, k, IN),)
                if new is not None:
                    u_rows += (load_block(before_at, k, IN),)
    if PADDING:
        write_rest(u, None, last, edges, C, BLOCK_C, ROWS)
        if new is not None:
            write_rest(new, None, last, edges, IN, BLOCK_IN, ROWS)
