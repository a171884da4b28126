"""CUDA graphs and streams without a GPU: what is recorded is called again in place of it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from gradformer.training import capture, epochs
from gradformer.training.capture import CapturedTrial
from gradformer.training.recipe import Recipe
from gradformer.training.trial import Trial
from tests.training import toy

LONG, SHORT = (toy.RECIPE.change("train.epochs=2", f"train.batch_size={n}") for n in (5, 9))


class CalledAgain:
    """Stands in for a CUDA graph: warmed up, undone, and called for every replay.

    Each takes ``size`` of the memory, of which there is ``room``; ``most`` was ever taken.
    """

    room, most, size = 100, 0, 1
    full: type[RuntimeError] = torch.OutOfMemoryError
    there: ClassVar[weakref.WeakSet[CalledAgain]] = weakref.WeakSet()

    def __init__(
        self, stream: object, body: Callable[[], None], state: list[Tensor], *, first: bool
    ) -> None:
        gc.collect()  # what is let go here stands in a ring with its body
        self.size = CalledAgain.size
        taken = self.size + sum(one.size for one in self.there)
        if taken > self.room:
            raise self.full("CUDA error: out of memory")
        self.there.add(self)
        CalledAgain.most = max(CalledAgain.most, taken)
        kept = [tensor.clone() for tensor in state]
        body()
        for tensor, value in zip(state, kept):
            tensor.copy_(value)
        self.replay = body


class Stream:
    """Stands in for a CUDA stream: ``waited`` is what the host has waited for."""

    def __init__(self) -> None:
        self.marks, self.waited = 0, list[int | str]()

    def record_event(self) -> SimpleNamespace:
        self.marks += 1
        return SimpleNamespace(synchronize=partial(self.waited.append, self.marks))

    def synchronize(self) -> None:
        self.waited.append("all")


def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In a test, as a fixture."""
    monkeypatch.setattr(capture, "recorded", CalledAgain)
    monkeypatch.setattr(capture, "_on", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(CapturedTrial, "stream", Stream())
    monkeypatch.setattr(epochs, "PATIENCE", 1)
    for name in ("room", "most", "size", "full"):  # to be as they were after the test
        monkeypatch.setattr(CalledAgain, name, getattr(CalledAgain, name))
    monkeypatch.setattr(CalledAgain, "there", weakref.WeakSet())
    gc.freeze()  # no ring is looked for among all that was imported, which takes most of a second
    yield
    gc.unfreeze()


def make(recipe: Recipe) -> Trial:
    trial = toy.trial(recipe, 1)
    trial.captured = CapturedTrial(trial)
    return trial
