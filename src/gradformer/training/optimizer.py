"""Adam and AdamW on one vector; rate and step number are tensors, so nothing leaves the device."""

from __future__ import annotations

import torch
from torch import Tensor

OPTIMIZERS = ("adam", "adamw")
BETAS, EPSILON = (0.9, 0.999), 1e-8
CLIP_EPS = 1e-6  # keeps the clipping of a zero gradient finite


class Adam:
    r"""The ``kind``, ``adam`` or ``adamw``, for a vector of ``size`` numbers:

    .. math::
        m &\leftarrow \beta_1 m + (1-\beta_1) g, \qquad v \leftarrow \beta_2 v + (1-\beta_2) g^2, \\
        w &\leftarrow w - \eta\,\frac{m / (1-\beta_1^t)}{\sqrt{v / (1-\beta_2^t)} + \varepsilon}.

    The first ``decayed`` weights are decayed: ``adam`` adds :math:`\mu w` to g, ``adamw`` takes
    :math:`\eta\mu w` off w.
    """

    def __init__(
        self, kind: str, size: int, like: Tensor, *, decayed: int = 0, weight_decay: float = 0.0
    ) -> None:
        self.kind, self.decayed, self.weight_decay = kind, decayed, weight_decay
        self.mean = torch.zeros(size, dtype=like.dtype, device=like.device)
        self.square = torch.zeros_like(self.mean)

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
