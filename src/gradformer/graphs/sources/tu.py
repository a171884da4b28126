"""The text format of the TU Dortmund collection: NAME_A.txt and its companions.

Line i of NAME_A.txt is one directed edge "source, target" over all nodes counted from 1; the other
files have a line for each node (graph_indicator, node_labels, node_attributes), edge (edge_labels,
edge_attributes) or graph (graph_labels).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import InputError, counted
from gradformer.graphs.arrays import GraphArrays, Schema
from gradformer.graphs.sources.text import floats, integers

Read = Callable[[str], bytes | None]
FeatureFile = Literal["labels", "attributes"]
Column = NDArray[np.int64] | NDArray[np.float32] | None


class TUGraphs(NamedTuple):
    """Graphs end to end as :class:`GraphArrays` has them; labels have the numbers of the files."""

    node_ptr: NDArray[np.int64]
    edge_ptr: NDArray[np.int64]
    edge_index: NDArray[np.int32]
    x: Column
    edge_attr: Column


def read_tu(name: str, read: Read) -> GraphArrays:
    """The benchmark ``name``; ``read("A")`` is the content of NAME_A.txt, None if absent.

    Labels of nodes and edges are counted from 0; the classes of graphs are numbered in the order of
    their labels.
    """
    labels = _column(name, read, "graph_labels")
    found = tu_graphs(name, read, len(labels))
    x, node = _from_zero(found.x)
    edge_attr, edge = _from_zero(found.edge_attr)
    classes, y = np.unique(labels, return_inverse=True)
    schema = Schema(node, edge, "graph", "multiclass", len(classes))
    return GraphArrays(*found[:3], schema, x, edge_attr, y.astype(np.int64))


def tu_graphs(
    name: str,
    read: Read,
    graphs: int | None = None,
    *,
    node: FeatureFile = "labels",
    edge: FeatureFile = "labels",
) -> TUGraphs:
    """The graphs of the set ``name``; as many as NAME_graph_indicator.txt has, if not said.

    Self-loops and repeated edges are dropped. Labels are one categorical column each, attributes
    are floats. Without the file there are no features.
    """
    edges = integers(_required(name, read, "A"), 2, f"{name}_A.txt")
    source, target = np.ascontiguousarray(edges.T) - 1
    indicator = _column(name, read, "graph_indicator") - 1
    nodes = len(indicator)
    if graphs is None:  # no more than nodes, whatever number the file claims
        graphs = min(int(indicator.max(initial=-1)) + 1, nodes)
    falls = np.flatnonzero(np.diff(indicator) < 0)
    if nodes and (len(falls) or indicator[0] < 0 or indicator[-1] >= graphs):
        row = int(falls[0]) + 2 if len(falls) else (1 if indicator[0] < 0 else nodes)
        raise InputError(
            f"{name}_graph_indicator.txt, line {row}: graphs must be numbered 1 to {graphs} "
            f"in ascending order, got {indicator[row - 1] + 1}"
        )
    outside = (np.minimum(source, target) < 0) | (np.maximum(source, target) >= nodes)
    if not outside.any():
        outside = indicator[source] != indicator[target]
    if outside.any():
        row = int(outside.argmax())
        pair = f"{source[row] + 1}, {target[row] + 1}"
        raise InputError(
            f"{name}_A.txt, line {row + 1}: edge {pair} does not join two of the {nodes} nodes "
            "of one graph"
        )
    edge_attr = _features(name, read, f"edge_{edge}", len(edges))
    code = target * nodes + source
    kept = _simple(code, nodes)
    if edge_attr is not None:
        _refuse_contradictions(name, edges, code, kept, edge_attr)
        edge_attr = edge_attr[kept]
    source, target = source[kept], target[kept]
    node_ptr = np.searchsorted(indicator, np.arange(graphs + 1)).astype(np.int64)
    graph_of_edge = indicator[target]
    return TUGraphs(
        node_ptr,
        np.searchsorted(graph_of_edge, np.arange(graphs + 1)).astype(np.int64),
        (np.stack([source, target]) - node_ptr[graph_of_edge]).astype(np.int32),
        _features(name, read, f"node_{node}", nodes),
        edge_attr,
    )


def _simple(code: NDArray[np.int64], nodes: int) -> NDArray[np.int64]:
    """Places of the edges without self-loops, each pair once, by target, then source.

    ``code`` [E] is target · nodes + source.
    """
    order = np.argsort(code, kind="stable")
    code = code[order]
    wanted = code // nodes != code % nodes
    wanted[1:] &= code[1:] != code[:-1]
    return order[wanted]


def _refuse_contradictions(
    name: str, ends: NDArray[np.int64], code: NDArray[np.int64], kept: NDArray[np.int64], value: Any
) -> None:
    """Raise if one of the edges ``ends`` [E, 2] is listed again with another ``value`` [E, ·].

    ``code`` [E] numbers the pairs; those that are ``kept`` stand in its order.
    """
    again = np.setdiff1d(np.flatnonzero(ends[:, 0] != ends[:, 1]), kept)
    first = kept[np.searchsorted(code[kept], code[again])]
    if len(wrong := again[(value[again] != value[first]).any(axis=1)]):
        row = int(wrong[0])
        raise InputError(
            f"{name}_A.txt, line {row + 1}: edge {ends[row, 0]}, {ends[row, 1]} is listed twice "
            "with different features; list it once"
        )


def _features(name: str, read: Read, kind: str, rows: int) -> Column:
    content = read(kind)
    if content is None:
        return None
    file = f"{name}_{kind}.txt"
    value = integers(content, None, file) if kind.endswith("labels") else floats(content, file)
    if len(value) != rows:
        raise InputError(f"{file} has {counted(len(value), 'line')}, expected {rows}")
    return value


def _from_zero(labels: Column) -> tuple[Column, tuple[int, ...]]:
    """Labels [rows, columns] less the smallest of each column, and how many there may be."""
    if labels is None:
        return None, ()
    counted = labels - labels.min(axis=0) if len(labels) else labels
    return counted, tuple((counted.max(axis=0, initial=0) + 1).tolist())


def _required(name: str, read: Read, kind: str) -> bytes:
    content = read(kind)
    if content is None:
        raise InputError(f"{name}_{kind}.txt is missing; a TU dataset needs it")
    return content


def _column(name: str, read: Read, kind: str) -> NDArray[np.int64]:
    return integers(_required(name, read, kind), 1, f"{name}_{kind}.txt")[:, 0]
