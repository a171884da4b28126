"""Dropout and stochastic depth in one Triton kernel; the draws are made again on the way back.

The plain versions are :func:`~gradformer.attention.draws.drop` and
:func:`~gradformer.attention.draws.drop_rows`: what is kept is the same, bit for bit.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gradformer.attention.draws import threshold
from gradformer.attention.layout import Rows
from gradformer.attention.tiles import block_of


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, p: float, rows: Rows, seed: Tensor, whole_graphs: bool
    ) -> Tensor:
        from gradformer.model.drop_kernels import drop_kernel

        ctx.arguments = (p, rows, seed, whole_graphs)
        x = x.contiguous()
        size, channels = x.shape
        y = torch.empty_like(x)
        block_c = min(64, block_of(channels, 4))
        block_r = 1024 // block_c
        drop_kernel[(-(-size // block_r), -(-channels // block_c))](
            x, y, rows.graph_id, rows.index, seed, size, channels, 1.0 / (1.0 - p), threshold(p),
            BLOCK_R=block_r, BLOCK_C=block_c, WHOLE_GRAPHS=whole_graphs,
        )  # fmt: skip
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        return _Drop.apply(grad, *ctx.arguments), None, None, None, None


def fused_drop(x: Tensor, p: float, rows: Rows, seed: Tensor, whole_graphs: bool) -> Tensor:
    """x [rows, c], entries (or whole graphs) zeroed with probability p, others grown by 1/(1−p).

    ``seed`` is (trial seed, step, site) [3] on the same device.
    """
    y: Tensor = _Drop.apply(x, p, rows, seed, whole_graphs)
    return y
