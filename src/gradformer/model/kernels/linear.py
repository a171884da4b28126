"""Triton kernels of a linear map with its ReLU and dropout, or of two, and of their gradients.

Columns come in blocks of 16, so that none are filled up where their number is a multiple of it; a
program makes several blocks from the same rows, whose halves for the products are taken once. What
is absent is None.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.attention.kernels.draws import is_kept, keys_of_rows
from gradformer.attention.kernels.products import add_factors, factors
from gradformer.model.kernels.edge_tiles import STEP as BLOCK
from gradformer.model.kernels.edge_tiles import zero_sums


@triton.jit
def _entries(x, row, rows, column, WIDTH: tl.constexpr):
    """x[row, column] of x [rows, WIDTH], 0 outside."""
    inside = (row < rows)[:, None] & (column < WIDTH)[None, :]
    return tl.load(x + row[:, None] * WIDTH + column[None, :], inside, other=0.0)


@triton.jit
def _output_tile(
    tile, x, w, b, y, graph_id, index, seed, count, scale, threshold,
    IN: tl.constexpr, OUT: tl.constexpr, RELU: tl.constexpr, EXACT: tl.constexpr,
    ROWS: tl.constexpr, BLOCKS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """BLOCKS blocks of ROWS rows of y = [drop]([ReLU](x Wᵀ + b))."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    first = tile * (BLOCKS * BLOCK) + tl.arange(0, BLOCK)
    sums = zero_sums(ROWS, BLOCKS)
    for start in range(0, IN, STEP):
        into = start + tl.arange(0, STEP)
        given = factors(_entries(x, row, count, into, IN), EXACT)
        more = ()
        for k in tl.static_range(BLOCKS):
            weight = tl.trans(_entries(w, first + k * BLOCK, OUT, into, IN))
            more += (add_factors(sums[k], given, factors(weight, EXACT), EXACT),)
        sums = more
    if seed is not None:
        graph = tl.load(graph_id + row, row < count, other=0)
        inner = tl.load(index + row, row < count, other=0)
        keys = keys_of_rows(seed, graph, row * 0, inner)[:, None]
    for k in tl.static_range(BLOCKS):
        out = first + k * BLOCK
        value = sums[k]
        if b is not None:
            value += tl.load(b + out, out < OUT, other=0.0)[None, :]
        if RELU:
            value = tl.where(value <= 0.0, 0.0, value)  # NaN stays NaN
        if seed is not None:
            value = tl.where(is_kept(keys, out[None, :], threshold), value * scale, 0.0)
        inside = (row < count)[:, None] & (out < OUT)[None, :]
        tl.store(y + row[:, None] * OUT + out[None, :], value, inside)


@triton.jit(do_not_specialize=["count", "threshold"], do_not_specialize_on_alignment=["seed"])
def forward_kernel(
    x, w, b, y, w2, b2, y2, graph_id, index, seed, count, scale, threshold,
    IN: tl.constexpr, OUT: tl.constexpr, OUT2: tl.constexpr, RELU: tl.constexpr,
    EXACT: tl.constexpr, ROWS: tl.constexpr, BLOCKS: tl.constexpr, BLOCKS2: tl.constexpr,
    STEP: tl.constexpr,
):  # fmt: skip
    """y = [drop]([ReLU](x Wᵀ + b)), and y₂ = x W₂ᵀ + b₂.

    Grid (row tiles, column tiles of y and y₂).
    """
    tile, tiles = tl.program_id(1), tl.cdiv(OUT, BLOCKS * BLOCK)
    if tile < tiles:
        _output_tile(
            tile, x, w, b, y, graph_id, index, seed, count, scale, threshold,
            IN, OUT, RELU, EXACT, ROWS, BLOCKS, STEP,
        )  # fmt: skip
    elif w2 is not None:
        _output_tile(
            tile - tiles, x, w2, b2, y2, None, None, None, count, scale, threshold,
            IN, OUT2, False, EXACT, ROWS, BLOCKS2, STEP,
        )  # fmt: skip


@triton.jit
def _gradient(g, y, row, count, out, OUT: tl.constexpr):
    """The gradient before ReLU and dropout but for a factor: y is positive where both kept."""
    tile = _entries(g, row, count, out, OUT)
    if y is not None:
        tile = tl.where(_entries(y, row, count, out, OUT) > 0.0, tile, 0.0)
    return tile


@triton.jit
def _input_sums(
    sums, g, w, y, row, first, count, IN: tl.constexpr, OUT: tl.constexpr, EXACT: tl.constexpr,
    BLOCKS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """sums + g W."""
    for start in range(0, OUT, STEP):
        out = start + tl.arange(0, STEP)
        tile = factors(_gradient(g, y, row, count, out, OUT), EXACT)
        more = ()
        for k in tl.static_range(BLOCKS):
            weight = factors(_entries(w, out, OUT, first + k * BLOCK, IN), EXACT)
            more += (add_factors(sums[k], tile, weight, EXACT),)
        sums = more
    return sums


@triton.jit
def _input_tile(
    program, g, w, y, g2, w2, passed, passed2, dx, count, scale,
    IN: tl.constexpr, OUT: tl.constexpr, OUT2: tl.constexpr, EXACT: tl.constexpr,
    ROWS: tl.constexpr, BLOCKS: tl.constexpr, STEP: tl.constexpr, STEP2: tl.constexpr,
):  # fmt: skip
    """BLOCKS blocks of ROWS rows of dx = g W + g₂ W₂ + what was ``passed``."""
    tiles = tl.cdiv(IN, BLOCKS * BLOCK)
    row = program // tiles * ROWS + tl.arange(0, ROWS)
    first = program % tiles * (BLOCKS * BLOCK) + tl.arange(0, BLOCK)
    sums = zero_sums(ROWS, BLOCKS)
    sums = _input_sums(sums, g, w, y, row, first, count, IN, OUT, EXACT, BLOCKS, STEP)
    if w2 is not None:
        sums = _input_sums(sums, g2, w2, None, row, first, count, IN, OUT2, EXACT, BLOCKS, STEP2)
    for k in tl.static_range(BLOCKS):
        into = first + k * BLOCK
        value = sums[k] * scale
        if passed is not None:
            value += _entries(passed, row, count, into, IN)
        if passed2 is not None:
            value += _entries(passed2, row, count, into, IN)
        inside = (row < count)[:, None] & (into < IN)[None, :]
        tl.store(dx + row[:, None] * IN + into[None, :], value, inside)


@triton.jit
def _weight_tile(
    program, g, x, y, dw, db, count, scale, dw_row, db_row,
    IN: tl.constexpr, OUT: tl.constexpr, EXACT: tl.constexpr, OUTS: tl.constexpr,
    BLOCKS: tl.constexpr, PIECE: tl.constexpr, TURN: tl.constexpr,
):  # fmt: skip
    """BLOCKS blocks of OUTS rows of dW = gᵀ x over PIECE rows, and their part of db = Σ g."""
    tiles = tl.cdiv(IN, BLOCKS * BLOCK)
    all_tiles = tl.cdiv(OUT, OUTS) * tiles
    piece = program // all_tiles
    program = program % all_tiles
    out = program // tiles * OUTS + tl.arange(0, OUTS)
    first = program % tiles * (BLOCKS * BLOCK) + tl.arange(0, BLOCK)
    sums = zero_sums(OUTS, BLOCKS)
    total = tl.zeros([TURN, OUTS], tl.float32)
    for start in range(piece * PIECE, tl.minimum((piece + 1) * PIECE, count), TURN):
        row = start + tl.arange(0, TURN)
        tile = _gradient(g, y, row, count, out, OUT)
        total += tile
        turned = factors(tl.trans(tile), EXACT)
        more = ()
        for k in tl.static_range(BLOCKS):
            given = factors(_entries(x, row, count, first + k * BLOCK, IN), EXACT)
            more += (add_factors(sums[k], turned, given, EXACT),)
        sums = more
    dw += piece.to(tl.int64) * dw_row
    for k in tl.static_range(BLOCKS):
        into = first + k * BLOCK
        inside = (out < OUT)[:, None] & (into < IN)[None, :]
        tl.store(dw + out[:, None] * IN + into[None, :], sums[k] * scale, inside)
    if db is not None:
        db += piece.to(tl.int64) * db_row
        tl.store(db + out, tl.sum(total, 0) * scale, (out < OUT) & (program % tiles == 0))


@triton.jit(do_not_specialize=["count", "dx_programs", "dw_programs"])
def backward_kernel(
    g, x, w, y, g2, w2, passed, passed2, dx, dw, db, dw2, db2,
    count, dx_programs, dw_programs, scale, dw_row, db_row, dw2_row, db2_row,
    IN: tl.constexpr, OUT: tl.constexpr, OUT2: tl.constexpr, EXACT: tl.constexpr,
    ROWS: tl.constexpr, OUTS: tl.constexpr, BLOCKS: tl.constexpr, PIECE: tl.constexpr,
    STEP: tl.constexpr, STEP2: tl.constexpr, TURN: tl.constexpr,
):  # fmt: skip
    """dx, and pieces of dW and db, whose rows are ``dw_row`` and ``db_row`` numbers apart.

    g, y [count, OUT], x, passed, dx [count, IN], w [OUT, IN]; g₂ and what belongs to it likewise;
    ``y`` is given where there is a ReLU, ``scale`` is that of the dropout.
    """
    program = tl.program_id(0)
    if program < dx_programs:
        _input_tile(
            program, g, w, y, g2, w2, passed, passed2, dx, count, scale,
            IN, OUT, OUT2, EXACT, ROWS, BLOCKS, STEP, STEP2,
        )  # fmt: skip
    elif program < dx_programs + dw_programs:
        _weight_tile(
            program - dx_programs, g, x, y, dw, db, count, scale, dw_row, db_row,
            IN, OUT, EXACT, OUTS, BLOCKS, PIECE, TURN,
        )  # fmt: skip
    elif w2 is not None:
        _weight_tile(
            program - dx_programs - dw_programs, g2, x, None, dw2, db2, count, scale,
            dw2_row, db2_row, IN, OUT2, EXACT, OUTS, BLOCKS, PIECE, TURN,
        )  # fmt: skip
