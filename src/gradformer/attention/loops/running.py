"""Compiled loops in the place of plain torch code on a CPU: where they run, and their derivatives.

They are no operators of torch: they have a first derivative in reverse mode, and whatever traces,
transforms, or asks for another derivative gets the plain code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.forward_ad import unpack_dual

from gradformer.attention.availability import current_engine
from gradformer.structure.parallel import HAVE_NUMBA, over_slices

LEAST_WORK = 300_000  # numbers, below which a second thread is not worth its start
_BATCHED = ("FuncTorchBatched", "Batched")  # torch's keys of tensors that stand for many


def has_tangent(*tensors: Tensor | None) -> bool:
    """Whether a forward-mode derivative is asked for."""
    if torch.compiler.is_compiling():
        return False
    return any(unpack_dual(x).tangent is not None for x in tensors if isinstance(x, Tensor))


def is_batched(x: Tensor) -> bool:
    """Whether it stands for many tensors: in ``vmap``, or ``autograd.grad(is_grads_batched=True)``,
    which has a ``vmap`` of its own."""
    keys = torch._C._dispatch_keys(x)
    return any(keys.has(torch._C._dispatch_key_parse(kind)) for kind in _BATCHED)


def wants_plain(*grads: Tensor | None) -> bool:
    """Whether a backward pass with these gradients must be plain code: it is to be differentiated
    itself, or made for many at once."""
    return torch.is_grad_enabled() or any(is_batched(grad) for grad in grads if grad is not None)


def runs_loops(x: Tensor, *more: Tensor | None) -> bool:
    """Whether compiled loops take a call with these tensors; not if the reference is asked for."""
    if x.device.type != "cpu" or x.dtype == torch.float64 or type(x) not in (Tensor, nn.Parameter):
        return False
    traced = torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None
    changed = traced or torch._C._are_functorch_transforms_active()
    if not HAVE_NUMBA or changed or current_engine() == "reference" or is_batched(x):
        return False
    return not has_tangent(x, *more)


def in_slices(kernel: Callable[..., None], cost: NDArray[np.int64], *given: Any) -> None:
    """``kernel(first, last, *given)`` on slices of the items, on as many threads as torch has.

    Tensors are given to it as arrays; ``cost`` are the numbers that each item makes.
    """
    arrays = [x.detach().contiguous().numpy() if isinstance(x, Tensor) else x for x in given]
    over_slices(
        lambda first, last: kernel(first, last, *arrays),
        cost,
        smallest=LEAST_WORK,
        threads=torch.get_num_threads(),
    )


def plain_gradients(
    plain: Callable[..., Sequence[Tensor]],
    inputs: Sequence[Tensor | None],
    needed: Sequence[bool],
    grads: Sequence[Tensor],
) -> list[Tensor | None]:
    """Gradients of ``plain(*inputs)`` that can be differentiated themselves; None if not needed."""
    with torch.enable_grad(), torch.autocast("cpu", enabled=False):  # the loops have float32
        # Views: an input may be made of another, whose gradient shall not have what comes
        # through it.
        views = [None if x is None else x.view_as(x) for x in inputs]
        wanted = [x for x, need in zip(views, needed) if need and x is not None]
        found = torch.autograd.grad(
            plain(*views), wanted, grads, create_graph=True, allow_unused=True
        )
    left = iter(found)
    return [next(left) if need else None for _, need in zip(inputs, needed)]
