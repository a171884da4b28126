"""JSON-lines files of graphs: one object a line.

``{"num_nodes": 3, "edges": [[0, 1], [1, 2]], "x": [[6], [6], [8]], "y": 1.5}``

Keys: ``num_nodes`` and ``edges`` (pairs, numbered from 0) are required. ``x`` has a row for each
node and ``edge_attr`` one for each edge: whole numbers are categories, numbers with a decimal point
are quantities. ``y`` is a number, a word, a list of them (several targets), or with level "node" a
list with one value for each node; null is missing. Edges are undirected, and may be listed in one
direction or both, unless ``"directed": true``. ``split`` is "train", "val" or "test";
in a file with a single graph and level "node", a list with one of these, or null, for each node.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gradformer.errors import InputError, choice, suggest
from gradformer.graphs.arrays import Level
from gradformer.graphs.assemble import assemble
from gradformer.graphs.labels import NO_VALUE, present
from gradformer.graphs.raw_graphs import RawGraph, edge_list, feature_matrix, node_count
from gradformer.graphs.user_data import MARK, Inputs, Reading, RowChecks, UserData, read_text
from gradformer.graphs.user_splits import part_number

JSONL_SUFFIXES = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz")
_KEYS = ("num_nodes", "edges", "x", "edge_attr", "y", "directed", "split")


def read_jsonl(
    path: str | Path,
    level: Level = "graph",
    task: str | None = None,
    skip_invalid: bool = False,
    like: Reading | None = None,
    labelled: bool = True,
    inputs: Inputs | None = None,
) -> UserData:
    """Read graphs and their targets; ``like`` is the reading of the training data, ``inputs`` what
    a model was trained on that is to be trained further on these.

    ``level`` says whether y belongs to a graph or to its nodes. The task is found from y if not
    stated, see :func:`~gradformer.graphs.labels.find_labels`. New graphs, for which there is
    ``like``, are not split.
    """
    path = Path(path)
    choice("level", level, ("graph", "node"))
    rows = RowChecks(str(path), "line", skip_invalid)
    lines = enumerate(read_text(path).removeprefix(MARK).split("\n"), start=1)
    to_graph = partial(_graph, labelled, like is None)
    graphs = rows.graphs([(line, text) for line, text in lines if text.strip()], to_graph)
    return assemble(graphs, rows, kind="graphs", level=level, task=task, inputs=inputs, like=like)


def _graph(labelled: bool, with_split: bool, line: int, text: str) -> RawGraph:
    try:
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise InputError(
            f"not valid JSON: character {error.colno}: {error.msg}; a line is one whole object"
        ) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise InputError(f"expected an object, found {_type(value)}")
    for key in value:
        if key not in _KEYS:
            raise InputError(f"unknown key {key!r}; {suggest(key, _KEYS)}")
    for key in ("num_nodes", "edges"):
        if key not in value:
            raise InputError(f"the key {key!r} is missing")
    num_nodes = node_count(value["num_nodes"])
    directed = value.get("directed", False)
    if not isinstance(directed, bool):
        raise InputError(f"directed must be true or false, found {_type(directed)}")
    pairs = _pairs(value["edges"])
    features = {
        key: feature_matrix(value[key], key, count)
        for key, count in (("x", num_nodes), ("edge_attr", len(pairs)))
        if value.get(key) is not None
    }
    edge_index, edge_attr = edge_list(pairs, num_nodes, features.get("edge_attr"), directed)
    return RawGraph(
        row=line,
        num_nodes=num_nodes,
        edge_index=edge_index,
        x=features.get("x"),
        edge_attr=edge_attr,
        y=_targets(value.get("y")) if labelled else None,
        split=_parts(value.get("split")) if with_split else None,
    )


def _pairs(edges: Any) -> np.ndarray:
    """The list of edges as an array [edges, 2]."""
    if not isinstance(edges, list):
        raise InputError(f"edges must be a list of pairs, found {_type(edges)}")
    if not edges:
        return np.zeros((0, 2), np.int64)
    try:
        pairs = np.array(edges)
    except ValueError:
        raise InputError("edges must be a list of pairs, some have another length") from None
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise InputError("edges must be a list of pairs of whole numbers")
    return pairs


def _targets(y: Any) -> list[str | None] | None:
    """y as texts, None where there is none."""
    if y is None:
        return None
    return [_target(value) for value in (y if isinstance(y, list) else [y])]


def _target(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return json.dumps(value)
    if not isinstance(value, int | float | str):
        raise InputError(f"y must be a number, a word or a list of them, found {_type(value)}")
    return present(str(value), NO_VALUE)


def _parts(split: Any) -> list[int] | None:
    """The numbers of the parts that ``split`` names, None where there is none."""
    if split is None:
        return None
    parts = []
    for word in split if isinstance(split, list) else [split]:
        if not isinstance(word, str | None):
            raise InputError(f"split must be train, val or test, found {_type(word)}")
        parts.append(-1 if word is None else part_number(word))
    return parts


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number; write null for a missing value")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, which would else keep the last of two values in silence."""
    value = dict(pairs)
    if len(value) < len(pairs):
        ((key, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"key {key!r} stands twice in one object")
    return value


def _type(value: Any) -> str:
    """What JSON calls the type of a value."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    return "null" if value is None else names.get(type(value), "a number")
