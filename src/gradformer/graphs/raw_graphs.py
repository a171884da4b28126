"""One graph as a user gives it: its size, features and edges, checked by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import InputError, counted

_MOST_NODES = 1_000_000

Features = NDArray[np.int64] | NDArray[np.float32]


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
        raise InputError(f"{name} has shape {array.shape}, expected {counted(rows, 'row')}")
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
