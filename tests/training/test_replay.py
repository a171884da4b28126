"""The loop of captured trials without a GPU: what is recorded is called again in place of it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from gradformer.errors import GradformerWarning
from gradformer.training import capture, epochs, loop
from gradformer.training.capture import CapturedTrial
from gradformer.training.checkpoint import load_checkpoint, save_checkpoint
from gradformer.training.epochs import train_epoch
from gradformer.training.loop import train
from gradformer.training.recipe import Recipe
from gradformer.training.records import Recorder
from gradformer.training.stop import Stop
from gradformer.training.trial import Trial
from gradformer.training.trials import Trials, answers_of
from tests.training import toy

LONG, SHORT = (toy.RECIPE.change("train.epochs=2", f"train.batch_size={n}") for n in (5, 9))


class CalledAgain:
    """Stands in for a CUDA graph: warmed up, undone, and called for every replay. There is memory
    for ``room`` of them, ``most`` were there at once."""

    room, most = 100, 0
    full: type[RuntimeError] = torch.OutOfMemoryError
    there: ClassVar[weakref.WeakSet[CalledAgain]] = weakref.WeakSet()

    def __init__(
        self, stream: object, body: Callable[[], None], state: list[Tensor], *, first: bool
    ) -> None:
        gc.collect()  # what is let go here stands in a ring with its body
        if len(self.there) >= self.room:
            raise self.full("CUDA error: out of memory")
        self.there.add(self)
        CalledAgain.most = max(CalledAgain.most, len(self.there))
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


@pytest.fixture(autouse=True)
def without_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "recorded", CalledAgain)
    monkeypatch.setattr(capture, "_on", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(CapturedTrial, "stream", Stream())
    monkeypatch.setattr(epochs, "PATIENCE", 1)
    gc.collect()
    monkeypatch.setattr(CalledAgain, "room", 100)
    monkeypatch.setattr(CalledAgain, "most", 0)


def make(recipe: Recipe) -> Trial:
    trial = toy.trial(recipe, 1)
    trial.captured = CapturedTrial(trial)
    return trial


def same(one: Trial, two: Trial) -> bool:
    pairs = zip((*one.step.state, one.best), (*two.step.state, two.best))
    return one.progress == two.progress and all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("steps", [1, 3, 4])
def test_trials_of_unequal_epochs_are_stopped_and_go_on(steps: int, tmp_path: Path) -> None:
    """After 3 steps the one with large batches has done its epoch, the other has not."""

    class After(Stop):
        def agreed(self) -> bool:
            return int(stopped[0].step.count) >= steps

    alone, stopped, again = ([make(LONG), make(SHORT)] for _ in range(3))
    assert [trial.steps_per_epoch for trial in alone] == [5, 3]
    for trial in alone:
        assert train([trial], lambda *_: None, Stop())
    assert not train(stopped, lambda *_: None, After())
    for number, (before, after) in enumerate(zip(stopped, again)):
        save_checkpoint(tmp_path / str(number), before)
        assert load_checkpoint(tmp_path / str(number), after)
        assert len(after.losses) == min(steps, after.steps_per_epoch)
    assert train(again, lambda *_: None, Stop())
    assert all(same(*pair) for pair in zip(alone, again))


def test_seconds_of_all_trials_are_the_time_they_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes 8 s in the steps of both, and 1 s in a trial's validation."""
    clock = [0.0]
    steps, close = loop.train_epoch, Trial.close_epoch

    def slow_steps(trials: list[Trial], stop: Stop) -> bool:
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


def test_trials_that_the_memory_has_no_room_for_wait_and_have_the_bits_of_each_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a trial its step and its validation are recorded: there is room for two of three."""
    recipes = [LONG, SHORT.change("train.epochs=1"), SHORT]
    alone = [make(recipe) for recipe in recipes]
    for trial in alone:
        assert train([trial], lambda *_: None, Stop())
        trial.captured = None
    monkeypatch.setattr(CalledAgain, "room", 4)
    CalledAgain.most = 0
    trials, ended = [make(recipe) for recipe in recipes], list[tuple[int, int]]()

    def note(trial: Trial, record: Any) -> None:
        ended.append((trials.index(trial), record["epoch"]))
        if trial.progress.status != "training":
            answers_of(trial)
            trial.captured = None

    assert train(trials, note, Stop())
    assert ended == [(0, 1), (1, 1), (0, 2), (2, 1), (2, 2)]
    assert CalledAgain.most == 4
    assert all(same(*pair) for pair in zip(alone, trials))


def test_what_needs_more_memory_later_gets_that_of_the_last_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another program takes memory after the first epoch, and steps are recorded for each."""
    monkeypatch.setattr(capture, "AHEAD", 1)
    monkeypatch.setattr(
        CapturedTrial,
        "capacity",
        lambda self, epoch: replace(self.room_for([self.trial.graphs]), pairs=9999 + epoch),
    )
    trials, ended = [make(LONG), make(SHORT)], list[tuple[int, int]]()

    def note(trial: Trial, record: Any) -> None:
        ended.append((trials.index(trial), record["epoch"]))
        monkeypatch.setattr(CalledAgain, "room", 2)
        if trial.progress.status != "training":
            trial.captured = None

    assert train(trials, note, Stop())
    assert ended == [(0, 1), (1, 1), (0, 2), (1, 2)]


def test_a_trial_without_room_for_its_steps_takes_them_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(CalledAgain, "room", 1)
    monkeypatch.setattr(CalledAgain, "full", RuntimeError)  # CUDA's own
    trials = [make(LONG), make(SHORT)]
    with pytest.warns(
        GradformerWarning, match="trial 1: the GPU has no memory to record its steps"
    ):
        assert train(trials, lambda *_: None, Stop())
    assert [trial.progress.epoch for trial in trials] == [2, 2]
    assert [trial.captured for trial in trials] == [None, None]


def test_answers_without_room_are_given_batch_by_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = make(LONG)
    assert train([trial], lambda *_: None, Stop())
    answers = answers_of(trial)
    trial.captured = CapturedTrial(trial)
    monkeypatch.setattr(CalledAgain, "room", 0)
    again = answers_of(trial)
    assert answers is not None
    assert again is not None
    assert again.prediction == pytest.approx(answers.prediction, abs=1e-5)


def test_capturing_ends_where_there_is_no_room_and_the_others_are_to_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Captured:
        def __init__(self, trial: Any, first: bool) -> None:
            self.trial, self.first = trial, first

        def prepare(self) -> bool:
            prepared.append(self.trial.number)
            return self.trial.number < 1

    prepared: list[int] = []
    monkeypatch.setattr(capture, "CapturedTrial", Captured)
    on_gpu, training = (
        SimpleNamespace(device=torch.device("cuda")),
        SimpleNamespace(status="training"),
    )
    trials: list[Any] = [
        SimpleNamespace(number=n, collator=on_gpu, progress=training, captured=None)
        for n in range(4)
    ]
    assert capture.capture(trials) is None
    assert prepared == [0, 1]
    assert [trial.captured.first for trial in trials] == [True, False, False, False]


def test_another_error_of_recording_is_not_taken_for_a_full_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(capture, "recorded", broken)
    trial = make(LONG)
    assert trial.captured is not None
    for record in (trial.captured.begin, lambda: trial.predict(trial.parts.test)):
        with pytest.raises(RuntimeError, match="shapes differ"):
            record()
