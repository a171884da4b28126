"""A feed-forward block, two linear maps with ReLU and dropout between them: one kernel each way.

A program holds whole rows, so it is for narrow ones. The plain version is
:class:`gradformer.model.layer.FeedForward`. Saved for the backward pass: what enters and what lies
between the maps. The gradient of the latter is not stored: programs that sum up dW₁ make it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from gradformer.attention.draws import threshold
from gradformer.attention.launch import precision
from gradformer.model.feed_forward_kernels import feed_forward_gradient_kernel, feed_forward_kernel
from gradformer.model.fused_linear import OUTS, TURN, blocks_of, piece_of, tiles_of
from gradformer.model.linear_kernels import BLOCK
from gradformer.model.once import Gradients, once
from gradformer.model.pieces import Claim, claim, open_map, sum_map

if TYPE_CHECKING:
    from gradformer.model.parts import Draw

ROWS = 32  # of a program


class _FeedForward(torch.autograd.Function):
    """(x, both maps) → y, x."""

    @staticmethod
    def forward(
        ctx: Any, draw: Draw | None, rooms: tuple[Claim | None, ...], x: Tensor, *parameters: Tensor
    ) -> tuple[Tensor, Tensor]:
        given, (w1, b1, w2, b2) = x.contiguous(), [p.contiguous() for p in parameters]
        count = len(x)
        inner, y = x.new_empty(count, len(w1)), x.new_empty(count, len(w2))
        keys = (x, x, x) if draw is None else (draw.rows.graph_id, draw.rows.index, draw.seed)
        scale, bar = (1.0, 0) if draw is None else (draw.scale, threshold(draw.p))
        feed_forward_kernel[(-(-count // ROWS),)](
            given, w1, b1, w2, b2, inner, y, *keys, count, scale, bar,
            DRAW=draw is not None, **_options(w1, w2),
        )  # fmt: skip
        ctx.rooms, ctx.scale = rooms, scale
        ctx.save_for_backward(x, inner, *parameters)
        ctx.set_materialize_grads(False)
        return y, x

    @staticmethod
    @once("feed-forward block")
    def backward(ctx: Any, grad: Tensor | None, passed: Tensor | None) -> Gradients:
        x, inner, *parameters = ctx.saved_tensors
        if grad is None:
            return None, None, passed, None, None, None, None
        x, grad = x.contiguous(), grad.contiguous()
        w1, _, w2, _ = (p.contiguous() for p in parameters)
        count, (out, middle) = len(x), w2.shape
        piece = piece_of(count)
        pieces = -(-count // piece)
        made = [open_map(room, pieces, weight) for room, weight in zip(ctx.rooms, (w1, w2))]
        dx = torch.empty_like(x) if ctx.needs_input_grad[2] else None
        dx_programs = 0 if dx is None else -(-count // ROWS)
        dw_programs = pieces * -(-middle // OUTS)
        dw2_programs = pieces * -(-out // OUTS) * tiles_of(count, middle)
        feed_forward_gradient_kernel[(dx_programs + dw_programs + dw2_programs,)](
            grad, x, w1, w2, inner, x if passed is None else passed.contiguous(),
            x if dx is None else dx, *made[0], *made[1],
            count, dx_programs, dw_programs, ctx.scale,
            *[t.stride(0) for pair in made for t in pair],
            PASSED=passed is not None, OUTS=OUTS, INNER_BLOCKS=blocks_of(count, middle),
            PIECE=piece, TURN=TURN, **_options(w1, w2),
        )  # fmt: skip
        found: list[Tensor | None] = []
        for room, (dw, _), weight in zip(ctx.rooms, made, (w1, w2)):
            found += sum_map(room, dw, weight)
        return None, None, dx, *found


def _options(w1: Tensor, w2: Tensor) -> dict[str, Any]:
    (inner, width), out = w1.shape, len(w2)
    blocks = {"BLOCKS": -(-width // BLOCK.value), "OUT_BLOCKS": -(-out // BLOCK.value)}
    sizes = {"IN": width, "INNER": inner, "OUT": out, "ROWS": ROWS, **blocks}
    return {**sizes, "EXACT": precision() == "ieee", "num_warps": 2, "num_stages": 2}


def fused_feed_forward(
    x: Tensor, first: nn.Linear, second: nn.Linear, draw: Draw | None
) -> tuple[Tensor, Tensor]:
    """second(Dropout(ReLU(first(x)))) and x, of x [rows, in]; both maps have a bias.

    The gradient of what is done with the x given back is added to its gradient here.
    """
    pieces = -(-len(x) // piece_of(len(x)))
    rooms = tuple(claim(pieces, layer.weight, layer.bias) for layer in (first, second))
    parameters = [p for layer in (first, second) for p in (layer.weight, layer.bias)]
    found: tuple[Tensor, Tensor] = _FeedForward.apply(draw, rooms, x, *parameters)
    return found
