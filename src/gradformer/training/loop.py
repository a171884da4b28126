"""Epoch after epoch, trial beside trial, until all are done or someone asks to stop."""

from __future__ import annotations

import time

from gradformer.training.epochs import graphs_left, train_epoch
from gradformer.training.lanes import OnEpoch, in_lanes, train_in_lanes
from gradformer.training.stop import Stop
from gradformer.training.trial import Trial


def train(trials: list[Trial], on_epoch: OnEpoch, stop: Stop) -> bool:
    """Train all trials to their end; False if stopped before.

    ``on_epoch(trial, record)`` is told of every epoch; trials that train side by side share the
    seconds that they took. A trial that diverges leaves the others as they are.
    """
    live = [trial for trial in trials if trial.progress.status == "training"]
    companies = in_lanes(live)
    others = [trial for trial in live if not any(trial in company for company in companies)]
    return all(train_in_lanes(company, on_epoch, stop) for company in companies) and (
        _train_in_turn(others, on_epoch, stop)
    )


def _train_in_turn(live: list[Trial], on_epoch: OnEpoch, stop: Stop) -> bool:
    """First the captured trials, as many at once as memory has room for: the others begin when one
    has ended. Then the trials that are not captured, an epoch of each in turn."""
    room = len(live)
    while live:
        captured = [trial for trial in live if trial.captured is not None]
        for together in [captured[:room]] if captured else [[trial] for trial in live]:
            began = time.perf_counter()
            graphs = sum(map(graphs_left, together))
            done = train_epoch(together, stop)
            if done is None:
                return False
            trained = time.perf_counter() - began
            rate = (graphs - sum(map(graphs_left, together))) / max(trained, 1e-9)
            for trial in done:
                began = time.perf_counter()
                record = trial.close_epoch()
                seconds = trained / len(done) + time.perf_counter() - began
                on_epoch(trial, {**record, "seconds": seconds, "graphs_per_second": rate})
            room = len(done)
        still = [trial for trial in live if trial.progress.status == "training"]
        if len(still) < len(live) or not room:
            room = len(still)
        live = still
    return True
