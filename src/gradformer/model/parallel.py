"""Sums over the processes that share one batch; with a single process, nothing.

A data-parallel training step gives every process a part of the batch. What must be known about the
whole batch (counts and sums of a batch norm, counts of a loss) goes through :func:`total`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

_sharing = False


@contextmanager
def shared_batch() -> Iterator[None]:
    """Inside, every process of the default group holds a part of the same batch.

    Without a group there is one process, which holds it all.
    """
    global _sharing
    group = torch.distributed.is_available() and torch.distributed.is_initialized()
    before, _sharing = _sharing, group and torch.distributed.get_world_size() > 1
    try:
        yield
    finally:
        _sharing = before


def is_shared() -> bool:
    """Whether other processes hold parts of this batch."""
    return _sharing


class _Total(torch.autograd.Function):
    """y = Σ_p x_p. Every process's loss depends on y, so dx_p = Σ_p dy_p."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.contiguous().clone()
        torch.distributed.all_reduce(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return _Total.apply(grad)


def total(x: Tensor) -> Tensor:
    """The sum of ``x`` over all processes that share the batch; differentiable."""
    if not _sharing:
        return x
    return _Total.apply(x)
