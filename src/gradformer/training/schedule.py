"""The learning rate as a function of the step number, both tensors on the device."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

SCHEDULES = ("none", "cosine")


@dataclass(frozen=True)
class Schedule:
    r"""Linear warm-up over ``warmup`` steps, then constant, or a half cosine down to ``lowest``:

    .. math::
        \eta_t = \eta\,\frac{t+1}{w} \quad (t < w), \qquad
        \eta_t = \eta_{\min} + \tfrac12(\eta - \eta_{\min})
                 \bigl(1 + \cos(\pi \tfrac{t - w}{T - w})\bigr) \quad (t \ge w).
    """

    rate: float
    kind: str = "none"
    warmup: int = 0
    steps: int = 0
    lowest: float = 0.0

    def __call__(self, step: Tensor) -> Tensor:
        """The rate of step t = ``step`` (0-d, from 0), 0-d float32."""
        t = step.double()
        if self.kind == "cosine":
            share = ((t - self.warmup) / max(self.steps - self.warmup, 1)).clamp(0.0, 1.0)
            rate = self.lowest + (self.rate - self.lowest) * (1 + (math.pi * share).cos()) / 2
        else:
            rate = torch.full_like(t, self.rate)
        if self.warmup:
            rate = torch.where(t < self.warmup, self.rate * (t + 1) / self.warmup, rate)
        return rate.float()
