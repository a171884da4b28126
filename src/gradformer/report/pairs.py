"""How far two runs are apart: the difference of their test values, and its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from scipy.special import stdtrit  # the quantiles of Student's t, without all of scipy.stats

from gradformer.graphs.cards import find_card, is_card
from gradformer.report.history import History
from gradformer.training.data import way_of
from gradformer.training.run import Run


@dataclass(frozen=True)
class Pairs:
    """Equal seeds of two runs: the spread of their differences, and in how many the other won."""

    count: int
    std: float | None
    better: int
    worse: int


@dataclass(frozen=True)
class Difference:
    """Other − first in the unit of the metric.

    ``reach`` is half the width of the 95 % interval of the mean, None where nothing tells it, as of
    one seed; ``pairs`` is None where seeds are not paired.
    """

    mean: float
    reach: float | None
    pairs: Pairs | None = None


def yardstick(history: History) -> tuple[object, ...]:
    """What two runs must share for equal seeds to mean equal test sets: data, split and metric.

    The test set of an attempt of a search is its validation part. Folds are dealt by the first seed
    of a run, so that has to be the same too.
    """
    run = history.run
    way = way_of(run.recipe, run.origin)
    dealt_by = run.recipe.seed if way == "kfold" else None
    return run.origin.get("content"), run.origin.get("closed"), way, dealt_by, history.metric


def comparable(first: History, other: History) -> bool:
    """Whether equal seeds mean equal test sets, scored alike."""
    return yardstick(first) == yardstick(other)


def splits_by_seed(run: Run) -> bool:
    """Whether each seed of a run has its own split."""
    way = way_of(run.recipe, run.origin)
    if "split" not in run.origin and is_card(run.recipe.dataset):
        return find_card(run.recipe.dataset).splits_by_seed(way)
    return way != "column"


def difference(
    first: Mapping[str, Any], other: Mapping[str, Any], by_seed: bool
) -> Difference | None:
    """The difference of two outcomes as in ``results.json``; None where nothing compares.

    Where each seed has its own split (``by_seed``) it is paired, over the seeds that both have:
    what a split adds to both cancels. Where all seeds have one split, equal seeds have nothing in
    common: the difference is Welch's, over all seeds of both.
    """
    if by_seed:
        return paired_difference(first, other)
    values = [outcome["test"]["values"] for outcome in (first, other)]
    return welch(*values) if all(values) else None


def paired_difference(first: Mapping[str, Any], other: Mapping[str, Any]) -> Difference | None:
    """Over equal seeds, by Student's t; None where no seed has ended well in both.

    If there are few answers, differences may all be the same by chance: such a spread of 0 has no
    interval, unless all differences are 0.
    """
    one, two = _test_by_seed(first), _test_by_seed(other)
    seeds = sorted(one.keys() & two.keys())
    if not seeds:
        return None
    change = np.array([two[seed] - one[seed] for seed in seeds])
    gain = -change if first["lower_is_better"] else change
    count, std, reach = len(seeds), None, None
    if count > 1:
        alike = bool(np.ptp(change) <= 1e-9 * np.abs(change).max())  # up to rounding
        std = 0.0 if alike else float(change.std(ddof=1))
        if not alike or not change.any():
            reach = float(stdtrit(count - 1, 0.975)) * std / sqrt(count)
    pairs = Pairs(count, std, int((gain > 0).sum()), int((gain < 0).sum()))
    return Difference(float(change.mean()), reach, pairs)


def welch(first: Sequence[float], other: Sequence[float]) -> Difference:
    """Mean of ``other`` − mean of ``first``; the variances may differ.

    >>> found = welch([1.0, 2.0, 3.0], [5.0, 7.0, 9.0])
    >>> f"{found.mean:.2f} ± {found.reach:.2f}"  # 2.94 degrees of freedom
    '5.00 ± 4.16'
    >>> print(welch([0.1, 0.1, 0.1], [0.2, 0.2, 0.2]).reach)  # the same of all seeds: chance
    None
    """
    mean = float(np.mean(other) - np.mean(first))
    if min(len(first), len(other)) < 2:
        return Difference(mean, None)
    parts = [float(np.var(values, ddof=1)) / len(values) for values in (first, other)]
    if np.ptp(first) == np.ptp(other) == 0:
        return Difference(mean, None if mean else 0.0)
    total = sum(parts)
    spread = sum(p**2 / (len(v) - 1) for p, v in zip(parts, (first, other)))
    return Difference(mean, float(stdtrit(total**2 / spread, 0.975)) * sqrt(total))


def equal_splits(first: History, other: History) -> bool:
    """Whether the means of two comparable runs are over the same splits."""
    if not splits_by_seed(first.run):
        return True
    return _test_by_seed(first.outcome).keys() == _test_by_seed(other.outcome).keys()


def _test_by_seed(outcome: Mapping[str, Any]) -> dict[int, float]:
    """The values that the mean is over: of trials that ended with a score, by seed."""
    good = (trial for trial in outcome["trials"] if trial["test"] is not None)
    found = {trial["seed"]: trial["test"][outcome["metric"]] for trial in good}
    return {seed: value for seed, value in found.items() if value is not None}
