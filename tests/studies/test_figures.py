"""The numbers behind the figures of the studies."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gradformer.studies import decay
from gradformer.studies.efficiency import epoch_seconds
from gradformer.studies.study import Cell, Measured


def scored(
    line: str, at: float, mean: float, std: float | None = None, data: str = "nci1"
) -> Measured:
    outcome = {"metric": "accuracy", "lower_is_better": False, "test": {"mean": mean, "std": std}}
    return Measured(Cell(data, f"{line} {at}", data, point=(line, at)), outcome)


def test_a_curve_has_the_scores_and_their_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    plot = decay.line_plot

    def line_plot(title: str, lines: Any, axes: Any) -> Any:
        seen.extend([*lines, axes.y])
        return plot(title, lines, axes)

    monkeypatch.setattr(decay, "line_plot", line_plot)
    points = [
        scored("linear", 0.5, 0.80, 0.01),
        scored("linear", 0.25, 0.60),
        scored("exponential", 0.5, 0.70),
    ]
    assert decay.draw(points) is not None
    linear, exponential, y = seen
    assert (linear.name, exponential.name, y) == ("linear", "exponential", "test accuracy, % ↑")
    assert (linear.x, linear.y) == ((0.25, 0.5), pytest.approx((60, 80)))
    assert (linear.low, linear.high) == (pytest.approx([60, 79]), pytest.approx([60, 81]))
    assert (exponential.low, exponential.high) == ([], []), "one seed has no spread"


def test_every_dataset_has_its_panel() -> None:
    data = ("nci1", "proteins", "mutag")
    drawn = decay.draw([scored("linear", 0.5, 0.7, data=name) for name in data])
    assert [str(drawn).count(f"{name}, linear<") for name in data] == [1, 1, 1]


def test_the_first_epoch_which_compiles_is_not_the_time_of_an_epoch() -> None:
    def history(*seconds: float) -> Any:
        return SimpleNamespace(epochs={0: [{"seconds": spent} for spent in seconds], 1: []})

    assert epoch_seconds(history(90, 1, 2, 3.5)) == 2
    assert epoch_seconds(history(90)) == 90
    assert epoch_seconds(history()) is None
