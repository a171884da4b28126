"""Predictions in the user's words: named columns, classes by name, units as given."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradformer.training.inference import Predictions
from gradformer.training.run import Run


def columns(run: Run, predictions: Predictions) -> dict[str, list[Any]]:
    """Column name → a value for each predicted row.

    ``<target>_predicted`` is the value or the class; ``<target>_p_<class>`` the probability of a
    class (of two, the second); with several trials ``<target>_spread`` is the standard deviation
    between them, of the value or of the probability of the predicted class.
    """
    labels = run.labels
    value, spread = predictions.value, predictions.spread
    several = len(predictions.trials) > 1
    found: dict[str, list[Any]] = {}
    if labels.task == "multiclass":
        (target,), (words,) = labels.targets, labels.classes
        best = value.argmax(axis=1)
        found[f"{target}_predicted"] = [words[k] for k in best]
        for k, word in enumerate(words):
            found[f"{target}_p_{word}"] = value[:, k].tolist()
        if several:
            found[f"{target}_spread"] = spread[np.arange(len(best)), best].tolist()
        return found
    for k, target in enumerate(labels.targets):
        if labels.task == "regression":
            found[f"{target}_predicted"] = value[:, k].tolist()
        else:
            negative, positive = labels.classes[k]
            found[f"{target}_predicted"] = [positive if p > 0.5 else negative for p in value[:, k]]
            found[f"{target}_p_{positive}"] = value[:, k].tolist()
        if several:
            found[f"{target}_spread"] = spread[:, k].tolist()
    return found
