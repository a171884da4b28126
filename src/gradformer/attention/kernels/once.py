"""Backward passes that are kernels: they have a first derivative, and say so if asked for more."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from gradformer.errors import ConfigError

Gradients = tuple[Tensor | None, ...]


def no_second_derivative(what: str) -> ConfigError:
    """The error of one who asks for it."""
    return ConfigError(
        f"the fused {what} has no second derivative; use the reference engine for it: "
        "with gradformer.use_engine('reference'): …"
    )


class _Refuse(torch.autograd.Function):
    """Hands gradients on, tied to what they depend on, so that a second derivative is an error."""

    @staticmethod
    def forward(ctx: Any, what: str, count: int, *tensors: Tensor | None) -> Any:
        ctx.what = what
        return tuple(None if t is None else t.view_as(t) for t in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise no_second_derivative(ctx.what)


def once(what: str) -> Callable[[Callable[..., Gradients]], Callable[..., Gradients]]:
    """Marks the ``backward`` of an autograd function that is made of kernels.

    Whatever its gradients depend on is among what arrives and what was saved.
    """

    def mark(backward: Callable[..., Gradients]) -> Callable[..., Gradients]:
        @wraps(backward)
        def run(ctx: Any, *grads: Tensor | None) -> Gradients:
            results = backward(ctx, *grads)
            if not torch.is_grad_enabled():
                return results
            depends = (*results, *grads, *ctx.saved_tensors)
            return _Refuse.apply(what, len(results), *depends)

        return run

    return mark
