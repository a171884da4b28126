"""Adam and AdamW on one vector, and the learning rate of each step.

Rate and step number are tensors, so nothing leaves the device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

OPTIMIZERS = ("adam", "adamw")
SCHEDULES = ("none", "cosine")
BETAS, EPSILON = (0.9, 0.999), 1e-8
CLIP_EPS = 1e-6  # keeps the clipping of a zero gradient finite


class Adam:
    r"""The ``kind``, ``adam`` or ``adamw``, for a vector of weights whose gradient is as ``like``:

    .. math::
        m &\leftarrow \beta_1 m + (1-\beta_1) g, \qquad v \leftarrow \beta_2 v + (1-\beta_2) g^2, \\
        w &\leftarrow w - \eta\,\frac{m / (1-\beta_1^t)}{\sqrt{v / (1-\beta_2^t)} + \varepsilon}.

    The first ``decayed`` weights are decayed: ``adam`` adds :math:`\mu w` to g, ``adamw`` takes
    :math:`\eta\mu w` off w.
    """

    def __init__(self, kind: str, like: Tensor, decayed: int, weight_decay: float) -> None:
        self.kind, self.decayed, self.weight_decay = kind, decayed, weight_decay
        self.mean, self.square = torch.zeros_like(like), torch.zeros_like(like)

    def update(self, weights: Tensor, grad: Tensor, rate: Tensor, step: Tensor) -> None:
        """Change ``weights`` [size] in place by ``grad`` [size] at step t = ``step`` + 1."""
        first, second = BETAS
        decayed = weights[: self.decayed]
        if self.weight_decay and self.kind == "adam":
            grad[: self.decayed].add_(decayed, alpha=self.weight_decay)
        elif self.weight_decay:
            decayed.mul_(1.0 - rate * self.weight_decay)
        self.mean.lerp_(grad, 1.0 - first)
        self.square.lerp_(grad.square(), 1.0 - second)
        t = step.double() + 1.0
        size = (rate / (1.0 - first**t)).to(weights.dtype)
        correction = (1.0 - second**t).sqrt().to(weights.dtype)
        weights.sub_(size * self.mean / (self.square.sqrt() / correction + EPSILON))


def clip_(grad: Tensor, limit: float) -> Tensor:
    """Scale ``grad`` in place to a norm of at most ``limit``; returns the norm it had, 0-d."""
    norm: Tensor = torch.linalg.vector_norm(grad)
    grad.mul_((limit / (norm + CLIP_EPS)).clamp(max=1.0))
    return norm


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
