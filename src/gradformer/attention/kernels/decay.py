"""The exponential decay's tables and how they change with its parameters, in one kernel.

The plain form is ``Decay._exponential``. The derivative goes through the stored jacobian.
"""

# The kernel's arguments are untyped.
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gradformer.attention.kernels.once import Gradients, once


@triton.jit
def decay_kernel(
    psi, start, raw, value, jacobian, decay, rate, slope, heads,
    LOGIT: tl.constexpr, ZERO: tl.constexpr, FAR: tl.constexpr,
):  # fmt: skip
    """value [sets, heads, 256] and jacobian [sets, 1 or 2, heads, 256]; grid (sets · heads,).

    ZERO is λ = 0; FAR takes byte 255 as any other distance.
    """
    row = tl.program_id(0)
    byte = tl.arange(0, 256)
    t = tl.load(psi + byte) - tl.load(start + row)
    above = tl.where(t > 0.0, 1.0, slope)
    if not FAR:
        t = tl.where(byte == 255, 0.0, t)
        above = tl.where(byte == 255, 0.0, above)
    ramp = tl.where(t > 0.0, t, t * slope)
    if raw is not None:
        given = tl.load(raw + row)
        small = tl.exp(-tl.abs(given))
        decay = tl.where(given > 0.0, 1.0, small) / (1.0 + small)
        rate = tl.minimum(given, 0.0) - tl.log(1.0 + small)
    if LOGIT:
        table = tl.exp(ramp * rate)
        if ZERO:
            table = tl.where(ramp > 0.0, 0.0, 1.0)
        outer = table
    else:
        table = ramp * rate
        if ZERO:
            table = tl.where(ramp > 0.0, float("-inf"), 0.0)
        outer = tl.full([256], 1.0, tl.float32)
    tl.store(value + row * 256 + byte, table)
    columns: tl.constexpr = 1 if raw is None else 2
    head = row % heads
    jacobian += (row // heads * columns * heads + head) * 256
    tl.store(jacobian + byte, -outer * rate * above)
    if raw is not None:  # ∂/∂raw = ∂/∂λ · λ(1 − λ)
        tl.store(jacobian + heads * 256 + byte, ramp * outer * (1.0 - decay))


class _Exponential(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, start: Tensor, raw: Tensor | None, psi: Tensor, decay: float, slope: float,
        logit: bool, far: bool,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        sets, heads = start.shape
        value = torch.empty(sets, heads, 256, dtype=torch.float32, device=start.device)
        jacobian = value.new_empty(sets, 1 if raw is None else 2, heads, 256)
        decay_kernel[(sets * heads,)](
            psi, start.contiguous(), None if raw is None else raw.contiguous(), value, jacobian,
            float(decay), math.log(decay) if decay > 0.0 else 0.0, float(slope), heads,
            LOGIT=logit, ZERO=decay == 0.0, FAR=far,
        )  # fmt: skip
        ctx.save_for_backward(jacobian, start, raw)
        ctx.mark_non_differentiable(jacobian)
        return value, jacobian

    @staticmethod
    @once("decay")
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> Gradients:  # type: ignore[override]
        jacobian, *_ = ctx.saved_tensors
        found = (grad[:, None] * jacobian).sum(-1).unbind(1)  # [sets, heads] each
        return found[0], found[1] if len(found) > 1 else None, *(None,) * 5


def exponential_tables(
    start: Tensor, raw: Tensor | None, psi: Tensor, decay: float, slope: float, on: str, far: bool
) -> tuple[Tensor, Tensor]:
    """Tables [sets, heads, 256], and their jacobian [1 or 2, sets, heads, 256] without a graph."""
    value, jacobian = _Exponential.apply(start, raw, psi, decay, slope, on == "logit", far)
    return value, jacobian.transpose(0, 1)
