"""Batch norm with a residual before it and a ReLU after it, in two Triton kernels each way.

The plain version beside it is :class:`gradformer.model.parts.BatchNorm`. Saved for the backward
pass: the sum that was normalised, and three numbers for each channel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gradformer.attention.layout import Rows
from gradformer.errors import ConfigError

MOST_CHUNKS = 128  # every program of the second kernel reads the sums of all chunks


@dataclass(frozen=True)
class Grid:
    """How rows and channels are shared out: it follows from the shape alone, never from timing."""

    shape: tuple[int, int]
    chunk: int
    blocks: dict[str, int]

    @classmethod
    def of(cls, rows: int, channels: int) -> Grid:
        block_c = min(32, max(4, 1 << (channels - 1).bit_length()))
        large = rows * block_c > MOST_CHUNKS * 1024
        block_r = (4096 if large else 1024) // block_c
        chunk = -(-rows // (MOST_CHUNKS * block_r)) * block_r
        shape = (-(-rows // chunk), -(-channels // block_c))
        return cls(
            shape, chunk, {"BLOCK_R": block_r, "BLOCK_C": block_c, "num_warps": 8 if large else 4}
        )

    @property
    def merging(self) -> dict[str, int]:
        """Further option of the kernels that merge the sums of all chunks."""
        return {"BLOCK_P": max(16, 1 << (self.shape[0] - 1).bit_length())}


def _bytes(mask: Tensor | None, x: Tensor) -> Tensor:
    """The mask as bytes; ``x`` stands in for an absent one."""
    return x if mask is None else mask.contiguous().view(torch.uint8)


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, add: Tensor | None, weight: Tensor, bias: Tensor,
        norm: nn.BatchNorm1d, mask: Tensor | None, relu: bool,
    ) -> Tensor:  # fmt: skip
        from gradformer.model.part_kernels import normalise_kernel, statistics_kernel

        x, has_add, has_mask = x.contiguous(), add is not None, mask is not None
        add = x if add is None else add.contiguous()
        rows, channels = x.shape
        grid = Grid.of(rows, channels)
        y = x.new_empty(x.shape, dtype=torch.promote_types(x.dtype, add.dtype))
        z = torch.empty_like(y) if has_add else x
        stats = weight.new_empty(3, channels)
        partial = weight.new_empty(grid.shape[0], 2 * channels + 1)
        real = _bytes(mask, x)
        size = (rows, grid.chunk, channels)
        if norm.training:
            statistics_kernel[grid.shape](
                x, add, z, real, partial, *size, HAS_ADD=has_add, HAS_MASK=has_mask, **grid.blocks
            )
            x = z
        normalise_kernel[grid.shape](
            x, add, z, y, real, weight, bias, norm.running_mean, norm.running_var,
            partial, stats, *size, norm.momentum or 0.0, norm.eps,
            TRAINING=norm.training, HAS_ADD=has_add and not norm.training, HAS_MASK=has_mask,
            RELU=relu, **grid.blocks, **grid.merging,
        )  # fmt: skip
        ctx.save_for_backward(z, weight, bias, stats, mask)
        ctx.relu, ctx.has_add = relu, has_add
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        dz, dparameters = _NormGradient.apply(grad, *ctx.saved_tensors, ctx.relu)
        return dz, dz if ctx.has_add else None, *dparameters.unbind(), None, None, None


class _NormGradient(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, grad: Tensor, z: Tensor, weight: Tensor, bias: Tensor, stats: Tensor,
        mask: Tensor | None, relu: bool,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        from gradformer.model.part_kernels import gradient_sums_kernel, input_gradient_kernel

        rows, channels = z.shape
        grid = Grid.of(rows, channels)
        known = (grad.contiguous(), z, _bytes(mask, z), weight, bias, stats)
        flags = {"HAS_MASK": mask is not None, "RELU": relu}
        size = (rows, grid.chunk, channels)
        partial = weight.new_empty(grid.shape[0], 2 * channels)
        gradient_sums_kernel[grid.shape](*known, partial, *size, **flags, **grid.blocks)
        dz, dparameters = torch.empty_like(z), weight.new_empty(2, channels)
        input_gradient_kernel[grid.shape](
            *known, partial, dz, dparameters, *size, **flags, **grid.blocks, **grid.merging
        )
        return dz, dparameters

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        raise ConfigError(
            "the fused batch norm has no second derivative; use the reference engine for it: "
            "with gradformer.use_engine('reference'): …"
        )


def fused_batch_norm(
    x: Tensor, add: Tensor | None, relu: bool, norm: nn.BatchNorm1d, rows: Rows
) -> Tensor:
    """[ReLU] of the batch norm of x [+ add] [rows, c] over the real rows; padded rows give zero."""
    y: Tensor = _Norm.apply(x, add, norm.weight, norm.bias, norm, rows.mask, relu)
    return y
