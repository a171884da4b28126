"""The loss of a batch and its slope ∂loss/∂prediction in one kernel.

The plain form is :meth:`gradformer.training.losses.Objective.__call__` with autograd. One program
walks over all rows twice: counts first, then the loss and its slope. A training batch has a few
thousand rows at most, so one program is done sooner than a second launch would begin. What
is absent is None.
"""

# The kernel's arguments are untyped.
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from gradformer.attention.kernels.tiles import block_of

TILE = 4096  # entries of the prediction at a time


@triton.jit
def _known(real, row, rows):
    """Which of the rows are real."""
    known = row < rows
    if real is not None:
        known = tl.load(real + row, known, other=0) != 0
    return known


@triton.jit
def _value(p, t, weight, KIND: tl.constexpr):
    """Loss and slope of each entry for targets t."""
    if KIND == "l1":
        value = tl.abs(p - t)
        slope = tl.where(p > t, 1.0, tl.where(p < t, -1.0, 0.0))
    elif KIND == "mse":
        value = (p - t) * (p - t)
        slope = 2.0 * (p - t)
    else:  # −w t ln σ(p) − (1 − t) ln σ(−p)
        small = tl.exp(-tl.abs(p))
        both = 1.0 + (weight - 1.0) * t
        value = (1.0 - t) * p + both * (tl.log(1.0 + small) + tl.maximum(-p, 0.0))
        slope = (1.0 - t) - both * tl.where(p > 0.0, small, 1.0) / (1.0 + small)
    return value, slope


@triton.jit
def entries_kernel(
    prediction, y, real, scale, balance, loss, slope, rows,
    OUT: tl.constexpr, KIND: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Mean over all known entries; y [rows, OUT] is NaN where unknown."""
    column = tl.arange(0, BLOCK_C)[None, :]
    counted = tl.zeros([BLOCK_R, BLOCK_C], tl.int32)
    for start in range(0, rows, BLOCK_R):
        row = start + tl.arange(0, BLOCK_R)
        inside = _known(real, row, rows)[:, None] & (column < OUT)
        t = tl.load(y + row[:, None] * OUT + column, inside, other=float("nan"))
        counted += (t == t).to(tl.int32)
    count = tl.maximum(tl.sum(counted), 1).to(tl.float32)
    weight = tl.full([1, BLOCK_C], 1.0, tl.float32)
    if balance is not None:
        weight = tl.load(balance + column, column < OUT, other=1.0)
    if scale is not None:
        mean = tl.load(scale + column, column < OUT, other=0.0)
        std = tl.load(scale + OUT + column, column < OUT, other=1.0)
    total = tl.zeros([BLOCK_R, BLOCK_C], tl.float32)
    for start in range(0, rows, BLOCK_R):
        row = start + tl.arange(0, BLOCK_R)
        inside = _known(real, row, rows)[:, None] & (column < OUT)
        place = row[:, None] * OUT + column
        t = tl.load(y + place, inside, other=float("nan")).to(tl.float32)
        known = t == t
        if scale is not None:
            t = (t - mean) / std
        t = tl.where(known, t, 0.0)
        p = tl.load(prediction + place, known, other=0.0).to(tl.float32)
        value, change = _value(p, t, weight, KIND)
        total += tl.where(known, value, 0.0)
        change = tl.where(known, change / count, 0.0).to(slope.dtype.element_ty)
        tl.store(slope + place, change, (row < rows)[:, None] & (column < OUT))
    tl.store(loss, tl.sum(total) / count)


@triton.jit
def classes_kernel(
    prediction, y, real, balance, loss, slope, rows,
    OUT: tl.constexpr, BY_BATCH: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Weighted mean of −ln softmax(p)[y] over the known rows; y [rows] is −1 where unknown."""
    column = tl.arange(0, BLOCK_C)[None, :]
    counted = tl.zeros([BLOCK_R, BLOCK_C], tl.float32)
    for start in range(0, rows, BLOCK_R):
        row = start + tl.arange(0, BLOCK_R)
        label = tl.load(y + row, _known(real, row, rows), other=-1)
        counted += (label[:, None] == column).to(tl.float32)
    count = tl.sum(counted, 0)[None, :]  # n_c
    weight = tl.full([1, BLOCK_C], 1.0, tl.float32)
    if balance is not None:
        weight = tl.load(balance + column, column < OUT, other=0.0)
    if BY_BATCH:  # 1 − n_c/n; a quotient n/n need not be 1 on a GPU
        every = tl.sum(count)
        weight = tl.where(count > 0.0, (every - count) / tl.maximum(every, 1.0), 0.0)
    whole = tl.sum(count * weight)
    whole = tl.where(whole > 0.0, whole, 1.0)
    total = tl.zeros([BLOCK_R, BLOCK_C], tl.float32)
    for start in range(0, rows, BLOCK_R):
        row = start + tl.arange(0, BLOCK_R)
        known = _known(real, row, rows)
        label = tl.load(y + row, known, other=-1)
        place = row[:, None] * OUT + column
        inside = (row < rows)[:, None] & (column < OUT)
        there = inside & (known & (label >= 0))[:, None]
        p = tl.load(prediction + place, there, other=0.0).to(tl.float32)
        p = tl.where(column < OUT, p, float("-inf"))
        p -= tl.max(p, 1)[:, None]
        spread = tl.exp(p)
        sums = tl.sum(spread, 1)[:, None]
        member = (label[:, None] == column) & there
        own = tl.sum(tl.where(member, weight, 0.0), 1)[:, None]  # weight of the row's class
        total += tl.where(member, (tl.log(sums) - p) * weight, 0.0)
        change = own * (spread / sums - member.to(tl.float32)) / whole
        change = tl.where(there, change, 0.0).to(slope.dtype.element_ty)
        tl.store(slope + place, change, inside)
    tl.store(loss, tl.sum(total) / whole)


def fused_loss(
    prediction: Tensor,
    y: Tensor,
    real: Tensor | None,
    kind: str,
    scale: Tensor | None,
    balance: Tensor | None,
    batch_weights: bool,
) -> tuple[Tensor, Tensor]:
    """The loss, 0-d float32, and its slope [rows, outputs]; ``kind``: classes, binary, l1, mse.

    ``scale`` [2, outputs] and ``balance`` [outputs] are those of the objective.
    """
    prediction, y = prediction.contiguous(), y.contiguous()
    rows, outputs = prediction.shape
    loss = torch.empty((), dtype=torch.float32, device=prediction.device)
    slope = torch.empty_like(prediction)
    mask = None if real is None else real.contiguous().view(torch.uint8)
    block_c = block_of(outputs, 1)
    block_r = min(TILE // block_c, block_of(rows, 1))
    options = {"OUT": outputs, "BLOCK_R": block_r, "BLOCK_C": block_c, "num_warps": 8}
    if kind == "classes":
        classes_kernel[(1,)](
            prediction, y, mask, balance, loss, slope, rows, BY_BATCH=batch_weights, **options
        )
    else:
        units = None if scale is None else scale.contiguous()
        entries_kernel[(1,)](
            prediction, y, mask, units, balance, loss, slope, rows, KIND=kind, **options
        )
    return loss, slope
