"""The results in short: on each dataset the best model, and which differences are clear."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import sqrt
from typing import Any

from gradformer.graphs.cards import find_card
from gradformer.studies.rivals import RIVALS
from gradformer.studies.study import Measured, Rows
from gradformer.studies.tables import markdown_table, paired, value
from gradformer.training.metrics import metric_label

CLEAR = (
    "A difference is *clear* if its 95 % interval, paired over equal seeds and splits, does not "
    "hold 0. Where each seed draws a split, the splits overlap and Student's interval, which the "
    "other tables have, is too narrow: here it is widened by Nadeau and Bengio's "
    "√(1 + seeds · test/train), 1.5 for ten seeds of 8:1:1. Where the split is fixed, it covers "
    "other seeds, not other test data."
)
SEARCHED = (
    "Only `tuned` comes from a search, which is an advantage over the others. Where splits are "
    "drawn, its validation parts hold test graphs of other seeds "
    "([more](reproducing.md#presets))."
)
OURS, SHOWN = "gradformer", ("paper", "tuned")
STUDIES = ("table1", "nodes")


def summary(measured: Sequence[Measured]) -> str:
    """Two tables in markdown and how far to believe them; empty where nothing was measured."""
    columns: dict[str, list[Measured]] = {}
    for one in measured:
        if one.outcome is not None:
            columns.setdefault(one.cell.column, []).append(one)
    several = {name: some for name, some in columns.items() if len(some) > 1}
    if not several:
        return ""
    pairs = sum(len(some) * (len(some) - 1) // 2 for some in several.values())
    alone = ", ".join(name for name, some in columns.items() if len(some) == 1)
    chance = f"Of {pairs} pairs of models, those that do not differ are clear one time in twenty."
    notes = [CLEAR, chance, SEARCHED]
    notes += [f"One model alone is measured on {alone}."] if alone else []
    parts = [
        "## In short",
        "Which model is best on which data, from Table 1 and the appendix:",
        markdown_table(best(several)),
        "Gradformer, by the paper's recipe and by the tuned one, beside each other model:",
        markdown_table(beside(several)),
        "How far to believe it:",
        "\n".join(f"- {note}" for note in notes),
    ]
    return "\n\n".join(parts) + "\n"


def best(columns: dict[str, list[Measured]]) -> Rows:
    """A row for each dataset: the best mean, and the models that are and are not clear of it."""
    head = ["data", "best mean", "no clear difference", "clearly worse", "seeds", "what it is"]
    rows = []
    for name, some in columns.items():
        first = max(some, key=lambda one: _sign(one) * _outcome(one)["test"]["mean"])
        outcome = _outcome(first)
        verdicts = {one.cell.row: verdict(first, one) for one in some if one is not first}
        rows.append(
            [
                f"{name}, {metric_label(outcome['metric'])}",
                f"{first.cell.row} {value(outcome)}",
                _names(row for row, found in verdicts.items() if found == 0),
                _names(row for row, found in verdicts.items() if found < 0),
                str(len(outcome["test"]["values"])),
                find_card(_data(first)).about,
            ]
        )
    return head, rows


def beside(columns: dict[str, list[Measured]]) -> Rows:
    """A row for each variant of ours and each other model: where it is better, where worse."""
    head = ["model", "beside", "clearly better on", "no clear difference on", "clearly worse on"]
    found: dict[tuple[str, str], dict[int, list[str]]] = {}
    for name, some in columns.items():
        for ours in some:
            for other in some:
                if ours.cell.preset in SHOWN and other.cell.model not in (OURS, *RIVALS):
                    key = (ours.cell.row, other.cell.row)
                    signs = found.setdefault(key, {})
                    signs.setdefault(-verdict(ours, other), []).append(name)
    order = {row: place for place, row in enumerate(dict.fromkeys(other for _, other in found))}
    ranked = sorted(found.items(), key=lambda item: order[item[0][1]])
    return head, [[*key, *(_names(signs.get(s, [])) for s in (1, 0, -1))] for key, signs in ranked]


def verdict(first: Measured, other: Measured) -> int:
    """Whether ``other`` is clearly better (1) or worse (−1) than ``first`` on the same data, or
    neither (0)."""
    found = paired(first, other)
    if found is None or found.low is None or found.high is None:
        return 0
    reach = (found.high - found.low) / 2 * sqrt(1 + found.seeds * resampled(_data(first)))
    if abs(found.mean) <= reach:
        return 0
    return _sign(first) if found.mean > 0 else -_sign(first)


def resampled(dataset: str) -> float:
    """Size of the test part over that of the training part where each seed has its own split.

    >>> resampled("nci1"), resampled("molhiv")
    (0.125, 0.0)
    """
    card = find_card(dataset)
    if card.split == "fixed" and card.ways == 1:
        return 0.0
    train, _, test = card.sizes
    return test / train


def _data(one: Measured) -> str:
    return one.cell.recipe().dataset


def _outcome(one: Measured) -> dict[str, Any]:
    assert one.outcome is not None
    return one.outcome


def _sign(one: Measured) -> int:
    return -1 if _outcome(one)["lower_is_better"] else 1


def _names(rows: Iterable[str]) -> str:
    return ", ".join(rows) or "–"
