"""How the answers on the test set lie: a confusion matrix of classes, a parity plot of numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gradformer.graphs.targets import is_labelled
from gradformer.report.history import History
from gradformer.report.markup import Content, Markup, figure, grid, join, note, tag
from gradformer.report.plots import confusion_plot, parity_plot
from gradformer.training.keepsakes import Answers, load_answers

_MOST_TARGETS = 6
_MOST_POINTS = 1500
_MOST_CLASSES = 40


def answers_section(histories: Sequence[History]) -> Markup:
    """Test answers of the selected weights, all trials together."""
    parts: list[Content] = []
    for history in histories:
        found = [load_answers(history.run.folder / "trials" / str(t)) for t in history.run.trials]
        kept = [answers for answers in found if answers is not None]
        if len(histories) > 1:
            parts.append(tag("h3", history.label))
        if not kept:
            parts.append(note(f"{history.label}: no answers on the test set were kept."))
        elif history.run.schema.task == "regression":
            parts.append(_parity(history, kept))
        else:
            parts.append(_confusion(history, kept))
    return join(parts)


def _parity(history: History, kept: Sequence[Answers]) -> Markup:
    names = _target_names(history)
    figures = []
    for target, name in list(enumerate(names))[:_MOST_TARGETS]:
        truth = np.concatenate([a.target[:, target] for a in kept]).astype(np.float64)
        answer = np.concatenate([a.prediction[:, target] for a in kept]).astype(np.float64)
        known = is_labelled(truth) & np.isfinite(answer)
        truth, answer = truth[known], answer[known]
        error = np.abs(truth - answer).mean() if len(truth) else np.nan
        shown = _evenly(len(truth), _MOST_POINTS)
        plot = parity_plot(f"Prediction over true value of {name}", truth[shown], answer[shown])
        points = f"{len(truth):,} answers" + (
            f", {len(shown):,} drawn" if len(shown) < len(truth) else ""
        )
        figures.append(figure(plot, join([tag("b", name), f": {points}; MAE {error:.4g}"])))
    return join([grid(*figures), _left_out(len(names))])


def _confusion(history: History, kept: Sequence[Answers]) -> Markup:
    schema = history.run.schema
    if schema.task == "multiclass":
        if schema.outputs > _MOST_CLASSES:
            return note(f"{schema.outputs} classes are too many for a matrix.")
        pairs = [(a.target, a.prediction.argmax(axis=1)) for a in kept]
        names = _class_names(history, 0, schema.outputs)
        return grid(_matrix(pairs, names, "all classes"))
    figures = []
    targets = _target_names(history)
    for target, name in list(enumerate(targets))[:_MOST_TARGETS]:
        pairs = [(a.target[:, target], (a.prediction[:, target] > 0)) for a in kept]
        figures.append(_matrix(pairs, _class_names(history, target, 2), name))
    return join([grid(*figures), _left_out(len(targets))])


def _matrix(
    pairs: Sequence[tuple[NDArray[np.generic], NDArray[np.generic]]],
    names: Sequence[str],
    title: str,
) -> Markup:
    classes = len(names)
    counts = np.zeros((classes, classes))
    for truth, answer in pairs:
        known = is_labelled(truth)
        place = truth[known].astype(np.int64) * classes + answer[known].astype(np.int64)
        counts += np.bincount(place, minlength=classes**2).reshape(classes, classes)
    plot = confusion_plot(f"Confusion matrix of {title}", counts, names)
    right = np.trace(counts) / max(counts.sum(), 1.0)
    text = f": {counts.sum():,.0f} answers, {100 * right:.1f} % right. Shares are of each row."
    return figure(plot, join([tag("b", title), text]))


def _target_names(history: History) -> list[str]:
    reading = history.run.reading
    if reading is not None and reading.labels.task != "multiclass":
        return list(reading.labels.targets)
    outputs = history.run.schema.outputs
    return [f"target {k + 1}" for k in range(outputs)] if outputs > 1 else ["target"]


def _class_names(history: History, target: int, classes: int) -> list[str]:
    reading = history.run.reading
    if reading is not None and target < len(reading.labels.classes):
        return list(reading.labels.classes[target])
    return [str(k) for k in range(classes)]


def _left_out(targets: int) -> Markup | None:
    if targets <= _MOST_TARGETS:
        return None
    return note(f"The first {_MOST_TARGETS} of {targets} targets are shown.")


def _evenly(length: int, most: int) -> NDArray[np.int64]:
    """At most ``most`` positions of ``length``, evenly spread."""
    return np.unique(np.linspace(0, max(length - 1, 0), min(length, most)).astype(np.int64))
