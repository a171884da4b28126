"""Many graphs of a user, checked against each other (or the training data) and laid end to end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import InputError, counted
from gradformer.graphs.arrays import GraphArrays, Level, Vocabulary, split_over, width_of
from gradformer.graphs.labels import Labels, find_labels
from gradformer.graphs.raw_graphs import Features, RawGraph
from gradformer.graphs.user_data import Inputs, Kind, Reading, RowChecks, Seen, UserData
from gradformer.structure.pointers import pointer

_MOST_CATEGORIES = 100_000
_BY_NODE = "for one value a node, say --level node, level='node'"

FeatureName = Literal["x", "edge_attr"]


def assemble(
    graphs: Iterable[RawGraph],
    rows: RowChecks,
    kind: Kind,
    level: Level = "graph",
    task: str | None = None,
    targets: Sequence[str] | None = None,
    inputs: Inputs | None = None,
    smiles: str | None = None,
    like: Reading | None = None,
) -> UserData:
    """Check that the graphs agree with each other (or with ``like``) and lay them end to end.

    ``targets`` names the values of y; ``inputs``, what features may hold, are found if not given.
    """
    if like is not None:
        like.expect(kind, rows.where)
        level, inputs, smiles = like.level, like.inputs, like.smiles
    node, kept = _settle_features("x", list(graphs), inputs, rows)
    edge, kept = _settle_features("edge_attr", kept, inputs, rows)
    kept = _settle_lengths_of_y(kept, rows, level, like)
    kept = _settle_lengths_of_split(kept, rows, level)
    rows.require_some(len(kept))
    if like is not None:
        labels = like.labels
    else:
        labels = find_labels(_columns(kept, rows.where, level, targets), task, rows.where)
    numbers, kept = _encode_y(kept, rows, level, labels)
    rows.require_some(len(kept))
    if numbers is not None and like is None:
        labels.tell_rounded(numbers, rows.where)
    x = _stack([graph.x for graph in kept], node)
    edge_attr = _stack([graph.edge_attr for graph in kept], edge)
    seen = (_seen(x), _seen(edge_attr)) if inputs is None else inputs.seen
    reading = Reading(kind, node, edge, level, labels, smiles, seen)
    arrays = GraphArrays(
        node_ptr=pointer([graph.num_nodes for graph in kept]),
        edge_ptr=pointer([graph.edge_index.shape[1] for graph in kept]),
        edge_index=np.concatenate([graph.edge_index for graph in kept], axis=1),
        schema=reading.schema,
        x=x,
        edge_attr=edge_attr,
        y=None if numbers is None else labels.array(numbers),
        split=_splits(kept, level),
    )
    return UserData(
        arrays=arrays.check(rows.where),
        rows=np.array([graph.row for graph in kept], dtype=np.int64),
        reading=reading,
        where=rows.where,
        skipped=tuple(sorted(rows.skipped)),
        unit=rows.unit,
    )


def _settle_features(
    name: FeatureName, graphs: list[RawGraph], inputs: Inputs | None, rows: RowChecks
) -> tuple[Vocabulary, list[RawGraph]]:
    """The vocabulary of x or edge_attr, and the graphs that fit it.

    Where it is not given, most graphs say how many columns there are; they are categories if all
    graphs hold whole numbers only, else quantities.
    """
    seen: Seen = ()
    if inputs is not None:
        vocabulary = inputs.node if name == "x" else inputs.edge
        seen = inputs.seen[0 if name == "x" else 1]
    else:
        values = [value for graph in graphs if (value := _value(graph, name)) is not None]
        without = sum(_lacks(graph, name) for graph in graphs)
        width = _most_common([value.shape[1] for value in values] + [0] * without)
        categorical = all(value.dtype.kind == "i" for value in values if value.shape[1] == width)
        vocabulary = (_MOST_CATEGORIES,) * width if categorical else width
    settled = vocabulary
    sizes = () if isinstance(vocabulary, int) else vocabulary
    known = [np.isin(np.arange(size), own) for size, own in zip(sizes, seen)]
    kept = rows.fitting(graphs, lambda graph: _misfit(name, graph, settled, known, inputs))
    if inputs is None and not isinstance(vocabulary, int):
        largest = np.zeros(len(vocabulary), np.int64)
        for graph in kept:
            value = _value(graph, name)
            if value is not None:
                largest = np.maximum(largest, value.max(axis=0))
        vocabulary = tuple((largest + 1).tolist())
    return vocabulary, kept


def _seen(value: Features | None) -> Seen:
    """The categories in each column, ascending; nothing where columns are quantities."""
    if value is None or value.dtype.kind != "i":
        return ()
    return tuple(tuple(np.unique(column).tolist()) for column in value.T)


def _value(graph: RawGraph, name: FeatureName) -> Features | None:
    """x or edge_attr; None also if it has no rows."""
    value = graph.x if name == "x" else graph.edge_attr
    return None if value is None or not len(value) else value


def _lacks(graph: RawGraph, name: FeatureName) -> bool:
    """Whether the features are absent though there are nodes or edges to have them."""
    return _value(graph, name) is None and (name == "x" or graph.edge_index.shape[1] > 0)


def _most_common(counts: Iterable[int]) -> int:
    """The first of the most frequent numbers; 0 of none."""
    ranked = Counter(counts).most_common(1)
    return ranked[0][0] if ranked else 0


def _misfit(
    name: FeatureName,
    graph: RawGraph,
    vocabulary: Vocabulary,
    known: list[NDArray[np.bool_]],
    inputs: Inputs | None,
) -> str | None:
    """Why the features of a graph do not fit the vocabulary; None if they do.

    ``known`` says of each category of each column if it was seen; nothing where all are known.
    Without ``inputs`` the vocabulary is that of the graphs themselves.
    """
    width = width_of(vocabulary)
    whose = f" of {inputs.run}" if inputs is not None and inputs.run is not None else ""
    others = "other graphs have" if inputs is None else f"the training data{whose} have"
    value = _value(graph, name)
    if value is None:
        bad = width > 0 and _lacks(graph, name)
        return f"has no {name}, {others} {counted(width, 'column')}" if bad else None
    if value.shape[1] != width:
        return f"{name} has {counted(value.shape[1], 'column')}, {others} {width}"
    if isinstance(vocabulary, int):
        return None
    if value.dtype.kind != "i":
        return f"{name} holds decimal numbers, {others} categories (whole numbers)"
    outside = (value < 0) | (value >= np.array(vocabulary))
    for column, own in enumerate(known):
        outside[:, column] |= ~own[value[:, column].clip(0, len(own) - 1)]
    if not outside.any():
        return None
    row, column = (int(index) for index in np.argwhere(outside)[0])
    cell = f"{name}[{row}, {column}] = {value[row, column]}"
    if inputs is not None and value[row, column] >= 0:
        return f"{cell} is a category unseen in training{whose}"
    return (
        f"{cell} is not a category (0 to {vocabulary[column] - 1}); "
        "write quantities with a decimal point"
    )


def _settle_lengths_of_y(
    graphs: list[RawGraph], rows: RowChecks, level: Level, like: Reading | None
) -> list[RawGraph]:
    """The graphs with as many values of y as there are targets (or nodes)."""
    if like is not None:
        targets = len(like.labels.targets)
    else:
        targets = _most_common(len(graph.y) for graph in graphs if graph.y is not None)

    def misfit(graph: RawGraph) -> str | None:
        expected = graph.num_nodes if level == "node" else targets
        if graph.y is None or len(graph.y) == expected:
            return None
        values = f"y has {counted(len(graph.y), 'value')}"
        if level == "node":
            return f"{values}, expected one for each of {counted(expected, 'node')}"
        hint = f" ({_BY_NODE})" if len(graph.y) == graph.num_nodes else ""
        return f"{values}, other graphs have {expected}{hint}"

    return rows.fitting(graphs, misfit)


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
    if targets is None and len(graphs) == 1 and width == graphs[0].num_nodes > 1:
        raise InputError(f"{where}: one graph, and y has a value for each of its nodes; {_BY_NODE}")
    names = targets or place_names(width)
    return {name: [y[t] for y in labelled] for t, name in enumerate(names)}


def place_names(width: int) -> list[str]:
    """What targets are called that go by their places."""
    return ["y"] if width == 1 else [f"y[{t}]" for t in range(width)]


def _encode_y(
    graphs: list[RawGraph], rows: RowChecks, level: Level, labels: Labels
) -> tuple[list[float] | None, list[RawGraph]]:
    """The numbers of y, and the graphs whose values could be read."""
    if all(graph.y is None for graph in graphs):
        return None, graphs
    numbers: list[float] = []
    kept = []
    targets = len(labels.targets)  # a single one where nodes have targets
    for graph in graphs:
        missing = [None] * (graph.num_nodes if level == "node" else targets)
        values = missing if graph.y is None else graph.y
        try:
            numbers += [labels.number(k % targets, value) for k, value in enumerate(values)]
        except InputError as error:
            rows.reject(graph.row, str(error))
        else:
            kept.append(graph)
    return numbers, kept


def _stack(values: list[Features | None], vocabulary: Vocabulary) -> Features | None:
    """The features of all graphs end to end; None where the vocabulary is empty."""
    if not width_of(vocabulary):
        return None
    dtype = np.float32 if isinstance(vocabulary, int) else np.int64
    parts = [value.astype(dtype) for value in values if value is not None and len(value)]
    return np.concatenate([np.zeros((0, width_of(vocabulary)), dtype), *parts])


def _settle_lengths_of_split(
    graphs: list[RawGraph], rows: RowChecks, level: Level
) -> list[RawGraph]:
    """The graphs with one part each; a single graph with labelled nodes has one for each node."""
    of_nodes = split_over(level, len(graphs)) == "nodes"

    def misfit(graph: RawGraph) -> str | None:
        expected = graph.num_nodes if of_nodes else 1
        if graph.split is None or len(graph.split) == expected:
            return None
        each = "node of a single graph" if of_nodes else "graph"
        nodes = not of_nodes and len(graphs) == 1 and len(graph.split) == graph.num_nodes
        hint = f" ({_BY_NODE})" if nodes else ""
        values = f"split has {counted(len(graph.split), 'value')}"
        return f"{values}, expected {expected}: one for each {each}{hint}"

    return rows.fitting(graphs, misfit)


def _splits(graphs: list[RawGraph], level: Level) -> NDArray[np.int8] | None:
    """The user's own split, [graphs, 1], or [nodes, 1] of a single graph with labelled nodes.

    -1 stands for what is in no part. A graph that alone was left shares its part with its nodes.
    """
    if all(graph.split is None for graph in graphs):
        return None
    of_nodes = split_over(level, len(graphs)) == "nodes"
    parts: list[int] = []
    for graph in graphs:
        split = list(graph.split or (-1,))
        parts += split * graph.num_nodes if of_nodes and len(split) == 1 else split
    return np.array(parts, dtype=np.int8)[:, None]
