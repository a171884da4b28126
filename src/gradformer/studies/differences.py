"""How far two cells are apart: the difference of their scores, its interval, if it is clear."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np
from scipy import stats

from gradformer.graphs.cards import find_card
from gradformer.report.pairs import comparable, paired_difference
from gradformer.studies.study import Measured


class Difference(NamedTuple):
    """Other − first in the unit of the metric: its mean, and half the width of its 95 % interval
    (None of one seed); ``pairs`` of equal seeds it is over, 0 where seeds are not paired."""

    mean: float
    reach: float | None
    pairs: int = 0


def difference(first: Measured, other: Measured) -> Difference | None:
    """Of two cells on the same data; None where nothing compares.

    Where each seed draws a split it is paired, over the seeds that both have: Student's. Where the
    split is fixed, equal seeds have nothing in common: it is Welch's, over all seeds of both.
    """
    runs = [one.history for one in (first, other) if one.history is not None]
    if len(runs) == 2 and not comparable(*runs):
        return None
    if not resampled(dataset(first)):
        return welch(*(one.known["test"]["values"] for one in (first, other)))
    found = paired_difference(first.known, other.known)
    if found is None:
        return None
    reach = None if found.high is None else found.high - found.mean
    return Difference(found.mean, reach, found.seeds)


def verdict(first: Measured, other: Measured) -> int:
    """Whether ``other`` is clearly better (1) or worse (−1) than ``first`` on the same data, or
    neither (0)."""
    found = difference(first, other)
    if found is None or found.reach is None:
        return 0
    overlap = sqrt(1 + found.pairs * resampled(dataset(first)))  # of drawn splits
    if abs(found.mean) <= found.reach * overlap:
        return 0
    return 1 if (found.mean < 0) == first.known["lower_is_better"] else -1


def welch(first: Sequence[float], other: Sequence[float]) -> Difference:
    """Mean of ``other`` − mean of ``first``; the variances may differ.

    >>> mean, reach, _ = welch([1.0, 2.0, 3.0], [5.0, 7.0, 9.0])
    >>> f"{mean:.2f} ± {reach:.2f}"  # 2.94 degrees of freedom
    '5.00 ± 4.16'
    """
    mean = float(np.mean(other) - np.mean(first))
    if min(len(first), len(other)) < 2:
        return Difference(mean, None)
    parts = [float(np.var(values, ddof=1)) / len(values) for values in (first, other)]
    if not (total := sum(parts)):
        return Difference(mean, 0.0)
    spread = sum(p**2 / (len(v) - 1) for p, v in zip(parts, (first, other)))
    return Difference(mean, float(stats.t.ppf(0.975, total**2 / spread)) * sqrt(total))


def resampled(name: str) -> float:
    """Size of the test part over that of the training part where each seed has its own split.

    >>> resampled("nci1"), resampled("molhiv")
    (0.125, 0.0)
    """
    card = find_card(name)
    if card.split == "fixed" and card.ways == 1:
        return 0.0
    train, _, test = card.sizes
    return test / train


def dataset(one: Measured) -> str:
    """The data that a cell is measured on."""
    return one.cell.recipe().dataset
