"""A linear map with its ReLU and dropout: one kernel forward and one backward.

For a map of a few hundred rows cuBLAS takes three or four launches backward (two products, a sum
over split rows, the bias), which cost more than the work in them. Here one launch makes them all:
some programs own tiles of dx, the others tiles of dW with its share of db, each over some rows; the
pieces are added later: see :mod:`gradformer.model.pieces`. The plain version beside it is
:func:`gradformer.model.parts.linear` of the reference engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from gradformer.attention.draws import threshold
from gradformer.attention.fused import precision
from gradformer.model.linear_kernels import BLOCK, backward_kernel, forward_kernel
from gradformer.model.once import Gradients, once
from gradformer.model.pieces import Claim, claim

if TYPE_CHECKING:
    from gradformer.model.parts import Draw

ROWS = 32  # of a tile of y or dx
OUTS = 32  # rows of a tile of dW
TURN = 32  # rows of x that are summed over at a time for dW
FEW = 1024  # rows, up to which smaller tiles are done sooner than larger ones are less work


def _piece(count: int) -> int:
    """Rows of x over which one program sums for dW."""
    return 128 if count <= FEW else 256


def _blocks(count: int, columns: int) -> int:
    """Blocks of columns in a tile: so many that no tile is filled up with empty ones."""
    blocks = -(-columns // BLOCK.value)
    return next(n for n in ((2, 1) if count <= FEW else (4, 3, 2, 1)) if blocks % n == 0)


def _step(width: int) -> int:
    """Length of the products in one turn of a loop over this width."""
    return 16 if width % 32 else 32


def _tiles(count: int, columns: int) -> int:
    """Into which this many columns are shared out."""
    return -(-columns // (_blocks(count, columns) * BLOCK.value))


def _options(count: int, summed: int, columns: int) -> dict[str, Any]:
    """What tiles of so many rows and columns, of products of length ``summed``, have in common."""
    exact = precision() == "ieee"
    sizes = {"ROWS": ROWS, "BLOCKS": _blocks(count, columns), "STEP": _step(summed)}
    return {"EXACT": exact, **sizes, "num_warps": 2, "num_stages": 3}


def _forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool, draw: Draw | None
) -> Tensor:
    (count, width), out = x.shape, len(weight)
    y = x.new_empty(count, out)
    keys = (x, x, x) if draw is None else (draw.rows.graph_id, draw.rows.index, draw.seed)
    scale, bar = (1.0, 0) if draw is None else (draw.scale, threshold(draw.p))
    forward_kernel[(-(-count // ROWS), _tiles(count, out))](
        x, weight, x if bias is None else bias, y, *keys, count, scale, bar,
        IN=width, OUT=out, BIAS=bias is not None, RELU=relu, DRAW=draw is not None,
        **_options(count, width, out),
    )  # fmt: skip
    return y


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool, draw: Draw | None,
        room: Claim | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        y = _forward(x.contiguous(), weight.contiguous(), bias, relu, draw)
        ctx.room, ctx.scale = room, 1.0 if draw is None else draw.scale
        ctx.save_for_backward(x, weight, bias, y if relu else None)
        ctx.set_materialize_grads(False)
        return y, x

    @staticmethod
    @once("linear map")
    def backward(ctx: Any, grad: Tensor | None, passed: Tensor | None) -> Gradients:
        none = (None, None, None)
        if grad is None:
            return passed, None, None, *none
        x, weight, bias, y = ctx.saved_tensors
        x, grad = x.contiguous(), grad.contiguous()
        (count, width), out = x.shape, len(weight)
        piece = _piece(count)
        pieces = -(-count // piece)
        if ctx.room is None:
            dw = x.new_empty(pieces, out * (width + 1))
            db = dw[:, out * width :]
        else:
            dw, *rest = ctx.room.open(x.device)
            db = rest[0] if rest else dw
        dx = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        dx_programs = 0 if dx is None else -(-count // ROWS) * _tiles(count, width)
        dw_programs = pieces * -(-out // OUTS) * _tiles(count, width)
        backward_kernel[(dx_programs + dw_programs,)](
            grad, x, weight.contiguous(), grad if y is None else y,
            x if passed is None else passed.contiguous(), x if dx is None else dx, dw, db,
            count, dx_programs, ctx.scale, dw.stride(0), db.stride(0),
            IN=width, OUT=out, BIAS=bias is not None, RELU=y is not None, PASSED=passed is not None,
            OUTS=OUTS, PIECE=piece, TURN=TURN, **_options(count, out, width),
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
    room = claim(-(-len(x) // _piece(len(x))), layer.weight, layer.bias)
    found: tuple[Tensor, Tensor] = _Linear.apply(x, layer.weight, layer.bias, relu, draw, room)
    return found
