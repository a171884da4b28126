"""Dropout and stochastic depth in one Triton kernel; the draws are made again on the way back.

The plain versions are :func:`~gradformer.attention.draws.drop` and
:func:`~gradformer.attention.draws.drop_rows`: what is kept is the same, bit for bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gradformer.attention.draws import threshold
from gradformer.attention.tiles import block_of

if TYPE_CHECKING:
    from gradformer.model.parts import Draw


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, draw: Draw) -> Tensor:
        from gradformer.model.drop_kernels import drop_kernel

        ctx.draw = draw
        x, rows = x.contiguous(), draw.rows
        size, channels = x.shape
        y = torch.empty_like(x)
        block_c = min(64, block_of(channels, 4))
        block_r = 1024 // block_c
        drop_kernel[(-(-size // block_r), -(-channels // block_c))](
            x, y, rows.graph_id, rows.index, draw.seed, size, channels, draw.scale,
            threshold(draw.p), BLOCK_R=block_r, BLOCK_C=block_c, WHOLE_GRAPHS=draw.whole_graphs,
        )  # fmt: skip
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return _Drop.apply(grad, ctx.draw), None


def fused_drop(x: Tensor, draw: Draw) -> Tensor:
    """``draw(x)``, [rows, c]."""
    return _Drop.apply(x, draw)
