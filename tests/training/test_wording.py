"""Predictions in the user's words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from gradformer.graphs.labels import Labels
from gradformer.training.inference import Predictions, columns


def said(labels: Labels, *trials: list[list[float]]) -> dict[str, list[Any]]:
    run: Any = SimpleNamespace(labels=labels)
    return columns(run, Predictions(np.array(trials)))


def test_of_two_classes_the_likelier_is_named() -> None:
    labels = Labels("multilabel", ("toxic", "blue"), (("no", "yes"), ("0", "1")))
    assert said(labels, [[0.9, 0.2], [0.4, 0.6]]) == {
        "toxic_predicted": ["yes", "no"],
        "toxic_p_yes": [0.9, 0.4],
        "blue_predicted": ["0", "1"],
        "blue_p_1": [0.2, 0.6],
    }


def test_trials_are_averaged_and_their_spread_is_that_of_the_named_class() -> None:
    labels = Labels("multiclass", ("kind",), (("a", "b", "c"),))
    found = said(labels, [[0.5, 0.25, 0.25]], [[0.0, 0.75, 0.25]])
    assert found["kind_predicted"] == ["b"]
    assert [found[f"kind_p_{word}"] for word in "abc"] == [[0.25], [0.5], [0.25]]
    assert found["kind_spread"] == [0.25]
