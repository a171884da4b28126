"""Epoch after epoch, trial beside trial, until all are done or someone asks to stop."""

from __future__ import annotations

import time

from gradformer.training.epochs import graphs_left, train_epoch
from gradformer.training.lanes import OnEpoch, in_lanes, train_in_lanes
from gradformer.training.stop import Stop
from gradformer.training.trial import Trial


def train(trials: list[Trial], on_epoch: OnEpoch, stop: Stop) -> bool:
    """Train all trials to their end; False if stopped before.

    ``on_epoch(trial, record)`` is told of every epoch; its seconds are the trial's share of what
    those took that train side by side. A trial that diverges leaves the others as they are.
    """
    live = [trial for trial in trials if trial.progress.status == "training"]
    companies = in_lanes(live)
    others = [trial for trial in live if not any(trial in company for company in companies)]
    return all(train_in_lanes(company, on_epoch, stop) for company in companies) and (
        _train_in_turn(others, on_epoch, stop)
    )


def _train_in_turn(live: list[Trial], on_epoch: OnEpoch, stop: Stop) -> bool:
    """An epoch of each in turn, on a GPU of all that are captured at once.

    Where its memory is for some of them only, the next begins when one has ended.
    """
    room = len(live)
    while live:
        for together in side_by_side(live, room):
            began = time.perf_counter()
            graphs = sum(map(graphs_left, together))
            if not train_epoch(together, stop):
                return False
            trained = time.perf_counter() - began
            done = [trial for trial in together if not graphs_left(trial)]
            rate = (graphs - sum(map(graphs_left, together))) / max(trained, 1e-9)
            for trial in done:
                began = time.perf_counter()
                record = trial.close_epoch()
                seconds = trained / len(done) + time.perf_counter() - began
                on_epoch(trial, {**record, "seconds": seconds, "graphs_per_second": rate})
            if len(done) < len(together):
                room = len(done)
        live = [trial for trial in live if trial.progress.status == "training"]
    return True


def side_by_side(trials: list[Trial], room: int) -> list[list[Trial]]:
    """Which trials take their steps at the same time: of those that are captured as many as there
    is ``room`` for, while the rest wait; the others alone."""
    captured = [trial for trial in trials if trial.captured is not None][:room]
    alone = [[trial] for trial in trials if trial.captured is None]
    return [captured, *alone] if captured else alone
