"""What a caller's program has switched in torch, and a run must not depend on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from threading import RLock
from typing import ParamSpec, TypeVar

import torch

from gradformer.attention.operation import without_autocast

Made = TypeVar("Made")
Given = ParamSpec("Given")
_turn = RLock()


def undisturbed(make: Callable[Given, Made]) -> Callable[Given, Made]:
    """``make``, with torch as it is when a program begins: so the numbers of a run follow from its
    recipe alone.

    torch has one default type for all threads: a program that sets another one should not make two
    such calls at once.
    """

    @wraps(make)
    def inside(*args: Given.args, **kwargs: Given.kwargs) -> Made:
        with _as_at_first():
            return make(*args, **kwargs)

    return inside


@contextmanager
def _as_at_first() -> Iterator[None]:
    """Gradients, no autocast, float32 and the CPU where nothing else is said."""
    dtype = torch.get_default_dtype()
    with ExitStack() as switched:
        switched.enter_context(torch.inference_mode(False))
        switched.enter_context(torch.enable_grad())
        for device in ("cpu", "cuda"):
            switched.enter_context(without_autocast(device))
        if torch.get_default_device().type != "cpu":  # asked, since it makes each call slower
            switched.enter_context(torch.device("cpu"))
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)


@contextmanager
def own_draws(devices: Sequence[int] = ()) -> Iterator[None]:
    """Inside, torch's generators of the CPU and of these GPUs belong to one thread: all share them,
    so they take turns. Outside, they are as they were."""
    with _turn, torch.random.fork_rng(devices=devices):
        yield


@contextmanager
def drawing(seed: int) -> Iterator[None]:
    """Inside, torch draws on the CPU from ``seed``: the same for every device."""
    with own_draws():
        torch.default_generator.manual_seed(seed)
        yield
