"""A linear map with its ReLU and dropout: one kernel forward and one backward.

For a map of a few hundred rows cuBLAS takes three or four launches backward (two products, a sum
over split rows, the bias), which cost more than the work in them. Here one launch makes them all:
some programs own tiles of dx, the others tiles of dW with its share of db, each over some rows; the
pieces are added later: see :mod:`gradformer.model.pieces`. The plain version beside it is
:func:`gradformer.model.parts.linear` of the reference engine.

Precision is the recipe's choice. For ``float32`` a product is the sum of three of tf32, which
tensor cores make with errors as small as those of float32 sums; for ``tf32`` it is one of them.
"""

# The kernel's arguments are untyped.
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from gradformer.attention.draw_kernels import _keep, _row_keys
from gradformer.attention.draws import threshold
from gradformer.attention.fused import precision
from gradformer.model.once import Gradients, once
from gradformer.model.pieces import Claim, claim

if TYPE_CHECKING:
    from gradformer.model.parts import Draw

FLOAT32 = "tf32x3"  # "ieee": multiply-adds of float32, without tensor cores


@dataclass(frozen=True)
class Tiles:
    """Shares of the work: they follow from the shape alone.

    Attributes:
        rows, cols: of a tile of dx.
        outs: rows of a tile of dW, whose columns are ``cols``.
        piece: rows of x over which one program sums for dW.
        step: length of the products in one turn of a loop.
    """

    rows: int
    cols: int
    outs: int
    piece: int
    step: int = 32

    @classmethod
    def of(cls, count: int, width: int) -> Tiles:
        few = count <= 1024
        cols = 32 if width <= 32 else 64
        return cls(rows=16 if few else 32, cols=cols, outs=32, piece=128 if count <= 4096 else 256)

    @property
    def options(self) -> dict[str, int]:
        names = {"ROWS": self.rows, "COLS": self.cols, "OUTS": self.outs}
        return {**names, "PIECE": self.piece, "STEP": self.step, "num_warps": 4, "num_stages": 3}


@triton.jit(do_not_specialize=["count", "threshold"], do_not_specialize_on_alignment=["seed"])
def forward_kernel(
    x, w, b, y, graph_id, index, seed, count, scale, threshold,
    IN: tl.constexpr, OUT: tl.constexpr, BIAS: tl.constexpr, RELU: tl.constexpr,
    DRAW: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """y = [drop]([ReLU](x Wᵀ + b)), a tile of it; grid (row tiles, column tiles)."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    acc = tl.zeros([ROWS, COLS], tl.float32)
    for start in range(0, IN, STEP):
        ins = start + tl.arange(0, STEP)
        known = (rows < count)[:, None] & (ins < IN)[None, :]
        given = tl.load(x + rows[:, None] * IN + ins[None, :], known, other=0.0)
        known = (cols < OUT)[:, None] & (ins < IN)[None, :]
        weight = tl.load(w + cols[:, None] * IN + ins[None, :], known, other=0.0)
        acc = tl.dot(given, tl.trans(weight), acc, input_precision=PRECISION)
    if BIAS:
        acc += tl.load(b + cols, cols < OUT, other=0.0)[None, :]
    if RELU:
        acc = tl.where(acc <= 0.0, 0.0, acc)  # NaN stays NaN
    if DRAW:
        graph = tl.load(graph_id + rows, rows < count, other=0)
        inner = tl.load(index + rows, rows < count, other=0)
        kept = _keep(_row_keys(seed, graph, rows * 0, inner)[:, None], cols[None, :], threshold)
        acc = tl.where(kept, acc * scale, 0.0)
    inside = (rows < count)[:, None] & (cols < OUT)[None, :]
    tl.store(y + rows[:, None] * OUT + cols[None, :], acc, inside)


@triton.jit
def _gradient(g, y, rows, cols, count, scale, OUT: tl.constexpr, RELU: tl.constexpr):
    """Tile [rows, cols] of the gradient before ReLU and dropout: y is positive where both kept."""
    inside = (rows < count)[:, None] & (cols < OUT)[None, :]
    at = rows[:, None] * OUT + cols[None, :]
    tile = tl.load(g + at, inside, other=0.0)
    if RELU:
        tile = tl.where(tl.load(y + at, inside, other=0.0) > 0.0, tile * scale, 0.0)
    return tile


@triton.jit
def _input_tile(
    program, g, w, y, passed, dx, count, scale,
    IN: tl.constexpr, OUT: tl.constexpr, RELU: tl.constexpr, PASSED: tl.constexpr,
    PRECISION: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """ROWS × COLS entries of dx = g W + passed."""
    tiles = tl.cdiv(IN, COLS)
    rows = program // tiles * ROWS + tl.arange(0, ROWS)
    cols = program % tiles * COLS + tl.arange(0, COLS)
    inside = (rows < count)[:, None] & (cols < IN)[None, :]
    at = rows[:, None] * IN + cols[None, :]
    acc = tl.zeros([ROWS, COLS], tl.float32)
    if PASSED:
        acc += tl.load(passed + at, inside, other=0.0)
    for start in range(0, OUT, STEP):
        outs = start + tl.arange(0, STEP)
        tile = _gradient(g, y, rows, outs, count, scale, OUT, RELU)
        known = (outs < OUT)[:, None] & (cols < IN)[None, :]
        weight = tl.load(w + outs[:, None] * IN + cols[None, :], known, other=0.0)
        acc = tl.dot(tile, weight, acc, input_precision=PRECISION)
    tl.store(dx + at, acc, inside)


@triton.jit
def _weight_tile(
    program, g, x, y, dw, db, count, scale, dw_row, db_row,
    IN: tl.constexpr, OUT: tl.constexpr, BIAS: tl.constexpr, RELU: tl.constexpr,
    PRECISION: tl.constexpr,
    COLS: tl.constexpr, OUTS: tl.constexpr, PIECE: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """OUTS × COLS entries of dW = gᵀ x over PIECE rows, and its part of db = Σ g."""
    tiles = tl.cdiv(IN, COLS)
    all_tiles = tl.cdiv(OUT, OUTS) * tiles
    piece = program // all_tiles
    program = program % all_tiles
    outs = program // tiles * OUTS + tl.arange(0, OUTS)
    cols = program % tiles * COLS + tl.arange(0, COLS)
    acc = tl.zeros([OUTS, COLS], tl.float32)
    total = tl.zeros([OUTS], tl.float32)
    for start in range(0, PIECE, STEP):
        rows = piece * PIECE + start + tl.arange(0, STEP)
        tile = _gradient(g, y, rows, outs, count, scale, OUT, RELU)
        known = (rows < count)[:, None] & (cols < IN)[None, :]
        given = tl.load(x + rows[:, None] * IN + cols[None, :], known, other=0.0)
        acc = tl.dot(tl.trans(tile), given, acc, input_precision=PRECISION)
        total += tl.sum(tile, 0)
    dw += piece.to(tl.int64) * dw_row
    inside = (outs < OUT)[:, None] & (cols < IN)[None, :]
    tl.store(dw + outs[:, None] * IN + cols[None, :], acc, inside)
    if BIAS:
        db += piece.to(tl.int64) * db_row
        tl.store(db + outs, total, (outs < OUT) & (program % tiles == 0))


@triton.jit(do_not_specialize=["count", "dx_programs"])
def backward_kernel(
    g, x, w, y, passed, dx, dw, db, count, dx_programs, scale, dw_row, db_row,
    IN: tl.constexpr, OUT: tl.constexpr, BIAS: tl.constexpr, RELU: tl.constexpr,
    PASSED: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, OUTS: tl.constexpr,
    PIECE: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """dx, and pieces of dW and db, whose rows are ``dw_row`` and ``db_row`` numbers apart.

    g, y [count, OUT], x, passed, dx [count, IN], w [OUT, IN].
    """
    program = tl.program_id(0)
    if program < dx_programs:
        _input_tile(
            program, g, w, y, passed, dx, count, scale,
            IN, OUT, RELU, PASSED, PRECISION, ROWS, COLS, STEP,
        )  # fmt: skip
    else:
        _weight_tile(
            program - dx_programs, g, x, y, dw, db, count, scale, dw_row, db_row,
            IN, OUT, BIAS, RELU, PRECISION, COLS, OUTS, PIECE, STEP,
        )  # fmt: skip


def _precision() -> str:
    return FLOAT32 if precision() == "ieee" else precision()


def _forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool, draw: Draw | None, tiles: Tiles
) -> Tensor:
    (count, width), out = x.shape, len(weight)
    y = x.new_empty(count, out)
    cols = 32 if out <= 32 else 64
    keys = (x, x, x) if draw is None else (draw.rows.graph_id, draw.rows.index, draw.seed)
    scale, bar = (1.0, 0) if draw is None else (draw.scale, threshold(draw.p))
    forward_kernel[(-(-count // tiles.rows), -(-out // cols))](
        x, weight, x if bias is None else bias, y, *keys, count, scale, bar,
        IN=width, OUT=out, BIAS=bias is not None, RELU=relu, DRAW=draw is not None,
        PRECISION=_precision(),
        ROWS=tiles.rows, COLS=cols, STEP=tiles.step, num_warps=4, num_stages=3,
    )  # fmt: skip
    return y


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool, draw: Draw | None,
        tiles: Tiles, room: Claim | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        y = _forward(x.contiguous(), weight.contiguous(), bias, relu, draw, tiles)
        ctx.tiles, ctx.room, ctx.scale = tiles, room, 1.0 if draw is None else draw.scale
        ctx.save_for_backward(x, weight, bias, y if relu else None)
        ctx.set_materialize_grads(False)
        return y, x

    @staticmethod
    @once("linear map")
    def backward(ctx: Any, grad: Tensor | None, passed: Tensor | None) -> Gradients:
        none = (None, None, None, None)
        if grad is None:
            return passed, None, None, *none
        x, weight, bias, y = ctx.saved_tensors
        tiles = ctx.tiles
        x, grad = x.contiguous(), grad.contiguous()
        (count, width), out = x.shape, len(weight)
        pieces = -(-count // tiles.piece)
        if ctx.room is None:
            dw = x.new_empty(pieces, out * (width + 1))
            db = dw[:, out * width :]
        else:
            dw, *rest = ctx.room.open(x.device)
            db = rest[0] if rest else dw
        dx = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        in_tiles = -(-width // tiles.cols)
        dx_programs = 0 if dx is None else -(-count // tiles.rows) * in_tiles
        dw_programs = pieces * -(-out // tiles.outs) * in_tiles
        backward_kernel[(dx_programs + dw_programs,)](
            grad, x, weight.contiguous(), grad if y is None else y,
            x if passed is None else passed.contiguous(), x if dx is None else dx, dw, db,
            count, dx_programs, ctx.scale, dw.stride(0), db.stride(0),
            IN=width, OUT=out, BIAS=bias is not None, RELU=y is not None, PASSED=passed is not None,
            PRECISION=_precision(), **tiles.options,
        )  # fmt: skip
        if ctx.room is not None:
            return dx, None, None, *none
        weights, biases = dw.sum(0).split([out * width, out])
        return dx, weights.view_as(weight), None if bias is None else biases, *none


def fused_linear(
    x: Tensor, layer: nn.Linear, relu: bool = False, draw: Draw | None = None
) -> tuple[Tensor, Tensor]:
    """Dropout(ReLU(x Wᵀ + b)) and x, of x [rows, in]; meant for some thousand rows.

    The gradient of what is done with the x given back is added to its gradient here.
    """
    tiles = Tiles.of(*x.shape)
    room = claim(-(-len(x) // tiles.piece), layer.weight, layer.bias)
    found: tuple[Tensor, Tensor] = _Linear.apply(
        x, layer.weight, layer.bias, relu, draw, tiles, room
    )
    return found
