"""What readers of Python objects share: targets from lists, arrays, tensors and pandas columns,
parts of a split, and the checks of each graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from gradformer.errors import InputError, counted
from gradformer.graphs.assemble import assemble, place_names
from gradformer.graphs.labels import NO_VALUE, present
from gradformer.graphs.raw_graphs import RawGraph
from gradformer.graphs.user_data import Kind, Reading, RowChecks, UserData
from gradformer.graphs.user_splits import part_number

Targets = Sequence[Any] | NDArray[Any] | pd.Series | pd.DataFrame


def collect(
    objects: Sequence[Any],
    convert: Callable[[int, Any], RawGraph],
    kind: Kind,
    skip_invalid: bool,
    *,
    y: Targets | None,
    own: Callable[[Any], Any],
    split: Sequence[str | None] | None,
    task: str | None,
    like: Reading | None,
    labelled: bool,
    **options: Any,
) -> UserData:
    """Convert each object under the checks that all readers share; rows count from 0.

    The targets are ``y``, or else each object's ``own``; ``split`` names the part of each, None for
    no part.

    Where the task is not stated it is a regression if some target is a float other than 0 and 1.
    Integers, words and these two are what :func:`~gradformer.graphs.labels.find_labels` takes them
    for: Python's numbers have a type, which those of a table have not.
    """
    rows = RowChecks("the list", "position", skip_invalid)
    what = "molecule" if kind == "smiles" else "graph"
    apart, names = _target_rows(y, len(objects), what, like, labelled)
    values = [*map(own, objects)] if apart is None else apart
    words = None if split is None else _words(split, len(objects))

    def whole(row: int, item: Any) -> RawGraph:
        graph = convert(row, item)
        if labelled:
            graph = replace(graph, y=_texts(values[row]))
        if words is None:
            return graph
        word = words[row]
        return replace(graph, split=[-1 if word is None else part_number(word)])

    graphs = list(rows.graphs(list(enumerate(objects)), whole))
    if task is None and like is None and any(_has_quantities(values[g.row]) for g in graphs):
        task = "regression"
    return assemble(graphs, rows, kind=kind, task=task, targets=names, like=like, **options)


def _words(split: Sequence[str | None], count: int) -> list[str | None]:
    """The part of each object, in the user's words."""
    if isinstance(split, str) or not isinstance(split, Iterable):
        raise InputError(
            f"split: got {split!r}, expected a list with train, val or test for each; how to split "
            "is a setting: settings=['data.split=scaffold']"
        )
    given = list(split)
    if len(given) != count:
        raise InputError(f"split has {counted(len(given), 'entry')} for {counted(count, 'graph')}")
    return [None if word is None else present(str(word)) for word in given]


def _target_rows(
    y: Targets | None, count: int, what: str, like: Reading | None, labelled: bool
) -> tuple[list[Any] | None, list[str] | None]:
    """The target of each object from a list, an array or pandas, None if there is no ``y``; and
    what a DataFrame calls its columns. These come in the order in which ``like`` has learned them,
    and may be any unless ``labelled``."""
    if y is None:
        return None, None
    names = None
    if isinstance(y, pd.DataFrame) and labelled:
        y, names = _by_name(y, like)
    if isinstance(y, pd.Series | pd.DataFrame):
        y = y.astype(object).to_numpy()  # else whole numbers beside a gap become decimal
    elif isinstance(y, np.ma.MaskedArray):
        y = y.tolist()  # None where it is masked
    if not isinstance(y, Sequence | np.ndarray | torch.Tensor) or getattr(y, "ndim", 1) == 0:
        raise InputError(f"y: got {type(y).__name__}, expected a list with one entry for each")
    rows = list(y)
    if len(rows) != count:
        raise InputError(f"y has {counted(len(rows), 'entry')} for {counted(count, what)}")
    return rows, names


def _by_name(y: pd.DataFrame, like: Reading | None) -> tuple[pd.DataFrame, list[str] | None]:
    """The columns that are targets, and their names; or all and None, if they go by place."""
    if not all(isinstance(name, str) for name in y.columns):
        return y, None
    if not y.columns.is_unique:
        twice = y.columns[y.columns.duplicated()][0]
        raise InputError(f"y has more than one column {twice!r}; rename one")
    names = list(y.columns) if like is None else list(like.labels.targets)
    lacks = [name for name in names if name not in y.columns]
    if not lacks:
        return y[names], names
    if names == place_names(len(names)) or len(names) == len(y.columns) == 1:
        return y, None
    raise InputError(
        f"y has no column {lacks[0]!r}, which the run has learned; rename one, or give an array, "
        "whose columns go by place"
    )


def _has_quantities(y: Any) -> bool:
    """Whether a target of one graph is a float other than 0, 1 and NaN."""
    floats = (value for value in _values(y) if isinstance(value, float | np.floating))
    return any(value not in (0.0, 1.0) and value == value for value in floats)


def _texts(y: Any) -> list[str | None] | None:
    """Targets of one graph as texts; None is missing, and so is NaN."""
    if y is None:
        return None
    return [None if value is None else present(str(value), NO_VALUE) for value in _values(y)]


def _values(y: Any) -> list[Any]:
    """The single values of a graph's target."""
    array = dense(y, "y") if isinstance(y, torch.Tensor) else np.asarray(y, dtype=object)
    values = array.reshape(-1).tolist()
    return [value.item() if isinstance(value, torch.Tensor) else value for value in values]


def dense(value: Any, name: str) -> np.ndarray:
    """A tensor as an array, floats in float64."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        raise InputError(f"{name} must be a dense tensor, found {type(value).__name__}")
    value = value.detach().cpu()
    return (value.double() if value.is_floating_point() else value).numpy()
