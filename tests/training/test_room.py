"""More trials than a GPU has memory for, without a GPU: some wait, and none has other bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gradformer.errors import GradformerWarning
from gradformer.graphs.collate import Capacity
from gradformer.training import capture
from gradformer.training.capture import CapturedTrial
from gradformer.training.loop import train
from gradformer.training.stop import Stop
from gradformer.training.trial import Trial
from gradformer.training.trials import answers_of
from tests.training.replays import LONG, SHORT, CalledAgain, make, stand_in
from tests.training.toy import digest

without_streams = pytest.fixture(autouse=True)(stand_in)


def trained(
    trials: list[Trial], note: Callable[[Trial], object] = lambda _: None
) -> list[tuple[int, int]]:
    """Which epoch of which trial has ended, in order; ``note`` sees each. One that has ended gives
    its memory back."""
    ended: list[tuple[int, int]] = []

    def on_epoch(trial: Trial, record: Any) -> None:
        ended.append((trials.index(trial), record["epoch"]))
        note(trial)
        if trial.progress.status != "training":
            answers_of(trial)
            trial.captured = None

    assert train(trials, on_epoch, Stop())
    return ended


def larger_each_epoch(captured: CapturedTrial, epoch: int) -> Capacity:
    return replace(captured.room_for([captured.trial.graphs]), pairs=9999 + epoch)


def test_trials_that_the_memory_has_no_room_for_wait_and_have_the_bits_of_each_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a trial its step and its validation are recorded: there is room for two of three."""
    recipes = [LONG, SHORT.change("train.epochs=1"), SHORT]
    alone = [make(recipe) for recipe in recipes]
    for trial in alone:
        trained([trial])
    monkeypatch.setattr(CalledAgain, "room", 4)
    CalledAgain.most = 0
    trials = [make(recipe) for recipe in recipes]
    assert trained(trials) == [(0, 1), (1, 1), (0, 2), (2, 1), (2, 2)]
    assert CalledAgain.most == 4
    assert [*map(digest, alone)] == [*map(digest, trials)]


def test_what_needs_more_memory_later_gets_that_of_the_last_trial_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another program takes memory after the first epoch, and steps are recorded for each."""
    monkeypatch.setattr(capture, "AHEAD", 1)
    monkeypatch.setattr(CapturedTrial, "capacity", larger_each_epoch)
    trials = [make(LONG) for _ in range(4)]
    ended = trained(trials, lambda _: monkeypatch.setattr(CalledAgain, "room", 6))
    assert ended == [*((k, 1) for k in range(4)), *((k, 2) for k in range(3)), (3, 2)]


def test_when_a_large_trial_has_ended_several_small_ones_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each graph of the first takes the memory of three."""
    monkeypatch.setattr(CalledAgain, "room", 6)
    trials = [make(LONG), *(make(SHORT) for _ in range(4))]
    monkeypatch.setattr(CalledAgain, "size", 3)
    ended = trained(
        trials,
        lambda trial: (
            trial.progress.status == "training" or monkeypatch.setattr(CalledAgain, "size", 1)
        ),
    )
    small = [(k, epoch) for epoch in (1, 2) for k in (1, 2, 3)]
    assert ended == [(0, 1), (0, 2), *small, (4, 1), (4, 2)]


def test_a_trial_that_waits_is_not_closed_though_all_its_steps_are_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was stopped there, and its answers would find no room either."""
    _, waits = trials = [make(LONG), make(SHORT)]
    assert waits.captured is not None
    assert waits.captured.begin()
    for _ in range(waits.steps_per_epoch):
        waits.captured.advance()
    waits.captured.finish(waits.steps_per_epoch)
    waits.captured.release()
    monkeypatch.setattr(CalledAgain, "room", 2)
    assert trained(trials) == [(0, 1), (0, 2), (1, 1), (1, 2)]


def test_trials_without_room_for_one_step_take_theirs_plainly_and_no_graph_takes_it_from_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(CalledAgain, "room", 1)
    monkeypatch.setattr(CalledAgain, "full", RuntimeError)  # CUDA's own
    trials, graphs = [make(LONG), make(SHORT)], list[int]()
    with pytest.warns(
        GradformerWarning, match=r"trial 1: its steps are not captured .* train\.batch_size"
    ):
        assert train(trials, lambda *_: graphs.append(len(CalledAgain.there)), Stop())
    assert graphs == [0] * 4
    assert [trial.progress.epoch for trial in trials] == [2, 2]


def test_one_that_is_too_large_leaves_the_others_captured_and_comes_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So does one of which only now is seen what a capture forbids."""
    monkeypatch.setattr(CalledAgain, "room", 4)
    large, forbids, *_ = trials = [make(SHORT) for _ in range(4)]
    begin, replayed = CapturedTrial.begin, list[bool]()

    def begins(captured: CapturedTrial) -> bool:
        if captured is forbids.captured:
            raise RuntimeError("operation not permitted when stream is capturing")
        return captured is not large.captured and begin(captured)

    monkeypatch.setattr(CapturedTrial, "begin", begins)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    with pytest.warns(GradformerWarning) as said:
        ended = trained(trials, lambda trial: replayed.append(trial.captured is not None))
    assert [str(one.message).rpartition("bits: ")[2] for one in said] == [
        "the GPU has no memory for one step; lower train.batch_size",
        "gradformer: RuntimeError: operation not permitted when stream is capturing",
    ]
    assert ended == [(k, epoch) for pair in ((2, 3), (0, 1)) for epoch in (1, 2) for k in pair]
    assert replayed == [True] * 4 + [False] * 4


def test_answers_without_room_are_given_batch_by_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = make(LONG)
    assert train([trial], lambda *_: None, Stop())
    answers = answers_of(trial)
    trial.captured = CapturedTrial(trial)
    monkeypatch.setattr(CalledAgain, "room", 0)
    with pytest.warns(GradformerWarning, match="trial 1: .* its answers; they are given batch by"):
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
