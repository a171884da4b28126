r"""What a benchmark scores: exact, in float64, on the host, over a whole split at once.

All functions take predictions [rows, outputs] and targets ([rows] classes with −1 for missing, or
[rows, targets] with NaN for missing). With several targets a score is the mean over those that have
what it needs (labels that differ, or a label at all); MAE and RMSE, which have the unit of a
target, are over all labels instead, and beside them stands the mean over targets of MAE / std.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import InputError, choice
from gradformer.graphs.arrays import Task
from gradformer.graphs.targets import TargetScale, is_labelled

Array = NDArray[Any]


def accuracy(prediction: Array, y: Array) -> float:
    """Share of right answers: the largest logit of several classes, or the sign of each logit."""
    known = is_labelled(y)
    if y.dtype.kind != "f":
        return float((prediction.argmax(axis=1) == y)[known].mean())
    return _mean_over_targets(lambda p, t: float(((p > 0) == (t > 0.5)).mean()), prediction, y)


def mean_recall(prediction: Array, y: Array) -> float:
    """Mean of the per-class recalls over the classes that occur."""
    known = is_labelled(y)
    answer, truth = prediction.argmax(axis=1)[known], y[known]
    count = np.bincount(truth)
    right = np.bincount(truth[answer == truth], minlength=len(count))
    return float((right[count > 0] / count[count > 0]).mean())


def mae(prediction: Array, y: Array) -> float:
    """Mean absolute error over all labels."""
    known = is_labelled(y)
    return float(np.abs(prediction.astype(np.float64)[known] - y[known]).mean())


def rmse(prediction: Array, y: Array) -> float:
    """Root of the mean squared error over all labels."""
    known = is_labelled(y)
    return math.sqrt(np.square(prediction.astype(np.float64)[known] - y[known]).mean())


def r2(prediction: Array, y: Array) -> float:
    r"""Share of the variance that is explained, :math:`1 - \sum (y - p)^2 / \sum (y - \bar y)^2`:
    0 for the mean of the labels, below it for worse answers."""
    return _mean_over_targets(_r2, prediction, y, differing=True)


def scaled_mae(prediction: Array, y: Array) -> float:
    """Mean over targets of the mean absolute error; :func:`scores` gives it all in units of the
    targets' standard deviations."""
    return _mean_over_targets(lambda p, t: float(np.abs(p - t).mean()), prediction, y)


def auroc(prediction: Array, y: Array) -> float:
    """Chance that a positive stands above a negative, ties counted half."""
    return _mean_over_targets(_auroc, prediction, y, differing=True)


def average_precision(prediction: Array, y: Array) -> float:
    r"""Precision averaged over the positives: :math:`\sum_k (R_k - R_{k-1}) P_k`, ties as one k."""
    return _mean_over_targets(_average_precision, prediction, y, differing=True)


SCALED = "scaled_mae"
"""The metric of several regression targets: none counts for more because its unit is small."""
METRICS: dict[str, Callable[[Array, Array], float]] = {
    "accuracy": accuracy,
    "mean_recall": mean_recall,
    "mae": mae,
    "rmse": rmse,
    "r2": r2,
    SCALED: scaled_mae,
    "auroc": auroc,
    "average_precision": average_precision,
}
LOWER_IS_BETTER = frozenset({"mae", "rmse", SCALED})
_NAMES = {
    "mean_recall": "weighted accuracy",
    "mae": "MAE",
    "rmse": "RMSE",
    "r2": "R²",
    SCALED: "MAE/std",
    "auroc": "AUROC",
    "average_precision": "average precision",
}
_OF_TASK: dict[Task, tuple[str, ...]] = {
    "multiclass": ("accuracy", "mean_recall"),
    "binary": ("auroc", "average_precision", "accuracy"),
    "multilabel": ("average_precision", "auroc", "accuracy"),
    "regression": ("mae", "rmse", "r2"),
}


def metric_name(metric: str) -> str:
    """What people call a metric.

    >>> metric_name("mean_recall")
    'weighted accuracy'
    """
    return _NAMES.get(metric, metric)


def score_text(value: float) -> str:
    """A score with four decimals, or with its first digits where these would hide it.

    >>> score_text(0.84721), score_text(1.1234e-9)
    ('0.8472', '1.123e-09')
    """
    return f"{value:.4g}" if 0.0 < abs(value) < 1e-4 else f"{value:.4f}"


def metrics_of(task: Task, targets: int = 1) -> tuple[str, ...]:
    """The metrics of a task; the first is that of a user's own data. ``targets``: how many numbers
    a regression learns, each on a scale of its own."""
    several = task == "regression" and targets > 1
    return (SCALED, *_OF_TASK[task]) if several else _OF_TASK[task]


def metric_label(metric: str) -> str:
    """The metric's name, and which way is better.

    >>> metric_label("mae")
    'MAE ↓'
    """
    return metric_name(metric) + (" ↓" if metric in LOWER_IS_BETTER else " ↑")


def check_metric(metric: str, task: Task, argument: str = "metric", targets: int = 1) -> str:
    """Return ``metric`` if it can score ``task``; ``argument`` is who gave it."""
    return choice(argument, metric, metrics_of(task, targets))


def is_defined(metric: str, y: Array, outputs: int) -> bool:
    """Whether labels allow ``metric``: some need two that differ."""
    return not math.isnan(METRICS[metric](np.zeros((len(y), outputs)), y))


def scores(
    prediction: Array, y: Array, task: Task, scale: TargetScale | None = None, missing: bool = False
) -> dict[str, float]:
    """Every metric of the task by name; NaN for one that the labels do not allow.

    ``prediction`` and ``y`` are in the user's units; ``scale`` is the one they are learned on.

    All are NaN where an answer to a label is not finite: no order of such answers means anything;
    and where there is no label, if ``missing`` allows it.
    """
    known, names = is_labelled(y), metrics_of(task, 1 if scale is None else len(scale.std))
    if not known.any() and not missing:
        raise InputError("there is no label to score against; give a split with labels")
    if not (known.any() and np.isfinite(prediction[known]).all()):
        return dict.fromkeys(names, math.nan)
    found = {name: METRICS[name](prediction, y) for name in names}
    if scale is not None and SCALED in found:
        found[SCALED] = scaled_mae(prediction / scale.std, y / scale.std)
    return found


def better(metric: str, value: float, than: float | None) -> bool:
    """Whether ``value`` is strictly better; nothing is better than NaN, everything than None."""
    if math.isnan(value):
        return False
    if than is None:
        return True
    return value < than if metric in LOWER_IS_BETTER else value > than


def _mean_over_targets(
    score: Callable[[Array, Array], float], prediction: Array, y: Array, differing: bool = False
) -> float:
    values = []
    for p, t in zip(prediction.astype(np.float64).T, y.reshape(len(y), -1).T):
        known = is_labelled(t)
        p, t = p[known], t[known]
        if len(t) and not (differing and t.min() == t.max()):
            values.append(score(p, t))
    return float(np.mean(values)) if values else math.nan


def _r2(p: Array, t: Array) -> float:
    t = t.astype(np.float64)  # squares of float32 have no digits to spare
    return float(1 - np.square(t - p).sum() / np.square(t - t.mean()).sum())


def _auroc(p: Array, t: Array) -> float:
    positive = t > 0.5
    _, group, count = np.unique(p, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[group]  # mean rank, from 1, of tied values
    n = int(positive.sum())
    return float((rank[positive].sum() - n * (n + 1) / 2) / (n * (len(t) - n)))


def _average_precision(p: Array, t: Array) -> float:
    order = np.argsort(-p, kind="stable")
    last_of_tie = np.append(np.diff(p[order]) != 0, True)
    hits = np.cumsum(t[order] > 0.5)[last_of_tie]
    taken = np.flatnonzero(last_of_tie) + 1
    return float((np.diff(hits, prepend=0) * hits / taken).sum() / hits[-1])
