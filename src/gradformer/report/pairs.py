"""Two runs on the same seeds: the difference seed by seed, which a shared split does not blur."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from gradformer.report.history import History


@dataclass(frozen=True)
class PairedDifference:
    """Other − first over equal seeds, in the unit of the metric.

    ``low`` and ``high`` bound the mean with 95 % confidence (Student's t); None for one seed.
    """

    seeds: int
    mean: float
    std: float | None
    low: float | None
    high: float | None
    better: int
    worse: int


def comparable(first: History, other: History) -> bool:
    """Whether equal seeds mean equal test sets: same data, same way to split, same metric.

    Folds are dealt by the first seed of a run, so it has to be the same too.
    """
    a, b = first.run, other.run
    split = a.recipe.data.split
    return (
        a.origin.get("content") == b.origin.get("content")
        and split == b.recipe.data.split
        and (split != "kfold" or a.recipe.seed == b.recipe.seed)
        and first.metric == other.metric
    )


def paired_difference(
    first: Mapping[str, Any], other: Mapping[str, Any]
) -> PairedDifference | None:
    """Of two outcomes as in ``results.json``; None where no seed has ended well in both."""
    one, two = _test_by_seed(first), _test_by_seed(other)
    seeds = sorted(one.keys() & two.keys())
    if not seeds:
        return None
    change = np.array([two[seed] - one[seed] for seed in seeds])
    gain = -change if first["lower_is_better"] else change
    mean, count = float(change.mean()), len(seeds)
    std = low = high = None
    if count > 1:
        std = float(change.std(ddof=1))
        reach = float(stats.t.ppf(0.975, count - 1)) * std / count**0.5
        low, high = mean - reach, mean + reach
    return PairedDifference(
        count, mean, std, low, high, int((gain > 0).sum()), int((gain < 0).sum())
    )


def equal_seeds(first: History, other: History) -> bool:
    """Whether the means of two runs are over the same seeds."""
    return _test_by_seed(first.outcome).keys() == _test_by_seed(other.outcome).keys()


def _test_by_seed(outcome: Mapping[str, Any]) -> dict[int, float]:
    """The values that the mean is over: of trials that ended with a score, by seed."""
    good = (trial for trial in outcome["trials"] if trial["test"] is not None)
    found = {trial["seed"]: trial["test"][outcome["metric"]] for trial in good}
    return {seed: value for seed, value in found.items() if value is not None}
