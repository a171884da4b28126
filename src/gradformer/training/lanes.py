"""Trials on a CPU, side by side: an epoch of each in a thread."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from gradformer.grouping import grouped
from gradformer.model.base import has_guests
from gradformer.model.parallel import is_shared
from gradformer.training.epochs import graphs_left, train_epoch, work_of
from gradformer.training.memory import held, left, most_held, settle
from gradformer.training.stop import Stop
from gradformer.training.threads import no_more_threads, numbers_of, pool, worth_of
from gradformer.training.trial import Trial

OnEpoch = Callable[[Trial, Mapping[str, Any]], None]


def in_lanes(trials: list[Trial]) -> list[list[Trial]]:
    """The trials on a CPU that can be trained beside each other, an epoch in a thread: where there
    is room for more than one, with the same number of threads for each; the largest come first.

    Processes that share a batch wait for each other. Parts of a model that are the user's or PyG's
    may draw from torch's generator, of which there is one.
    """
    room = torch.get_num_threads()
    alike = grouped((_worth(trial), trial) for trial in trials if _may_have_company(trial))
    return [
        sorted(same, key=_size, reverse=True)
        for worth, same in alike.items()
        if len(same) > 1 and room >= 2 * worth
    ]


def _may_have_company(trial: Trial) -> bool:
    on_cpu = trial.captured is None and trial.collator.device.type == "cpu"
    return on_cpu and not is_shared() and not has_guests(trial.model)


def train_in_lanes(trials: list[Trial], on_epoch: OnEpoch, stop: Stop) -> bool:
    """As many epochs at once as cores and memory have room for; they are told of as if in turn.

    The first epoch, of the largest trial, is alone: it tells how much memory one takes. What was
    freed until then would not reach the threads of the lanes, so it is given back to the system.
    """
    stopped = False
    with no_more_threads(_worth(trials[0])) as room:
        settle()
        before = held()
        record = _epoch(trials[0], 1, stop)
        if record is None:
            return False
        on_epoch(trials[0], record)
        need = max(most_held() - before, 1)
        settle()
        most = max(min(room, left() // need), 1)
        running: deque[tuple[Trial, Future[dict[str, Any] | None]]] = deque()
        with pool(most) as lanes, _or_all_end(stop):

            def begin(trial: Trial) -> None:
                live = [one for one in trials if one.progress.status == "training"]
                if trial in live:
                    running.append((trial, lanes.submit(_epoch, trial, min(most, len(live)), stop)))

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


def _epoch(trial: Trial, lanes: int, stop: Stop) -> dict[str, Any] | None:
    """The record of a trial's next epoch, beside others in so many ``lanes``; None if stopped."""
    with _or_all_end(stop):
        graphs, began = graphs_left(trial), time.perf_counter()
        if not train_epoch([trial], stop):
            return None
        rate = lanes * graphs / max(time.perf_counter() - began, 1e-9)
        record = trial.close_epoch()
        seconds = (time.perf_counter() - began) / lanes
        return {**record, "seconds": seconds, "graphs_per_second": rate}


@contextmanager
def _or_all_end(stop: Stop) -> Iterator[None]:
    """An error inside has the other lanes end with their present step."""
    try:
        yield
    except BaseException:
        stop.until = 0.0
        raise


def _worth(trial: Trial) -> int:
    """The most threads that batches of a part are worth, so that none has fewer than alone."""
    model, collator, _, size = work_of(trial)
    parts = map(trial.data.graphs, trial.parts)
    return max(worth_of(model, collator, graphs, size) for graphs in parts)


def _size(trial: Trial) -> int:
    """How many numbers the layers make of a mean batch of all graphs. The memory of a step grows
    with it; it is the same for all trials of a recipe."""
    graphs = np.arange(trial.data.store.num_graphs)
    numbers = numbers_of(trial.model, trial.collator, graphs, trial.recipe.train.batch_size)
    return numbers * getattr(trial.model.config, "layers", 1)
