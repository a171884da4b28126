"""Graphs as a user gives them, one by one, checked against each other and laid end to end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import InputError
from gradformer.graphs.arrays import GraphArrays, Level
from gradformer.graphs.labels import Labels, find_labels
from gradformer.graphs.user_data import Kind, Reading, RowChecks, UserData

_MOST_NODES = 1_000_000
_MOST_CATEGORIES = 100_000

Vocabulary = tuple[int, ...] | int
Features = NDArray[np.int64] | NDArray[np.float32]
FeatureName = Literal["x", "edge_attr"]


@dataclass(frozen=True)
class RawGraph:
    """One graph; ``row`` says where it came from.

    Shapes: edge_index [2, edges], both directions where undirected; x [nodes, columns] and
    edge_attr [edges, columns], integers or floats; y one text for each target, or for each node;
    split likewise, 0 training, 1 validation, 2 test, -1 none.
    """

    row: int
    num_nodes: int
    edge_index: NDArray[np.int32]
    x: Features | None = None
    edge_attr: Features | None = None
    y: Sequence[str | None] | None = None
    split: Sequence[int] | None = None


def node_count(value: Any) -> int:
    """``value`` if it is a number of nodes that a graph can have."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"num_nodes must be a whole number, found {value!r}")
    if not 0 < value <= _MOST_NODES:
        raise InputError(f"a graph has 1 to {_MOST_NODES:,} nodes, this one has {value}")
    return value


def feature_matrix(value: Any, name: str, rows: int) -> Features:
    """``value`` (nested lists or an array; one column may be flat) as [rows, columns].

    Whole numbers become int64: they are categories. Anything with a decimal point is a quantity.
    """
    try:
        array = np.asarray(value)
    except ValueError:
        raise InputError(f"{name} has rows of different lengths") from None
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or len(array) != rows:
        raise InputError(f"{name} has shape {array.shape}, expected {rows} rows")
    if array.size == 0:
        return np.zeros(array.shape, np.int64)
    if array.dtype.kind not in "iuf":
        raise InputError(f"{name} must hold numbers only")
    if array.dtype.kind in "iu":
        if array.max() > np.iinfo(np.int64).max:
            raise InputError(f"{name} holds {array.max()}, which is too large")
        return array.astype(np.int64)
    with np.errstate(over="ignore"):
        floats = array.astype(np.float32)
    if not np.isfinite(floats).all():
        row, column = np.argwhere(~np.isfinite(floats))[0]
        raise InputError(
            f"{name}[{row}, {column}] = {array[row, column]} is not a finite 32-bit number"
        )
    return floats


def edge_list(
    pairs: NDArray[Any], num_nodes: int, edge_attr: Features | None, directed: bool
) -> tuple[NDArray[np.int32], Features | None]:
    """Pairs [edges, 2] as edge_index [2, edges'], each edge once, with its attributes.

    Undirected edges are stored in both directions, however they were listed. An edge that comes
    twice must have the same attributes.
    """
    bad = (pairs < 0) | (pairs >= num_nodes)
    if bad.any():
        pair = pairs[bad.any(axis=1).argmax()].tolist()
        raise InputError(f"edge {pair} is out of range: nodes are numbered 0 to {num_nodes - 1}")
    pairs = pairs.astype(np.int64)
    if not directed:
        pairs = np.concatenate([pairs, pairs[:, ::-1]])
        if edge_attr is not None:
            edge_attr = np.concatenate([edge_attr, edge_attr])  # type: ignore[assignment]
    code = pairs[:, 0] * num_nodes + pairs[:, 1]
    _, first, same = np.unique(code, return_index=True, return_inverse=True)
    if edge_attr is not None:
        differs = (edge_attr[first[same]] != edge_attr).any(axis=1)
        if differs.any():
            pair = pairs[differs.argmax()].tolist()
            raise InputError(
                f"edge {pair} is listed twice with different edge_attr; list it once"
                + ("" if directed else ", or say that the graph is directed")
            )
    order = np.sort(first)
    kept = np.ascontiguousarray(pairs[order].T.astype(np.int32))
    return kept, None if edge_attr is None else edge_attr[order]


def assemble(
    graphs: Iterable[RawGraph],
    rows: RowChecks,
    kind: Kind,
    level: Level = "graph",
    task: str | None = None,
    targets: Sequence[str] | None = None,
    vocabularies: tuple[Vocabulary, Vocabulary] | None = None,
    smiles: str | None = None,
    like: Reading | None = None,
) -> UserData:
    """Check that the graphs agree with each other (or with ``like``) and lay them end to end.

    ``targets`` names the values of y; ``vocabularies`` (nodes, edges) are found if not given.
    """
    if like is not None:
        like.expect(kind, rows.where)
        level, vocabularies, smiles = like.level, (like.node, like.edge), like.smiles
    node, edge = vocabularies if vocabularies is not None else (None, None)
    node, kept = _settle_features("x", list(graphs), node, rows)
    edge, kept = _settle_features("edge_attr", kept, edge, rows)
    kept = _settle_lengths_of_y(kept, rows, level, like)
    rows.require_some(len(kept))
    if like is not None:
        labels = like.labels
    else:
        labels = find_labels(_columns(kept, rows.where, level, targets), task, rows.where)
    y, kept = _encode_y(kept, rows, level, labels)
    rows.require_some(len(kept))
    reading = Reading(kind, node, edge, level, labels, smiles)
    arrays = GraphArrays(
        node_ptr=_pointers(graph.num_nodes for graph in kept),
        edge_ptr=_pointers(graph.edge_index.shape[1] for graph in kept),
        edge_index=np.concatenate([graph.edge_index for graph in kept], axis=1),
        schema=reading.schema,
        x=_stack([graph.x for graph in kept], node),
        edge_attr=_stack([graph.edge_attr for graph in kept], edge),
        y=y,
        split=_splits(kept, level, rows.where),
    )
    return UserData(
        arrays=arrays.check(rows.where),
        rows=np.array([graph.row for graph in kept], dtype=np.int64),
        reading=reading,
        skipped=tuple(sorted(rows.skipped)),
    )


def _settle_features(
    name: FeatureName, graphs: list[RawGraph], vocabulary: Vocabulary | None, rows: RowChecks
) -> tuple[Vocabulary, list[RawGraph]]:
    """The vocabulary of x or edge_attr, and the graphs that fit it.

    Where it is not given, the first graph says whether there are features and how many columns;
    they are categories if all graphs hold whole numbers only, else quantities.
    """
    owned = [(graph, value) for graph in graphs if (value := _value(graph, name)) is not None]
    learned = vocabulary is None
    if vocabulary is None:
        width = owned[0][1].shape[1] if owned else 0
        categorical = all(value.dtype.kind == "i" for _, value in owned)
        vocabulary = (_MOST_CATEGORIES,) * width if categorical else width
    kept = []
    for graph in graphs:
        reason = _misfit(name, graph, vocabulary, learned)
        if reason:
            rows.reject(graph.row, reason)
        else:
            kept.append(graph)
    if learned and not isinstance(vocabulary, int):
        largest = np.zeros(len(vocabulary), np.int64)
        for graph in kept:
            value = _value(graph, name)
            if value is not None:
                largest = np.maximum(largest, value.max(axis=0))
        vocabulary = tuple((largest + 1).tolist())
    return vocabulary, kept


def _value(graph: RawGraph, name: FeatureName) -> Features | None:
    """x or edge_attr, None also where there is no row to hold anything."""
    value = graph.x if name == "x" else graph.edge_attr
    return None if value is None or not len(value) else value


def _misfit(
    name: FeatureName, graph: RawGraph, vocabulary: Vocabulary, learned: bool
) -> str | None:
    """Why the features of a graph do not fit the vocabulary; None if they do."""
    width = vocabulary if isinstance(vocabulary, int) else len(vocabulary)
    others = "other graphs have" if learned else "the training data have"
    value = _value(graph, name)
    if value is None:
        empty = name == "edge_attr" and graph.edge_index.shape[1] == 0
        return None if width == 0 or empty else f"has no {name}, {others} {width} columns"
    if value.shape[1] != width:
        return f"{name} has {value.shape[1]} columns, {others} {width}"
    if isinstance(vocabulary, int):
        return None
    if value.dtype.kind != "i":
        return f"{name} holds decimal numbers, the training data have categories (whole numbers)"
    bad = (value < 0) | (value >= np.array(vocabulary))
    if not bad.any():
        return None
    row, column = (int(index) for index in np.argwhere(bad)[0])
    cell = f"{name}[{row}, {column}] = {value[row, column]}"
    if not learned and value[row, column] >= 0:
        return f"{cell} is a category unseen in training (0 to {vocabulary[column] - 1})"
    return (
        f"{cell} is not a category (0 to {vocabulary[column] - 1}); "
        "write quantities with a decimal point"
    )


def _settle_lengths_of_y(
    graphs: list[RawGraph], rows: RowChecks, level: Level, like: Reading | None
) -> list[RawGraph]:
    """The graphs with as many values of y as there are targets (or nodes)."""
    expected = len(like.labels.targets) if like is not None else None
    kept = []
    for graph in graphs:
        if graph.y is not None:
            if level == "node":
                expected = graph.num_nodes
            expected = len(graph.y) if expected is None else expected
            if len(graph.y) != expected:
                rows.reject(graph.row, _wrong_length(len(graph.y), expected, graph, level))
                continue
        kept.append(graph)
    return kept


def _wrong_length(length: int, expected: int, graph: RawGraph, level: Level) -> str:
    if level == "node":
        return f"y has {length} values, expected one for each of the {expected} nodes"
    hint = " (for one value a node, say level='node')" if length == graph.num_nodes else ""
    return f"y has {length} values, other graphs have {expected}{hint}"


def _columns(
    graphs: list[RawGraph], where: str, level: Level, targets: Sequence[str] | None
) -> dict[str, list[str | None]]:
    """Values of y by target name."""
    labelled = [graph.y for graph in graphs if graph.y is not None]
    if not labelled or not len(labelled[0]):
        raise InputError(f"{where}: no graph has a y, so nothing can be learned")
    if level == "node":
        return {"y": [value for y in labelled for value in y]}
    width = len(labelled[0])
    names = targets or (["y"] if width == 1 else [f"y[{t}]" for t in range(width)])
    return {name: [y[t] for y in labelled] for t, name in enumerate(names)}


def _encode_y(
    graphs: list[RawGraph], rows: RowChecks, level: Level, labels: Labels
) -> tuple[NDArray[np.int64] | NDArray[np.float32] | None, list[RawGraph]]:
    """y as :class:`GraphArrays` holds it, and the graphs whose values could be read."""
    if all(graph.y is None for graph in graphs):
        return None, graphs
    numbers: list[list[float]] = []
    kept = []
    for graph in graphs:
        try:
            if level == "node":
                values = graph.y if graph.y is not None else [None] * graph.num_nodes
                numbers += [[labels.number(0, value)] for value in values]
            else:
                values = graph.y if graph.y is not None else [None] * len(labels.targets)
                numbers.append([labels.number(t, value) for t, value in enumerate(values)])
        except InputError as error:
            rows.reject(graph.row, str(error))
        else:
            kept.append(graph)
    return labels.array(numbers), kept


def _pointers(counts: Iterable[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(list(counts))]).astype(np.int64)


def _stack(values: list[Features | None], vocabulary: Vocabulary) -> Features | None:
    """The features of all graphs end to end; None where the vocabulary is empty."""
    if vocabulary in ((), 0):
        return None
    dtype = np.float32 if isinstance(vocabulary, int) else np.int64
    width = vocabulary if isinstance(vocabulary, int) else len(vocabulary)
    parts = [value.astype(dtype) for value in values if value is not None and len(value)]
    return np.concatenate([np.zeros((0, width), dtype), *parts])


def _splits(graphs: list[RawGraph], level: Level, where: str) -> NDArray[np.int8] | None:
    """The user's own split, [graphs, 1], or [nodes, 1] of a single graph with labelled nodes.

    -1 stands for what is in no part.
    """
    if all(graph.split is None for graph in graphs):
        return None
    of_nodes = level == "node" and len(graphs) == 1
    parts: list[int] = []
    for graph in graphs:
        expected = graph.num_nodes if of_nodes else 1
        split = (-1,) * expected if graph.split is None else graph.split
        if len(split) != expected:
            raise InputError(
                f"{where}: split has {len(split)} values, expected {expected}: one for each "
                + ("node of a single graph" if of_nodes else "graph")
            )
        parts += split
    return np.array(parts, dtype=np.int8)[:, None]
