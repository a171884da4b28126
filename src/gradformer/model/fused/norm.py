"""Batch norm with dropout and residual before it, ReLU, dropout and a sum after it, in kernels.

One kernel each way for up to a thousand rows, two for more; so also for the sum of two norms.
The plain versions are :class:`~gradformer.model.parts.BatchNorm` and
:func:`~gradformer.model.parts.norm_pair`. Saved for the backward pass: what entered, and three
numbers for each channel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from gradformer.attention.draws import threshold
from gradformer.attention.kernels.once import Gradients, once
from gradformer.attention.kernels.tiles import block_of
from gradformer.attention.layout import Rows
from gradformer.model.fused.pieces import Claim, claim

if TYPE_CHECKING:
    from gradformer.model.parts import Draw

MOST_WHOLE_ROWS = 1024  # up to which a program holds all rows of some channels
MANY_ROWS = 8192  # beyond which programs are large
MOST_CHUNKS = 128  # every program of the second kernel reads the sums of all; half for fewer rows


@dataclass(frozen=True)
class Grid:
    """How rows and channels are shared out: it follows from the shape alone, never from timing."""

    shape: tuple[int, ...]
    chunk: int
    blocks: dict[str, int]

    @classmethod
    def of(cls, rows: int, channels: int) -> Grid:
        shape: tuple[int, ...]
        wide = block_of(channels, 4)
        if rows <= MOST_WHOLE_ROWS:
            block_r = block_of(rows)
            block_c = min(4 if block_r == 1024 else 8, wide)  # each core does its part
            warps = max(block_r * block_c // 512, 1)
            chunk, shape = rows, (-(-channels // block_c),)
        else:
            many = rows > MANY_ROWS
            block_c, warps = min(32 if many else 16, wide), 8 if many else 4
            block_r = (4096 if many else 2048 if rows > MANY_ROWS // 2 else 1024) // block_c
            chunks = MOST_CHUNKS if many else MOST_CHUNKS // 2
            chunk = -(-rows // (chunks * block_r)) * block_r
            shape = (-(-rows // chunk), -(-channels // block_c))
        blocks = {"C": channels, "BLOCK_R": block_r, "BLOCK_C": block_c, "num_warps": warps}
        return cls(shape, chunk, blocks)

    @property
    def whole(self) -> bool:
        return len(self.shape) == 1

    @property
    def merging(self) -> dict[str, int]:
        """Further options of the kernels that know the sums of all rows."""
        one = self.whole or self.chunk == self.blocks["BLOCK_R"]
        return {"BLOCK_P": block_of(self.shape[0]), "ONE": one}


@dataclass(frozen=True)
class Norms:
    """One norm or two whose sum is wanted, and what stands around them.

    Attributes:
        norms: of the one or two inputs x.
        before: the dropout of each input.
        relu, after: what follows the norm.
        both: whether the residual is added to both inputs, not to the first alone.
        room: where gradients of weights and biases go in pieces.
    """

    norms: tuple[nn.BatchNorm1d, ...]
    before: tuple[Draw | None, ...]
    rows: Rows
    relu: bool = False
    after: Draw | None = None
    both: bool = False
    room: Claim | None = None

    @property
    def pair(self) -> bool:
        return len(self.norms) == 2

    @property
    def draws(self) -> tuple[Draw | None, Draw | None, Draw | None]:
        return self.before[0], self.before[1] if self.pair else None, self.after

    @property
    def seeds(self) -> list[Tensor | None]:
        return [None if draw is None else draw.seed for draw in self.draws]

    @property
    def numbers(self) -> list[float]:
        """Factor and threshold of each dropout."""
        shares = [0.0 if draw is None else draw.p for draw in self.draws]
        return [number for p in shares for number in (1.0 / (1.0 - p), threshold(p))]

    @property
    def where(self) -> tuple[Tensor | None, Tensor, Tensor]:
        """Mask as bytes, and what keys the draws of each row."""
        mask = self.rows.mask
        real = None if mask is None else mask.contiguous().view(torch.uint8)
        return real, self.rows.graph_id, self.rows.index


class _Norm(torch.autograd.Function):
    """(x₁, x₂ or None, residual, what is added last, weight and bias of each norm) → y."""

    @staticmethod
    def forward(
        ctx: Any, around: Norms, x1: Tensor, x2: Tensor | None, add: Tensor | None,
        plus: Tensor | None, *parameters: Tensor,
    ) -> Tensor:  # fmt: skip
        from gradformer.model.kernels.norm import normalise_kernel, statistics_kernel

        x1 = x1.contiguous()
        x2, add, plus = (None if t is None else t.contiguous() for t in (x2, add, plus))
        norm, kind = around.norms[0], x1.dtype
        for other in (x2, add, plus):
            kind = kind if other is None else torch.promote_types(kind, other.dtype)
        y = torch.empty_like(x1, dtype=kind)
        learned = [t for n in around.norms
                   for t in (n.weight, n.bias, n.running_mean, n.running_var)]  # fmt: skip
        learned += [None] * (8 - len(learned))
        given, seeds, numbers = (x1, x2, add, *around.where), around.seeds, around.numbers
        (rows, channels), grid = x1.shape, Grid.of(*x1.shape)
        options = {"BOTH": around.both, **grid.blocks}
        stats = norm.weight.new_empty(len(around.norms), 3, channels)
        partial = None
        if not grid.whole:
            partial = stats.new_empty(len(around.norms), grid.shape[0], 3, channels)
        if norm.training and partial is not None:
            statistics_kernel[grid.shape](
                *given, *seeds[:2], partial, rows, grid.chunk, *numbers[:4], **options
            )
        normalise_kernel[grid.shape](
            *given, plus, y, *learned, *seeds, stats, partial, rows, grid.chunk,
            norm.momentum or 0.0, norm.eps, *numbers,
            TRAINING=norm.training, RELU=around.relu, **options, **grid.merging,
        )  # fmt: skip
        ctx.save_for_backward(x1, x2, add, *parameters)
        ctx.around, ctx.plus, ctx.stats = around, plus is not None, stats
        return y

    @staticmethod
    @once("batch norm")
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        from gradformer.model.kernels.norm import gradient_sums_kernel, input_gradient_kernel

        x1, x2, add, *parameters = ctx.saved_tensors
        around, grad = ctx.around, grad.contiguous()
        dx1, dx2 = torch.empty_like(x1), None if x2 is None else torch.empty_like(x2)
        given = (x1, x2, add, *around.where)
        dropped = around.before[0] is not None
        apart = add is not None and (dropped or around.both or add.dtype != x1.dtype)
        dadd = torch.empty_like(add) if apart else None
        (rows, channels), stats = x1.shape, ctx.stats
        if around.room is None:
            rooms = list(stats.new_empty(len(parameters), channels))
        else:
            rooms = around.room.open(x1.device)
        none = [None] * (4 - len(parameters))
        grid = Grid.of(rows, channels)
        size = (rows, grid.chunk, *around.numbers)
        options = {"BOTH": around.both, "RELU": around.relu, **grid.blocks}
        partial = None
        if not grid.whole:
            partial = stats.new_empty(len(around.norms), grid.shape[0], 2, channels)
            gradient_sums_kernel[grid.shape](
                *given, grad, *parameters, *none, *around.seeds, stats, partial, *size, **options
            )
        input_gradient_kernel[grid.shape](
            *given, grad, dx1, dx2, dadd, *parameters, *none, *rooms, *none, *around.seeds,
            stats, partial, *size, **options, **grid.merging,
        )  # fmt: skip
        d_learned = rooms if around.room is None else [None] * len(parameters)
        d_residual = None if add is None else dx1 if dadd is None else dadd
        return None, dx1, dx2, d_residual, grad if ctx.plus else None, *d_learned


def fused_norms(
    xs: tuple[Tensor, ...], add: Tensor | None, plus: Tensor | None, around: Norms
) -> Tensor:
    """One norm, or the sum of two, of inputs [rows, c]; padded rows give zero (or ``plus``)."""
    parameters = [p for norm in around.norms for p in (norm.weight, norm.bias)]
    around = replace(around, room=claim(1, *parameters))
    second = xs[1] if around.pair else None
    return _Norm.apply(around, xs[0], second, add, plus, *parameters)
