"""Answers of a model in the user's words, and which rows were in which part."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradformer.graphs.arrays import Task
from gradformer.graphs.labels import Labels
from gradformer.graphs.splits import Split
from gradformer.graphs.targets import is_labelled
from gradformer.graphs.user_data import Reading
from gradformer.training.data import TrainingData
from gradformer.training.keepsakes import Answers


def chances(rows: NDArray[np.float32], task: Task) -> NDArray[np.float64]:
    """Logits [rows, outputs] as probabilities; values of a regression as they are."""
    values = rows.astype(np.float64)
    if task == "multiclass":
        powers = np.exp(values - values.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))
    if task in ("binary", "multilabel"):
        return np.asarray(0.5 * (1 + np.tanh(values / 2)))
    return values


def deviation(trials: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard deviation (of the sample) over trials [trials, …]; 0 of a single one."""
    return np.asarray(trials.std(axis=0, ddof=min(len(trials) - 1, 1)))


def columns(labels: Labels, trials: NDArray[np.float64]) -> dict[str, list[Any]]:
    """Predictions [trials, rows, outputs] in words: column name → a value for each row.

    ``<target>_predicted`` is the value or the class; ``<target>_p_<class>`` the probability of a
    class (of two, the second); with several trials ``<target>_spread`` is the standard deviation
    between them, of the value or of the probability of the predicted class.
    """
    value, spread = trials.mean(axis=0), deviation(trials)
    several = len(trials) > 1
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


def cell(value: Any, mark: str = ".") -> str:
    """A value as the cell of a table, with a decimal ``mark``: a number with the digits that
    32 bits have of it.

    >>> cell(0.1), cell(-253998.041, ","), cell(12.0), cell(1.1e-9)
    ('0.1', '-253998,05', '12', '1.1e-09')
    """
    if not isinstance(value, float):
        return str(value)
    plain = value == 0.0 or 1e-4 <= abs(value) < 1e16
    write = np.format_float_positional if plain else np.format_float_scientific
    return write(np.float32(value), trim="-").replace(".", mark)


def with_names(head: Iterable[str], names: Iterable[str]) -> list[str]:
    """``head`` and then ``names``, with a number where a name is there already.

    >>> with_names(["smiles", "y_predicted"], ["y_predicted"])
    ['smiles', 'y_predicted', 'y_predicted_2']
    """
    found = [*head]
    for name in names:
        free = (name if k == 1 else f"{name}_{k}" for k in count(1))
        found.append(next(one for one in free if one not in found))
    return found


def rows_table(data: TrainingData, split: Split, answers: Answers | None) -> str | None:
    """The part of each row of a user's data as CSV, and in the test part its targets beside the
    answers; None for a benchmark.

    Rows are graphs as their reader counts them, or nodes where there is one graph. Rows that are in
    no part have an empty cell. Answers for the nodes of several graphs are left out.
    """
    if data.rows is None:
        return None
    labels = Reading.from_dict(data.about["reading"]).labels
    nodes = data.over == "nodes"
    rows = np.arange(data.store.sizes[0]) if nodes else data.rows
    part = {item: name for name, items in split._asdict().items() for item in items.tolist()}
    said: list[tuple[str, list[Any]]] = []
    if answers is not None and len(answers.prediction) == len(split.test):
        predicted = columns(labels, chances(answers.prediction, labels.task)[None])
        said = [*_truth(labels, answers.target).items(), *predicted.items()]
    cells = dict(zip(split.test.tolist(), zip(*([cell(v) for v in c] for _, c in said))))
    text, empty = io.StringIO(), ("",) * len(said)
    writer = csv.writer(text, lineterminator="\n")
    first = "node" if nodes else "row", "part"
    writer.writerow(with_names(first, (name for name, _ in said)))
    for item, row in enumerate(rows.tolist()):
        writer.writerow([row, part.get(item, ""), *cells.get(item, empty)])
    return text.getvalue()


def _truth(labels: Labels, y: NDArray[Any]) -> dict[str, list[Any]]:
    """Target → its value or word for each row, empty where it is missing."""
    found = {}
    for k, (target, column) in enumerate(zip(labels.targets, y.reshape(len(y), -1).T)):
        words = labels.classes[k] if labels.classes else None
        known = zip(column.tolist(), is_labelled(column).tolist())
        found[target] = [
            "" if not has else value if words is None else words[int(value)] for value, has in known
        ]
    return found
