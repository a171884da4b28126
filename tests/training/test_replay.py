"""The loop of captured trials without a GPU: what is recorded is called again in place of it."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from gradformer.training import loop
from gradformer.training.capture import CapturedTrial
from gradformer.training.checkpoint import load_checkpoint, save_checkpoint
from gradformer.training.epochs import train_epoch
from gradformer.training.loop import train
from gradformer.training.records import Recorder
from gradformer.training.stop import Stop
from gradformer.training.trial import Trial
from gradformer.training.trials import Trials
from tests.training import toy
from tests.training.replays import LONG, SHORT, make, stand_in

without_streams = pytest.fixture(autouse=True)(stand_in)


@pytest.mark.parametrize("steps", [1, 3, 4])
def test_trials_of_unequal_epochs_are_stopped_and_go_on(steps: int, tmp_path: Path) -> None:
    """After 3 steps the one with large batches has done its epoch, the other has not."""
    alone, stopped, again = ([make(LONG), make(SHORT)] for _ in range(3))
    assert [trial.steps_per_epoch for trial in alone] == [5, 3]
    for trial in alone:
        assert train([trial], lambda *_: None, Stop())
    assert not train(stopped, lambda *_: None, toy.After(stopped[0], steps))
    for number, (before, after) in enumerate(zip(stopped, again)):
        save_checkpoint(tmp_path / str(number), before)
        assert load_checkpoint(tmp_path / str(number), after)
        assert len(after.losses) == min(steps, after.steps_per_epoch)
    assert train(again, lambda *_: None, Stop())
    assert [*map(toy.digest, alone)] == [*map(toy.digest, again)]


def test_seconds_of_all_trials_are_the_time_they_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes 8 s in the steps of both, and 1 s in a trial's validation."""
    clock = [0.0]
    steps, close = loop.train_epoch, Trial.close_epoch

    def slow_steps(trials: list[Trial], stop: Stop) -> list[Trial] | None:
        clock[0] += 8.0
        return steps(trials, stop)

    def slow_close(trial: Trial) -> dict[str, Any]:
        clock[0] += 1.0
        return close(trial)

    monkeypatch.setattr(loop, "train_epoch", slow_steps)
    monkeypatch.setattr(Trial, "close_epoch", slow_close)
    monkeypatch.setattr(loop.time, "perf_counter", lambda: clock[0])
    seen: list[float] = []
    assert train([make(LONG), make(LONG)], lambda _, record: seen.append(record["seconds"]), Stop())
    assert seen == [5.0] * 4
    assert sum(seen) == clock[0]


def test_the_host_waits_one_window_behind_the_device() -> None:
    trial = make(LONG)
    stream: Any = trial.captured.stream  # type: ignore[union-attr]
    assert train_epoch([trial], Stop())
    assert stream.waited == [1, 2, 3, 4, "all"]  # five windows of a step; all at the end only


def test_a_trial_killed_before_its_result_is_tested_as_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recorded(trials: list[Trial]) -> None:
        for trial in trials:
            trial.captured = CapturedTrial(trial)
            trial.captured.prepare()
            predictions.append(trial.captured._predictions)

    predictions: list[dict[bytes, object]] = []
    monkeypatch.setattr("gradformer.training.trials.capture", recorded)
    trial, record = make(LONG), Recorder(tmp_path / "record.jsonl")
    assert train([trial], lambda _, epoch: record.epoch(0, epoch), Stop())
    record.close()
    save_checkpoint(tmp_path / "trials" / "0", trial)
    run = Trials(tmp_path, LONG.change("seed=1"), trial.data, torch.device("cpu"))
    run.open()
    run.device = torch.device("cuda")
    run.finish_ended()
    assert run.prepare() is None
    run.close()
    assert run.results()[0]["status"] == "finished"
    assert [len(found) for found in predictions] == [1]
    assert run.trials[0].captured is None


def test_a_captured_trial_is_freed_without_the_collector() -> None:
    trial = make(LONG)
    gc.disable()
    try:
        captured = weakref.ref(trial.captured)
        del trial
        assert captured() is None
    finally:
        gc.enable()
