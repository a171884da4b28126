"""How the answers on the test set lie: a confusion matrix of classes, a parity plot of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import counted
from gradformer.graphs.targets import is_labelled
from gradformer.report.history import History
from gradformer.report.markup import Content, Markup, figure, grid, join, note, tag
from gradformer.report.matrices import confusion_plot
from gradformer.report.plots import parity_plot
from gradformer.report.scales import evenly
from gradformer.training.keepsakes import Answers, load_answers

Values = NDArray[Any]
_MOST_TARGETS = 6
_MOST_POINTS = 1500
_MOST_CLASSES = 40


def answers_section(histories: Sequence[History]) -> Markup:
    """Test answers of the selected weights, all trials together."""
    figures: list[Content] = []
    remarks: list[Content] = []
    for history in histories:
        found = [load_answers(history.run.place(t)) for t in history.run.trials]
        kept = [answers for answers in found if answers is not None]
        schema = history.run.schema
        name = "" if len(histories) == 1 else f"{history.label}, "
        if not kept:
            remarks.append(note(f"{history.label}: no answers on the test set were kept."))
        elif schema.task == "regression":
            figures += [_parity(name, *one) for one in _by_target(history, kept)]
        elif schema.task != "multiclass":
            for k, (target, truth, answer) in enumerate(_by_target(history, kept)):
                words = history.run.labels.classes[k]
                figures.append(_matrix(name + target, truth, answer > 0, words))
        elif schema.outputs <= _MOST_CLASSES:
            truth = np.concatenate([a.target for a in kept])
            answer = np.concatenate([a.prediction.argmax(axis=1) for a in kept])
            (words,) = history.run.labels.classes
            figures.append(_matrix(f"{name}all classes", truth, answer, words))
        else:
            remarks.append(note(f"{history.label}: {schema.outputs} classes are too many to draw."))
        if schema.task != "multiclass" and schema.outputs > _MOST_TARGETS:
            text = f"{history.label}: the first {_MOST_TARGETS} of {schema.outputs} targets."
            remarks.append(note(text))
        if len(kept) > 1:
            text = f"{history.label}: {len(kept)} trials together, each with its own answers."
            remarks.append(note(text))
    return join([grid(*figures) if figures else None, *remarks])


def _by_target(history: History, kept: Sequence[Answers]) -> list[tuple[str, Values, Values]]:
    """Name, true values and answers of the first targets, all trials end to end."""
    names = enumerate(history.run.labels.targets[:_MOST_TARGETS])
    return [
        (
            name,
            np.concatenate([a.target[:, k] for a in kept]),
            np.concatenate([a.prediction[:, k] for a in kept]),
        )
        for k, name in names
    ]


def _parity(before: str, name: str, truth: Values, answer: Values) -> Markup:
    known = is_labelled(truth) & np.isfinite(answer)
    truth, answer = truth[known].astype(np.float64), answer[known].astype(np.float64)
    error = np.abs(truth - answer).mean() if len(truth) else np.nan
    shown = evenly(len(truth), _MOST_POINTS)
    plot = parity_plot(f"Prediction over true value, {before}{name}", truth[shown], answer[shown])
    count = counted(len(truth), "answer")
    if len(shown) < len(truth):
        count += f", {len(shown):,} drawn"
    return figure(plot, join([tag("b", before + name), f": {count}; MAE {error:.4g}."]))


def _matrix(title: str, truth: Values, answer: Values, names: Sequence[str]) -> Markup:
    known, classes = is_labelled(truth), len(names)
    cell = truth[known].astype(np.int64) * classes + answer[known].astype(np.int64)
    counts = np.bincount(cell, minlength=classes**2).reshape(classes, classes).astype(np.float64)
    plot = confusion_plot(f"Confusion matrix, {title}", counts, names)
    right = np.trace(counts) / max(counts.sum(), 1.0)
    number = counted(int(counts.sum()), "answer")
    text = f": {number}, {100 * right:.1f} % right. Shares are of each row."
    return figure(plot, join([tag("b", title), text]))
