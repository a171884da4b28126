"""Captured steps on a GPU: the same bits alone, among others and resumed; close to the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from gradformer.training import epochs
from gradformer.training.capture import capture
from gradformer.training.checkpoint import load_checkpoint, save_checkpoint
from gradformer.training.loop import train
from gradformer.training.stop import Stop
from gradformer.training.trial import Trial
from tests.training import toy
from tests.training.toy import digest

RECIPE = toy.RECIPE.change("train.epochs=5")  # of four steps
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


make = partial(toy.trials, recipe=RECIPE, device="cuda")


def trained(*numbers: int) -> list[Trial]:
    trials = make(*numbers)
    assert capture(trials) is None
    assert train(trials, lambda *_: None, Stop())
    return trials


def test_trials_side_by_side_are_the_bits_of_each_alone() -> None:
    (alone,) = trained(1)
    together = [digest(trial) for trial in trained(0, 1, 2)]
    assert int(alone.step.count) == 20
    assert together[1] == digest(alone)
    assert len(set(together)) == 3


def test_kernels_are_compiled_before_one_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.runtime.jit import JITFunction

    compiled, at_once = JITFunction._do_compile, list[bool]()

    def noted(kernel: Any, *args: Any) -> Any:
        at_once.append(args[-1])
        return compiled(kernel, *args)

    monkeypatch.setattr(JITFunction, "_do_compile", noted)
    recipe = RECIPE.change("model.width=56")  # of which no other test has kernels
    trial = toy.trial(recipe, device="cuda")
    assert capture([trial]) is None
    assert len(at_once) > 5
    assert all(at_once)


@pytest.mark.parametrize("steps", [4, 6])
def test_resumed_captured(steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "PATIENCE", 1)
    losses: dict[str, list[float]] = {"alone": [], "resumed": []}

    def note(name: str) -> Callable[[Trial, Mapping[str, Any]], None]:
        return lambda _, record: losses[name].append(record["loss"])

    (alone,), (trial,) = make(1), make(1)
    assert capture([alone]) is None
    train([alone], note("alone"), Stop())
    assert capture([trial]) is None
    assert not train([trial], note("resumed"), toy.After(trial, steps))
    save_checkpoint(tmp_path, trial)
    (again,) = make(1)
    assert load_checkpoint(tmp_path, again)
    assert capture([again]) is None
    train([again], note("resumed"), Stop())
    assert digest(again) == digest(alone)
    assert losses["resumed"] == losses["alone"]


def test_follows_the_ragged_steps_of_the_cpu() -> None:
    (there,) = make(1)
    (here,) = make(1, device="cpu")
    assert capture([there]) is None
    assert there.captured is not None
    there.captured.begin()
    for ids in here.batches():
        here.losses.append(here.step(ids))
        there.captured.advance()
    there.captured.finish(len(here.losses))
    losses = [torch.stack(trial.losses).cpu() for trial in (there, here)]
    torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)
    items = here.parts.val
    found = [torch.from_numpy(trial.predict(items)) for trial in (there, here)]
    torch.testing.assert_close(*found, rtol=1e-2, atol=1e-3)


def test_nothing_is_read_back_inside_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "PATIENCE", 1)
    (trial,) = make(1)
    assert capture([trial]) is None
    assert trial.captured is not None
    trial.captured.begin()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        done = epochs.replay_steps([(trial, trial.captured)], Stop())
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert done == {trial: 4}
    trial.captured.finish(4)
    assert torch.isfinite(torch.stack(trial.losses)).all()
