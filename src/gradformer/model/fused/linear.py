"""A linear map with its ReLU and dropout, or two of the same rows: one kernel each way.

For a map of a few hundred rows cuBLAS takes three or four launches backward (two products, a sum
over split rows, the bias), which cost more than the work in them. Here one launch makes them all:
some programs own tiles of dx, the others tiles of dW with its share of db, each over some rows; the
pieces are added later: see :mod:`.pieces`. The plain version is
:func:`gradformer.model.maps.linear_and_input` of the reference engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from gradformer.attention.draws import threshold
from gradformer.attention.kernels.once import Gradients, once
from gradformer.attention.kernels.tiles import precision
from gradformer.model.fused.pieces import Claim, claim, open_map, sum_map
from gradformer.model.kernels.edge_tiles import STEP as BLOCK
from gradformer.model.kernels.linear import backward_kernel, forward_kernel

if TYPE_CHECKING:
    from gradformer.model.parts import Draw

Maps = list[tuple[Tensor, Tensor | None]]  # one or two: weight [out, in], bias [out]

ROWS = 32  # of a tile of y or dx
OUTS = 32  # rows of a tile of dW
TURN = 32  # rows of x that are summed over at a time for dW
FEW = 1024  # rows, up to which smaller tiles are done sooner than larger ones are less work


def piece_of(count: int) -> int:
    """Rows of x over which one program sums for dW."""
    return 128 if count <= FEW else 256


def blocks_of(count: int, columns: int) -> int:
    """Blocks of columns in a tile: so many that no tile is filled up with empty ones."""
    blocks = -(-columns // BLOCK.value)
    return next(n for n in ((2, 1) if count <= FEW else (4, 3, 2, 1)) if blocks % n == 0)


def _step(width: int) -> int:
    """Length of the products in one turn of a loop over this width."""
    return 16 if width % 32 else 32


def tiles_of(count: int, columns: int) -> int:
    """Into which this many columns are shared out."""
    return -(-columns // (blocks_of(count, columns) * BLOCK.value))


def _options(count: int, summed: int, columns: int) -> dict[str, Any]:
    """What tiles of so many rows and columns, of products of length ``summed``, have in common."""
    exact = precision() == "ieee"
    sizes = {"ROWS": ROWS, "BLOCKS": blocks_of(count, columns), "STEP": _step(summed)}
    return {"EXACT": exact, **sizes, "num_warps": 2}


class _Linear(torch.autograd.Function):
    """(x, weight and bias of one map or two) → y of each, x, x."""

    @staticmethod
    def forward(
        ctx: Any, relu: bool, draw: Draw | None, rooms: list[Claim | None], x: Tensor,
        *parameters: Tensor | None,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        given, maps, (count, width) = x.contiguous(), _maps(parameters), x.shape
        first, second = (*maps, (None, None))[:2]
        outs = [len(weight) for weight, _ in maps]
        y = [x.new_empty(count, out) for out in outs]
        keys = (None,) * 3 if draw is None else (draw.rows.graph_id, draw.rows.index, draw.seed)
        scale, bar = (1.0, 0) if draw is None else (draw.scale, threshold(draw.p))
        forward_kernel[(-(-count // ROWS), sum(tiles_of(count, out) for out in outs))](
            given, *first, y[0], *second, (*y, None)[1], *keys, count, scale, bar,
            IN=width, OUT=outs[0], OUT2=sum(outs[1:]), BLOCKS2=blocks_of(count, outs[-1]),
            RELU=relu, **_options(count, width, outs[0]),
            num_stages=min(3, -(-width // _step(width))),  # no more than turns of the loop
        )  # fmt: skip
        ctx.rooms, ctx.scale = rooms, scale
        ctx.save_for_backward(x, y[0] if relu else None, *parameters)
        ctx.set_materialize_grads(False)
        return *y, x, x

    @staticmethod
    @once("linear map")
    def backward(ctx: Any, *slopes: Tensor | None) -> Gradients:
        x, y, *parameters = ctx.saved_tensors
        x, maps = x.contiguous(), _maps(parameters)
        passed = [p.contiguous() for p in slopes[-2:] if p is not None]
        if all(slope is None for slope in slopes[:-2]):
            dx = None if not passed else torch.stack(passed).sum(0)
            return None, None, None, dx, *[None] * len(parameters)
        g = [x.new_zeros(len(x), len(weight)) if slope is None else slope.contiguous()
             for slope, (weight, _) in zip(slopes, maps)]  # fmt: skip
        (weight, _), (weight2, _) = (*maps, (None, None))[:2]
        (count, width), outs = x.shape, [len(w) for w, _ in maps]
        piece = piece_of(count)
        pieces = -(-count // piece)
        made = [open_map(room, pieces, *both) for room, both in zip(ctx.rooms, maps)]
        rooms = [t for both in (*made, (None, None))[:2] for t in both]
        dx = torch.empty_like(x) if ctx.needs_input_grad[3] else None
        dx_programs = 0 if dx is None else -(-count // ROWS) * tiles_of(count, width)
        dw_programs = [pieces * -(-out // OUTS) * tiles_of(count, width) for out in outs]
        # Without dx no program writes it: x stands in, so that there is one kernel and not two.
        backward_kernel[(dx_programs + sum(dw_programs),)](
            g[0], x, weight, y, (*g, None)[1], weight2, *(*passed, None, None)[:2],
            x if dx is None else dx, *rooms, count, dx_programs, dw_programs[0], ctx.scale,
            *[0 if t is None else t.stride(0) for t in rooms],
            IN=width, OUT=outs[0], OUT2=sum(outs[1:]), OUTS=OUTS, PIECE=piece, TURN=TURN,
            STEP2=_step(outs[-1]), **_options(count, outs[0], width), num_stages=3,
        )  # fmt: skip
        found: list[Tensor | None] = []
        for room, (dw, _), (weight, bias) in zip(ctx.rooms, made, maps):
            found += sum_map(room, dw, weight, bias)
        return None, None, None, dx, *found


def _maps(parameters: Sequence[Any]) -> Maps:
    return [(weight.contiguous(), bias) for weight, bias in zip(parameters[::2], parameters[1::2])]


def _apply(x: Tensor, layers: Sequence[nn.Linear], relu: bool, draw: Draw | None) -> Any:
    pieces = -(-len(x) // piece_of(len(x)))
    rooms = [claim(pieces, layer.weight, layer.bias) for layer in layers]
    parameters = [p for layer in layers for p in (layer.weight, layer.bias)]
    return _Linear.apply(relu, draw, rooms, x, *parameters)


def fused_linear(
    x: Tensor, layer: nn.Linear, relu: bool = False, draw: Draw | None = None
) -> tuple[Tensor, Tensor]:
    """Dropout(ReLU(x Wᵀ + b)) and x, of x [rows, in]; meant for some thousand rows.

    The gradient of what is done with the x given back is added to its gradient here.
    """
    y, x, _ = _apply(x, [layer], relu, draw)
    return y, x


def fused_linear_pair(
    x: Tensor, first: nn.Linear, second: nn.Linear
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Both maps of x [rows, in], and x for two uses: see :func:`fused_linear`."""
    return _apply(x, [first, second], False, None)
