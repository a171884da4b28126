"""The results in short: what counts as a clear difference, and who is set beside whom."""

from __future__ import annotations

from typing import Any

import pytest

from gradformer.studies.study import Cell, Measured
from gradformer.studies.summary import beside, best, resampled, summary, verdict
from gradformer.training.metrics import LOWER_IS_BETTER

METRICS = {"nci1": "accuracy", "molhiv": "auroc", "zinc": "mae", "actor": "accuracy"}
EVEN = [0.50, 0.52, 0.48, 0.51, 0.49, 0.50, 0.53, 0.47, 0.50, 0.50]


def measured(data: str, model: str, values: list[float], preset: str | None = None) -> Measured:
    metric = METRICS[data]
    row = model if preset is None else f"{model} ({preset})"
    outcome: dict[str, Any] = {
        "metric": metric,
        "lower_is_better": metric in LOWER_IS_BETTER,
        "test": {"mean": sum(values) / len(values), "std": 0.01, "values": values},
        "trials": [{"seed": k, "test": {metric: v}} for k, v in enumerate(values)],
    }
    return Measured(Cell(data, row, data, model, preset=preset), outcome)


def moved(by: float) -> list[float]:
    """EVEN moved by ``by`` with a spread of differences of 0.02 between seeds."""
    return [value + by + (0.02 if k % 2 else -0.02) for k, value in enumerate(EVEN)]


@pytest.mark.parametrize(("data", "clear"), [("molhiv", True), ("nci1", False), ("actor", False)])
def test_drawn_splits_ask_for_a_wider_interval(data: str, clear: bool) -> None:
    """0.018 is more than t · s/√10 = 0.0151, and less than 1.5 times as much."""
    first, other = measured(data, "gcn", EVEN), measured(data, "gin", moved(0.018))
    assert verdict(first, other) == int(clear)
    assert verdict(other, first) == -int(clear)


def test_resampled_parts() -> None:
    assert resampled("nci1") == 411 / 3288
    assert resampled("actor") == 1520 / 3648
    assert resampled("cora") == resampled("zinc") == 0.0


def test_a_low_error_is_better() -> None:
    first, other = measured("zinc", "gcn", EVEN), measured("zinc", "gin", moved(-0.1))
    assert verdict(first, other) == 1
    _, ((_, best_mean, *rest, _),) = best({"zinc": [first, other]})
    assert best_mean.startswith("gin 0.4")
    assert rest == ["–", "gcn", "10"]


def test_one_seed_is_never_clear() -> None:
    assert verdict(measured("zinc", "gcn", [0.9]), measured("zinc", "gin", [0.1])) == 0


def test_ours_beside_the_others() -> None:
    nci1 = [
        measured("nci1", "gradformer", EVEN, "authors"),
        measured("nci1", "gradformer", moved(0.1), "paper"),
        measured("nci1", "gcn", EVEN),
        measured("nci1", "majority", moved(-0.3)),
    ]
    molhiv = [
        measured("molhiv", "gradformer", EVEN, "paper"),
        measured("molhiv", "gcn", moved(0.2)),
    ]
    _, rows = beside({"nci1": nci1, "molhiv": molhiv})
    assert rows == [["gradformer (paper)", "gcn", "nci1", "–", "molhiv"]]
    text = summary([*nci1, *molhiv, measured("zinc", "gcn", EVEN)])
    assert "Of 7 pairs of models" in text
    assert "One model alone is measured on zinc." in text


def test_nothing_is_said_of_nothing() -> None:
    assert summary([measured("zinc", "gcn", EVEN), Measured(Cell("nci1", "gcn", "nci1"))]) == ""
