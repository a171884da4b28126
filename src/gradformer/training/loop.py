"""Epoch after epoch, trial beside trial, until all are done or someone asks to stop."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gradformer.errors import GradformerError
from gradformer.graphs.collate import Capacity, Collator
from gradformer.model.base import GraphModel, has_guests
from gradformer.model.parallel import is_shared
from gradformer.training.capture import CapturedTrial
from gradformer.training.distributed import place_in_batch
from gradformer.training.memory import held, left, most_held, settle
from gradformer.training.threads import (
    no_more_threads,
    numbers_of,
    pool,
    worth_of,
    worthwhile_threads,
)
from gradformer.training.trial import Trial

OnEpoch = Callable[[Trial, Mapping[str, Any]], None]

PATIENCE = 50
"""Captured steps of each trial between two looks at whether someone asks to stop."""


class StoppedError(GradformerError):
    """Training was asked to stop and has saved its state; ``signal`` is what asked."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.signal = signal_number


class Stop:
    """Whether a signal has asked to stop. A second one ends the process at once, unless it is that
    of a terminal which ends: its shell sends it, and then the system.

    At ``until``, on the monotonic clock, it is as if an alarm (SIGALRM) had asked.
    """

    def __init__(self, until: float | None = None) -> None:
        self.signal: int | None = None
        self.until = until

    @contextmanager
    def listening(self) -> Iterator[Stop]:
        """Inside, SIGINT, SIGTERM and SIGHUP are noted (in the main thread only)."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        asking = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.getsignal(number) for number in asking}
        if before[signal.SIGHUP] is signal.SIG_IGN:  # by nohup: the end of a terminal is nothing
            del before[signal.SIGHUP]

        def note(number: int, frame: Any) -> None:
            if self.signal is not None and number != signal.SIGHUP:
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)
            self.signal = number

        try:
            for number in before:
                signal.signal(number, note)
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def agreed(self) -> bool:
        """Whether any process that shares the batch was asked; all get the same answer."""
        if self.signal is None and self.until is not None and time.monotonic() >= self.until:
            self.signal = signal.SIGALRM
        if not is_shared():
            return self.signal is not None
        asked = torch.tensor(self.signal or 0)
        torch.distributed.all_reduce(asked, torch.distributed.ReduceOp.MAX)
        self.signal = int(asked) or None
        return self.signal is not None


def train(trials: list[Trial], on_epoch: OnEpoch, stop: Stop) -> bool:
    """Train all trials to their end; False if stopped before.

    ``on_epoch(trial, record)`` is told of every epoch; its seconds are the trial's share of what
    those took that train side by side. A trial that diverges leaves the others as they are.
    """
    live = [trial for trial in trials if trial.progress.status == "training"]
    companies = in_lanes(live)
    others = [trial for trial in live if not any(trial in company for company in companies)]
    return all(_train_in_lanes(company, on_epoch, stop) for company in companies) and (
        _train_in_turn(others, on_epoch, stop)
    )


def _train_in_turn(live: list[Trial], on_epoch: OnEpoch, stop: Stop) -> bool:
    """An epoch of each in turn, on a GPU of all that are captured at once."""
    while live:
        for together in side_by_side(live):
            began = time.perf_counter()
            graphs = sum(map(graphs_left, together))
            if not train_epoch(together, stop):
                return False
            trained = time.perf_counter() - began
            rate = graphs / max(trained, 1e-9)
            for trial in together:
                began = time.perf_counter()
                record = trial.close_epoch()
                seconds = trained / len(together) + time.perf_counter() - began
                on_epoch(trial, {**record, "seconds": seconds, "graphs_per_second": rate})
        live = [trial for trial in live if trial.progress.status == "training"]
    return True


def in_lanes(trials: list[Trial]) -> list[list[Trial]]:
    """The trials on a CPU that can be trained beside each other, an epoch in a thread: where there
    is room for more than one, with the same number of threads for each; the largest come first.

    Processes that share a batch wait for each other. Parts of a model that are the user's or PyG's
    may draw from torch's generator, of which there is one.
    """
    threads: dict[int, list[Trial]] = {}
    for trial in trials:
        on_cpu = trial.captured is None and trial.collator.device.type == "cpu"
        if on_cpu and not is_shared() and not has_guests(trial.model):
            threads.setdefault(_worth(trial), []).append(trial)
    room = torch.get_num_threads()
    return [
        sorted(same, key=_size, reverse=True)
        for worth, same in threads.items()
        if len(same) > 1 and room >= 2 * worth
    ]


def _train_in_lanes(trials: list[Trial], on_epoch: OnEpoch, stop: Stop) -> bool:
    """As many epochs at once as cores and memory have room for; they are told of as if in turn.

    The first, which is the largest, is alone, and tells how much memory one takes. What it has
    freed then, or others before it, the threads of the lanes would not get: it goes back to the
    system.
    """

    @contextmanager
    def or_all_end() -> Iterator[None]:
        try:
            yield
        except BaseException:
            stop.until = 0.0  # the other lanes end with their present step
            raise

    @or_all_end()
    def epoch(trial: Trial, lanes: int) -> dict[str, Any] | None:
        graphs, began = graphs_left(trial), time.perf_counter()
        if not train_epoch([trial], stop):
            return None
        rate = lanes * graphs / max(time.perf_counter() - began, 1e-9)
        record = trial.close_epoch()
        seconds = (time.perf_counter() - began) / lanes
        return {**record, "seconds": seconds, "graphs_per_second": rate}

    stopped = False
    with _generators(torch.device("cpu")), no_more_threads(_worth(trials[0])) as room:
        settle()
        before = held()
        record = epoch(trials[0], 1)
        if record is None:
            return False
        on_epoch(trials[0], record)
        need = max(most_held() - before, 1)
        settle()
        most = max(min(room, left() // need), 1)
        running: deque[tuple[Trial, Future[dict[str, Any] | None]]] = deque()
        with pool(most) as lanes, or_all_end():

            def begin(trial: Trial) -> None:
                live = [one for one in trials if one.progress.status == "training"]
                if trial in live:
                    running.append((trial, lanes.submit(epoch, trial, min(most, len(live)))))

            for trial in [*trials[1:], trials[0]]:
                begin(trial)
            while running:
                trial, made = running.popleft()
                if (record := made.result()) is None:
                    stopped = True
                    continue
                on_epoch(trial, record)
                begin(trial)
    return not stopped


def _worth(trial: Trial) -> int:
    """The most threads that batches of a part are worth, so that none has fewer than alone."""
    model, collator, _, size = _work(trial)
    parts = map(trial.data.graphs, trial.parts)
    return max(worth_of(model, collator, graphs, size) for graphs in parts)


def _size(trial: Trial) -> int:
    """What the layers make of a mean batch of all graphs, by which the memory of a step grows: the
    same for all trials of a recipe."""
    graphs = np.arange(trial.data.store.num_graphs)
    numbers = numbers_of(trial.model, trial.collator, graphs, trial.recipe.train.batch_size)
    return numbers * getattr(trial.model.config, "layers", 1)


def _work(trial: Trial) -> tuple[GraphModel, Collator, NDArray[np.int64], int]:
    return trial.model, trial.collator, trial.graphs, trial.recipe.train.batch_size


def side_by_side(trials: list[Trial]) -> list[list[Trial]]:
    """Which trials take their steps at the same time: all that are captured; the others alone."""
    captured = [trial for trial in trials if trial.captured is not None]
    alone = [[trial] for trial in trials if trial.captured is None]
    return [captured, *alone] if captured else alone


def graphs_left(trial: Trial) -> int:
    """Graphs of the present epoch that the trial has not seen."""
    seen = len(trial.losses) * trial.recipe.train.batch_size
    return max(len(trial.graphs) - seen, 0)


def train_epoch(trials: list[Trial], stop: Stop) -> bool:
    """The steps of the present epoch that are not done yet; False if stopped between two."""
    captured = [(trial, trial.captured) for trial in trials if trial.captured is not None]
    if captured:
        return _replay_epoch(captured, stop)
    (trial,) = trials
    process, _ = place_in_batch()
    steps = [*zip(trial.batches(), trial.generator_seeds(process))]
    device = trial.collator.device
    with _generators(device) as generators, worthwhile_threads(*_work(trial)):
        for ids, seed in steps[len(trial.losses) :]:
            if stop.agreed():
                return False
            for generator in generators:
                generator.manual_seed(seed)
            trial.losses.append(trial.step(*own_share(ids)))
    return True


@contextmanager
def _generators(device: torch.device) -> Iterator[list[torch.Generator]]:
    """torch's generators, which are as they were outside."""
    devices = [] if device.type == "cpu" else [torch.cuda.current_device()]
    with torch.random.fork_rng(devices=devices):
        yield [torch.default_generator, *(torch.cuda.default_generators[k] for k in devices)]


def _replay_epoch(trials: list[tuple[Trial, CapturedTrial]], stop: Stop) -> bool:
    """All trials a step at a time, each on its stream."""
    for _, captured in trials:
        captured.begin()
    done = replay_steps(trials, stop)
    for trial, captured in trials:
        captured.finish(done[trial])
    return all(done[trial] == trial.steps_per_epoch for trial, _ in trials)


def replay_steps(trials: list[tuple[Trial, CapturedTrial]], stop: Stop) -> dict[Trial, int]:
    """Replay until the epoch is done or someone asks to stop; the steps that each trial has done.

    Nothing is read back. So that a signal is not heard only at the end, the host is never more
    than two windows of :data:`PATIENCE` steps ahead: it waits for the end of the window before the
    last, while the device has the last one to work on.
    """
    done = {trial: len(trial.losses) for trial, _ in trials}
    steps = {trial: trial.steps_per_epoch for trial, _ in trials}
    slowest = max(trials, key=lambda pair: steps[pair[0]] - done[pair[0]])[1]
    before = None
    while done != steps:
        for _ in range(PATIENCE):
            for trial, captured in trials:
                if done[trial] < steps[trial]:
                    captured.advance()
                    done[trial] += 1
        if before is not None:
            before.synchronize()
        before = slowest.stream.record_event()
        if stop.agreed():
            break
    return done


def own_share(ids: Tensor) -> tuple[Tensor, Capacity | None]:
    """The graphs of a batch that fall to this process; an empty slot if there are none."""
    first, stride = place_in_batch()
    share = ids[first::stride]
    if len(share):
        return share, None
    return torch.full_like(ids[:1], -1), Capacity(graphs=1, nodes=1, edges=1, largest=1)
