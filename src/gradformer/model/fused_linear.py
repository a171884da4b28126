"""A linear map with its ReLU whose backward pass is one kernel.

cuBLAS makes the forward product well; backward it takes three or four launches for every map of a
few hundred rows (two products, a sum over split rows, the bias), which cost more than the work in
them. Here one launch makes them all: some programs own tiles of dx, the others tiles of dW with its
piece of db, each over a few hundred rows; the pieces are then added in order. The plain version
beside it is ``linear(x).relu()``.
"""

# The kernel's arguments are untyped.
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gradformer.attention.fused import precision
from gradformer.errors import ConfigError

ROWS, WIDE, THIN = 32, 64, 16
PIECE = 256  # rows that one program sums over


@triton.jit
def _gradient(g, y, rows, cols, count, OUT: tl.constexpr, RELU: tl.constexpr):
    """Tile [rows, cols] of the gradient before the ReLU."""
    inside = (rows < count)[:, None] & (cols < OUT)[None, :]
    at = rows[:, None] * OUT + cols[None, :]
    tile = tl.load(g + at, inside, other=0.0)
    if RELU:
        tile = tl.where(tl.load(y + at, inside, other=0.0) > 0.0, tile, 0.0)
    return tile


@triton.jit
def _input_tile(
    program, g, w, y, dx, count, in_tiles,
    IN: tl.constexpr, OUT: tl.constexpr, RELU: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """ROWS × WIDE entries of dx = g W."""
    rows = program // in_tiles * ROWS + tl.arange(0, ROWS)
    cols = program % in_tiles * WIDE + tl.arange(0, WIDE)
    acc = tl.zeros([ROWS, WIDE], tl.float32)
    for start in range(0, OUT, WIDE):
        outs = start + tl.arange(0, WIDE)
        tile = _gradient(g, y, rows, outs, count, OUT, RELU)
        inside = (outs < OUT)[:, None] & (cols < IN)[None, :]
        weight = tl.load(w + outs[:, None] * IN + cols[None, :], inside, other=0.0)
        acc = tl.dot(tile, weight, acc, input_precision=PRECISION)
    inside = (rows < count)[:, None] & (cols < IN)[None, :]
    tl.store(dx + rows[:, None] * IN + cols[None, :], acc.to(dx.dtype.element_ty), inside)


@triton.jit
def _weight_tile(
    program, g, x, y, sums, count,
    IN: tl.constexpr, OUT: tl.constexpr, RELU: tl.constexpr, PRECISION: tl.constexpr,
    WIDE: tl.constexpr, THIN: tl.constexpr, PIECE: tl.constexpr,
):  # fmt: skip
    """THIN × THIN entries of dW = gᵀ x over PIECE rows; sums is [pieces, OUT·IN + OUT], db last."""
    tiles = tl.cdiv(IN, THIN)
    all_tiles = tl.cdiv(OUT, THIN) * tiles
    piece = program // all_tiles
    program = program % all_tiles
    outs = program // tiles * THIN + tl.arange(0, THIN)
    cols = program % tiles * THIN + tl.arange(0, THIN)
    acc = tl.zeros([THIN, THIN], tl.float32)
    total = tl.zeros([THIN], tl.float32)
    for start in range(0, PIECE, WIDE):
        rows = piece * PIECE + start + tl.arange(0, WIDE)
        tile = _gradient(g, y, rows, outs, count, OUT, RELU)
        inside = (rows < count)[:, None] & (cols < IN)[None, :]
        given = tl.load(x + rows[:, None] * IN + cols[None, :], inside, other=0.0)
        acc = tl.dot(tl.trans(tile), given, acc, input_precision=PRECISION)
        total += tl.sum(tile.to(tl.float32), 0)
    sums += piece * OUT * (IN + 1)
    inside = (outs < OUT)[:, None] & (cols < IN)[None, :]
    tl.store(sums + outs[:, None] * IN + cols[None, :], acc, inside)
    tl.store(sums + OUT * IN + outs, total, (outs < OUT) & (program % tiles == 0))


@triton.jit
def backward_kernel(
    g, x, w, y, dx, sums, count, dx_programs, in_tiles,
    IN: tl.constexpr, OUT: tl.constexpr, RELU: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, WIDE: tl.constexpr, THIN: tl.constexpr, PIECE: tl.constexpr,
):  # fmt: skip
    """dx, and pieces of dW and db; g [count, OUT], x [count, IN], w [OUT, IN]."""
    program = tl.program_id(0)
    if program < dx_programs:
        _input_tile(program, g, w, y, dx, count, in_tiles, IN, OUT, RELU, PRECISION, ROWS, WIDE)
    else:
        program -= dx_programs
        _weight_tile(program, g, x, y, sums, count, IN, OUT, RELU, PRECISION, WIDE, THIN, PIECE)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
        if relu and bias is not None and x.is_cuda:  # the product's own epilogue
            y = torch._addmm_activation(bias, x, weight.t())
        else:
            y = torch.nn.functional.linear(x, weight, bias)
            y = y.relu_() if relu else y
        ctx.save_for_backward(x, weight, y if relu else None)
        ctx.bias = bias is not None
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None, None]:  # type: ignore[override]
        if torch.is_grad_enabled() and grad.requires_grad:
            raise ConfigError(
                "the fused linear map has no second derivative; use the reference engine for it: "
                "with gradformer.use_engine('reference'): …"
            )
        x, weight, y = ctx.saved_tensors
        x, grad = x.contiguous(), grad.contiguous()
        (count, width), out = x.shape, len(weight)
        need = ctx.needs_input_grad[0]
        dx = torch.empty_like(x) if need else None
        pieces = -(-count // PIECE)
        sums = torch.empty(pieces, out * (width + 1), dtype=torch.float32, device=x.device)
        in_tiles = -(-width // WIDE)
        dx_programs = -(-count // ROWS) * in_tiles if need else 0
        dw_programs = pieces * -(-out // THIN) * -(-width // THIN)
        backward_kernel[(dx_programs + dw_programs,)](
            grad, x, weight.contiguous(), grad if y is None else y, x if dx is None else dx, sums,
            count, dx_programs, in_tiles,
            IN=width, OUT=out, RELU=y is not None, PRECISION=precision(),
            ROWS=ROWS, WIDE=WIDE, THIN=THIN, PIECE=PIECE, num_warps=4, num_stages=3,
        )  # fmt: skip
        dw, db = sums.sum(0).to(weight.dtype).split([out * width, out])
        return dx, dw.view(out, width), db if ctx.bias else None, None


def fused_linear(x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool = False) -> Tensor:
    """[ReLU](x Wᵀ + b) of x [rows, in]; meant for some thousand rows."""
    y: Tensor = _Linear.apply(x, weight, bias, relu)
    return y
