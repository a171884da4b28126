"""Triton kernels of two linear maps with ReLU and dropout between them, and of their gradients.

What lies between the maps goes from one product to the next a block of 16 columns at a time; it is
stored once, for the way back, where it also says what ReLU and dropout kept.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.attention.draw_kernels import _keep, _row_keys
from gradformer.attention.product_kernels import add_factors, factors
from gradformer.model.linear_kernels import (
    BLOCK,
    _entries,
    _gradient_before,
    _held,
    _weight_tile,
    _zeros,
)


@triton.jit(do_not_specialize=["count", "threshold"], do_not_specialize_on_alignment=["seed"])
def feed_forward_kernel(
    x, w1, b1, w2, b2, inner, y, graph_id, index, seed, count, scale, threshold,
    IN: tl.constexpr, INNER: tl.constexpr, OUT: tl.constexpr, DRAW: tl.constexpr,
    EXACT: tl.constexpr, ROWS: tl.constexpr, BLOCKS: tl.constexpr, OUT_BLOCKS: tl.constexpr,
):  # fmt: skip
    """inner = [drop](ReLU(x W₁ᵀ + b₁)) and y = inner W₂ᵀ + b₂ of ROWS rows; grid (row tiles,)."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    given = _held(x, row, count, IN, BLOCKS, EXACT)
    if DRAW:
        graph = tl.load(graph_id + row, row < count, other=0)
        place = tl.load(index + row, row < count, other=0)
        keys = _row_keys(seed, graph, row * 0, place)[:, None]
    sums = _zeros(ROWS, OUT_BLOCKS)
    for start in range(0, INNER, BLOCK):
        middle = start + tl.arange(0, BLOCK)
        value = tl.zeros([ROWS, BLOCK], tl.float32)
        for k in tl.static_range(BLOCKS):
            weight = tl.trans(_entries(w1, middle, INNER, tl.arange(0, BLOCK) + k * BLOCK, IN))
            value = add_factors(value, given[k], factors(weight, EXACT), EXACT)
        value += tl.load(b1 + middle, middle < INNER, other=0.0)[None, :]
        value = tl.where(value <= 0.0, 0.0, value)  # NaN stays NaN
        if DRAW:
            value = tl.where(_keep(keys, middle[None, :], threshold), value * scale, 0.0)
        inside = (row < count)[:, None] & (middle < INNER)[None, :]
        tl.store(inner + row[:, None] * INNER + middle[None, :], value, inside)
        held = factors(value, EXACT)
        more = ()
        for k in tl.static_range(OUT_BLOCKS):
            weight = tl.trans(_entries(w2, tl.arange(0, BLOCK) + k * BLOCK, OUT, middle, INNER))
            more += (add_factors(sums[k], held, factors(weight, EXACT), EXACT),)
        sums = more
    for k in tl.static_range(OUT_BLOCKS):
        out = tl.arange(0, BLOCK) + k * BLOCK
        value = sums[k] + tl.load(b2 + out, out < OUT, other=0.0)[None, :]
        inside = (row < count)[:, None] & (out < OUT)[None, :]
        tl.store(y + row[:, None] * OUT + out[None, :], value, inside)


@triton.jit
def _input_tile(
    program, g, w1, w2, inner, passed, dx, count, scale,
    IN: tl.constexpr, INNER: tl.constexpr, OUT: tl.constexpr, PASSED: tl.constexpr,
    EXACT: tl.constexpr, ROWS: tl.constexpr, BLOCKS: tl.constexpr, OUT_BLOCKS: tl.constexpr,
):  # fmt: skip
    """ROWS rows of dx."""
    row = program * ROWS + tl.arange(0, ROWS)
    held = _held(g, row, count, OUT, OUT_BLOCKS, EXACT)
    sums = _zeros(ROWS, BLOCKS)
    for start in range(0, INNER, BLOCK):
        middle = start + tl.arange(0, BLOCK)
        tile = _gradient_before(
            held, w2, inner, row, count, middle, INNER, OUT, ROWS, BLOCK, OUT_BLOCKS, EXACT
        )
        tile = factors(tile, EXACT)
        more = ()
        for k in tl.static_range(BLOCKS):
            into = tl.arange(0, BLOCK) + k * BLOCK
            weight = factors(_entries(w1, middle, INNER, into, IN), EXACT)
            more += (add_factors(sums[k], tile, weight, EXACT),)
        sums = more
    for k in tl.static_range(BLOCKS):
        into = tl.arange(0, BLOCK) + k * BLOCK
        value = sums[k] * scale
        if PASSED:
            value += _entries(passed, row, count, into, IN)
        inside = (row < count)[:, None] & (into < IN)[None, :]
        tl.store(dx + row[:, None] * IN + into[None, :], value, inside)


@triton.jit(do_not_specialize=["count", "dx_programs", "dw_programs"])
def feed_forward_gradient_kernel(
    g, x, w1, w2, inner, passed, dx, dw1, db1, dw2, db2,
    count, dx_programs, dw_programs, scale, dw1_row, db1_row, dw2_row, db2_row,
    IN: tl.constexpr, INNER: tl.constexpr, OUT: tl.constexpr, PASSED: tl.constexpr,
    EXACT: tl.constexpr, ROWS: tl.constexpr, OUTS: tl.constexpr, BLOCKS: tl.constexpr,
    INNER_BLOCKS: tl.constexpr, OUT_BLOCKS: tl.constexpr, PIECE: tl.constexpr, TURN: tl.constexpr,
):  # fmt: skip
    """dx, and pieces of the gradients of both maps; see :func:`.linear_kernels.backward_kernel`."""
    program = tl.program_id(0)
    if program < dx_programs:
        _input_tile(
            program, g, w1, w2, inner, passed, dx, count, scale,
            IN, INNER, OUT, PASSED, EXACT, ROWS, BLOCKS, OUT_BLOCKS,
        )  # fmt: skip
    elif program < dx_programs + dw_programs:
        _weight_tile(
            program - dx_programs, g, w2, x, inner, dw1, db1, count, scale, dw1_row, db1_row,
            IN, INNER, OUT, True, True, EXACT, OUTS, BLOCKS, OUT_BLOCKS, PIECE, TURN,
        )  # fmt: skip
    else:
        _weight_tile(
            program - dx_programs - dw_programs, g, w2, inner, g, dw2, db2, count, 1.0,
            dw2_row, db2_row,
            INNER, OUT, 0, True, False, EXACT, OUTS, INNER_BLOCKS, 0, PIECE, TURN,
        )  # fmt: skip
