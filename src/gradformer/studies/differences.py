"""How far two cells are apart, and if it is clear which is better."""

from __future__ import annotations

from math import sqrt

from gradformer.graphs.cards import find_card
from gradformer.graphs.splits import EIGHT_ONE_ONE
from gradformer.report import pairs
from gradformer.report.pairs import Difference, comparable
from gradformer.studies.study import Measured


def difference(first: Measured, other: Measured) -> Difference | None:
    """The difference of two cells on the same data, as in a report; None if they do not compare."""
    runs = [one.history for one in (first, other) if one.history is not None]
    if len(runs) == 2 and not comparable(*runs):
        return None
    by_seed = find_card(dataset(first)).splits_by_seed(_way(first, other))
    return pairs.difference(first.known, other.known, by_seed)


def verdict(first: Measured, other: Measured) -> int:
    """Whether ``other`` is clearly better (1) or worse (−1) than ``first`` on the same data, or
    neither (0)."""
    found = difference(first, other)
    if found is None or found.reach is None:
        return 0
    way = _way(first, other)
    overlap = found.pairs.count * resampled(dataset(first), way) if found.pairs else 0.0
    if abs(found.mean) <= found.reach * sqrt(1 + overlap):
        return 0
    return 1 if (found.mean < 0) == first.known["lower_is_better"] else -1


def resampled(name: str, way: str = "auto") -> float:
    """Size of the test part over that of the training part where each seed has its own split.

    >>> resampled("nci1"), resampled("molhiv"), resampled("molhiv", "random")
    (0.125, 0.0, 0.125)
    """
    card = find_card(name)
    by_card = way in ("auto", "fixed") or (way == "random" and card.per_class)
    train, _, test = card.sizes if by_card else EIGHT_ONE_ONE  # as ten folds have it
    return test / train if card.splits_by_seed(way) else 0.0


def _way(*cells: Measured) -> str:
    """How the data of cells are split, as their runs say; rivals share that split."""
    runs = (one.history.run for one in cells if one.history is not None)
    return next((run.recipe.data.split for run in runs), "auto")


def dataset(one: Measured) -> str:
    """The data that a cell is measured on."""
    return one.cell.recipe().dataset
