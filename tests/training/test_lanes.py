"""Trials on a CPU, an epoch of each in a thread: the bits, the order and the stop of one by one."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, get_ident
from typing import Any

import pytest
import torch

from gradformer.training import lanes, threads
from gradformer.training.checkpoint import load_checkpoint, save_checkpoint
from gradformer.training.lanes import in_lanes
from gradformer.training.loop import train
from gradformer.training.stop import Stop
from gradformer.training.trial import Trial
from gradformer.training.trials import answers_of
from tests.training import toy

RECIPE = toy.RECIPE.change("train.epochs=3")


pytestmark = pytest.mark.usefixtures("three_threads")


@pytest.fixture(autouse=True)
def a_batch_is_worth_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "SHARE", 1 << 40)


def some_trials(count: int = 4) -> list[Trial]:
    return toy.trials(*range(count), recipe=RECIPE)


def trained(trials: list[Trial], stop: Stop | None = None) -> list[tuple[int, int]]:
    """Which trial and epoch was told of, in order."""
    told = []

    def tell(trial: Trial, record: Mapping[str, Any]) -> None:
        assert record["seconds"] > 0 < record["graphs_per_second"]
        told.append((trial.number, record["epoch"]))

    train(trials, tell, stop or Stop())
    return told


@pytest.fixture
def alone() -> list[str]:
    """The digests of trials that are trained one after the other."""
    trials = some_trials()
    for trial in trials:
        assert train([trial], lambda *_: None, Stop())
    return [*map(toy.digest, trials)]


def test_three_at_once_have_the_bits_of_each_alone_and_are_told_of_in_turn(
    alone: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    meet, where = Barrier(3, timeout=60), set[int]()
    epoch = lanes.train_epoch

    def meeting(trials: list[Trial], stop: Stop) -> bool:
        assert torch.get_num_threads() == 1
        if trials[0].progress.epoch == 0 and trials[0].number > 0:
            meet.wait()  # after the first the other three begin together, or never
            where.add(get_ident())
        return epoch(trials, stop)

    monkeypatch.setattr(lanes, "train_epoch", meeting)
    trials, before = some_trials(), torch.random.get_rng_state()
    assert trained(trials) == list(itertools.product(range(4), (1,))) + [
        (number, epoch) for epoch in (2, 3) for number in range(4)
    ]
    assert len(where) == 3
    assert get_ident() not in where
    assert torch.get_num_threads() == 3
    assert torch.equal(torch.random.get_rng_state(), before)
    assert [*map(toy.digest, trials)] == alone


def test_a_stop_is_heard_in_all_lanes_and_loses_nothing(
    alone: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, agreed = itertools.count(), Stop.agreed

    def soon(self: Stop) -> bool:
        self.until = 0.0 if next(count) == 22 else self.until  # in the second epoch of some
        return agreed(self)

    with monkeypatch.context() as patch:
        patch.setattr(Stop, "agreed", soon)
        trials, told = some_trials(), list[tuple[int, int]]()
        assert not train(trials, lambda t, record: told.append((t.number, record["epoch"])), Stop())
    done = {trial.number: trial.progress.epoch for trial in trials}
    assert 0 < sum(done.values()) < 12
    assert sorted(told) == [(n, e + 1) for n, epochs in done.items() for e in range(epochs)]
    again = some_trials()
    for before, after in zip(trials, again):
        save_checkpoint(tmp_path / str(before.number), before)
        load_checkpoint(tmp_path / str(before.number), after)
    assert train(again, lambda *_: None, Stop())
    assert [*map(toy.digest, again)] == alone


def test_an_epoch_that_is_closed_when_another_lane_hears_a_stop_is_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trials, epoch = some_trials(3), lanes.train_epoch

    def work(some: list[Trial], stop: Stop) -> bool:
        if some[0].number != 1:
            return epoch(some, stop)
        while not trials[2].progress.epoch:
            time.sleep(0.01)
        stop.signal = signal.SIGTERM
        return False

    monkeypatch.setattr(lanes, "train_epoch", work)
    told = trained(trials)
    assert told[:2] == [(0, 1), (2, 1)]  # the second of the first trial may end before the stop


def endless(stop: Stop, heard: list[bool]) -> bool:
    """An epoch without end but for a stop, and notes whether it has heard of one."""
    deadline = time.monotonic() + 10
    while not stop.agreed() and time.monotonic() < deadline:
        time.sleep(0.01)
    heard.append(stop.agreed())
    return False


def test_what_goes_wrong_ends_the_other_lanes_at_their_next_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard, epoch = list[bool](), lanes.train_epoch

    def work(trials: list[Trial], stop: Stop) -> bool:
        return endless(stop, heard) if trials[0].number > 1 else epoch(trials, stop)

    def refuse(trial: Trial, _: Any) -> None:
        if trial.number == 1:
            raise OSError(28, "the disk is full")

    monkeypatch.setattr(lanes, "train_epoch", work)
    with pytest.raises(OSError, match="the disk is full"):
        train(some_trials(), refuse, Stop())
    assert heard == [True] * 2
    assert torch.get_num_threads() == 3


def test_what_goes_wrong_in_a_lane_is_not_held_back_by_the_epoch_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard, epoch = list[bool](), lanes.train_epoch

    def work(trials: list[Trial], stop: Stop) -> bool:
        if trials[0].number == 2:
            raise MemoryError
        return endless(stop, heard) if trials[0].number else epoch(trials, stop)

    monkeypatch.setattr(lanes, "train_epoch", work)
    with pytest.raises(MemoryError):
        train(some_trials(), lambda *_: None, Stop())
    assert heard == [True] * 2


def test_more_lanes_than_pythons_lock_bears_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "ABREAST", 2)
    assert lanes_of(3, monkeypatch) == 2


@pytest.mark.parametrize(("need", "most"), [(0, 3), (33, 3), (34, 2), (51, 1), (101, 1)])
def test_there_are_as_many_lanes_as_memory_has_room_for(
    need: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first epoch has taken ``need`` bytes, and 100 are left when it has given them back."""
    monkeypatch.setattr(lanes, "held", lambda: 1000)
    monkeypatch.setattr(lanes, "most_held", lambda: 1000 + need)
    monkeypatch.setattr(lanes, "left", lambda: 100)
    assert lanes_of(3, monkeypatch) == most


def lanes_of(count: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Into how many lanes so many trials come, which are trained to their end."""
    made, pool = [], lanes.pool

    def counted(most: int) -> ThreadPoolExecutor:
        made.append(most)
        return pool(most)

    monkeypatch.setattr(lanes, "pool", counted)
    assert len(trained(some_trials(count))) == 3 * count
    (most,) = made
    return most


def test_those_alone_have_no_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = some_trials(2)
    assert in_lanes(trials) == [trials]
    assert in_lanes(trials[:1]) == []  # one
    guests = toy.trials(0, 1, recipe=RECIPE.change("model.local=SAGEConv"))
    assert in_lanes([*guests, *trials]) == [trials]  # PyG's parts may draw from torch's generator
    with monkeypatch.context() as patch:
        patch.setattr(lanes, "is_shared", lambda: True)
        assert in_lanes(trials) == []
    with monkeypatch.context() as patch:
        patch.setattr(threads, "SHARE", 1)
        assert in_lanes(trials) == []  # each is worth all threads
    torch.set_num_threads(1)
    assert in_lanes(trials) == []


@pytest.mark.parametrize("setting", ["model.width=32", "model.layers=3", "train.batch_size=12"])
def test_the_largest_is_first_and_trials_of_a_recipe_keep_their_order(setting: str) -> None:
    """By its memory that of all is known; a search has candidates of other sizes together."""
    small, large = some_trials(4), toy.trials(*range(4), recipe=RECIPE.change(setting))
    assert in_lanes([*small, *large]) == [[*large, *small]]


def test_trials_worth_other_threads_are_other_companies(monkeypatch: pytest.MonkeyPatch) -> None:
    trials, worth = some_trials(4), {0: 1, 1: 2, 2: 1, 3: 2}
    numbers = {id(trial.model): worth[trial.number] for trial in trials}
    monkeypatch.setattr(lanes, "worth_of", lambda model, *_: numbers[id(model)])
    assert in_lanes(trials) == [[trials[0], trials[2]]]  # of two threads each there is room for one
    torch.set_num_threads(4)
    assert in_lanes(trials) == [[trials[0], trials[2]], [trials[1], trials[3]]]


@pytest.mark.parametrize(
    ("numbers", "share"), [((0, 1), 1300), ((2, 4), 1450)], ids=["validation", "test"]
)
def test_every_part_has_the_threads_that_it_has_alone(
    numbers: tuple[int, int], share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a part whose batches are worth two, those of training one, they had one in a lane."""
    monkeypatch.setattr(threads, "SHARE", share)
    torch.set_num_threads(4)

    def had(*numbers: int) -> list[tuple[bool, int]]:
        """In training or not, of the first: its test is asked for after every epoch."""
        trials, found = toy.trials(*numbers, recipe=RECIPE), []
        trials[0].model.register_forward_hook(
            lambda model, *_: found.append((model.training, torch.get_num_threads()))
        )
        train(trials, lambda trial, _: (answers_of(trial), None)[1], Stop())
        return found

    alone = had(numbers[0])
    assert {count for training, count in alone if training} == {1}
    assert {count for training, count in alone if not training} == {1, 2}
    assert len(in_lanes(toy.trials(*numbers, recipe=RECIPE))) == 1
    assert had(*numbers) == alone


def test_trials_without_a_lane_are_trained_as_well() -> None:
    guests = toy.trials(7, 8, recipe=RECIPE.change("model.local=SAGEConv", "train.epochs=1"))
    told = trained([*guests, *some_trials(2)])
    assert sorted(told) == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3), (7, 1), (8, 1)]
    assert all(guest.progress.status == "finished" for guest in guests)


def test_shares_of_the_time_are_those_of_the_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two trials of 24 graphs, whose steps take 8 s and validations 1 s; the first epoch is alone,
    the last three are two by two."""
    clocks: dict[int, float] = {}
    monkeypatch.setattr(lanes.time, "perf_counter", lambda: clocks.setdefault(get_ident(), 0.0))
    told: list[Any] = []

    def steps(trials: list[Trial], stop: Stop) -> bool:
        clocks[get_ident()] += 8.0
        return True

    def close(trial: Trial) -> dict[str, Any]:
        clocks[get_ident()] += 1.0
        return {"trial": trial.number}

    def tell(trial: Trial, record: Mapping[str, Any]) -> None:
        told.append(record)
        if len(told) > 2:
            trial.progress.status = "finished"

    monkeypatch.setattr(lanes, "train_epoch", steps)
    monkeypatch.setattr(Trial, "close_epoch", close)
    assert train(some_trials(2), tell, Stop())
    alone = {"seconds": 9.0, "graphs_per_second": 24 / 8}
    beside = {"seconds": 9 / 2, "graphs_per_second": 2 * 24 / 8}
    assert told == [
        {"trial": 0, **alone}, *({"trial": number, **beside} for number in (1, 0, 1))
    ]  # fmt: skip
