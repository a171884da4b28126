"""Graphs that are Python objects already: PyG ``Data``, NetworkX graphs, SMILES."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
import pandas as pd
import torch

from gradformer.errors import InputError, choice
from gradformer.graphs.arrays import Level
from gradformer.graphs.assemble import assemble
from gradformer.graphs.molecules import (
    ATOM_VOCABULARY,
    BOND_VOCABULARY,
    from_smiles,
    smiles_reader,
)
from gradformer.graphs.object_targets import (
    Targets,
    dense,
    has_quantities,
    target_rows,
    target_texts,
)
from gradformer.graphs.raw_graphs import RawGraph, edge_list, feature_matrix, node_count
from gradformer.graphs.user_data import Kind, Reading, RowChecks, UserData, check_options
from gradformer.graphs.user_splits import PARTS

if TYPE_CHECKING:
    from torch_geometric.data import Data


def from_objects(
    objects: Any, like: Reading | None = None, labelled: bool = True, **options: Any
) -> UserData:
    """Take what the first of ``objects`` is: PyG ``Data``, NetworkX graphs or SMILES.

    ``options`` are those of the function below that takes them.
    """
    from torch_geometric.data import Data  # importing PyG takes seconds

    items = as_list(objects)
    if not items:
        raise InputError("data: the list of graphs is empty")
    for kind, convert in ((Data, from_pyg), (nx.Graph, from_networkx), (str, from_smiles_list)):
        if isinstance(items[0], kind):
            check_options(convert, options, "these graphs")
            options |= {"like": like, "labelled": labelled}
            return convert(items, **options)  # type: ignore[operator]
    raise InputError(
        f"data: got {type(items[0]).__name__}, expected PyG Data, NetworkX graphs or SMILES"
    )


def as_list(objects: Any) -> list[Any]:
    """Graphs or SMILES as a list; a single graph is a list of one."""
    from torch_geometric.data import Data

    if isinstance(objects, Data | nx.Graph):
        return [objects]
    if isinstance(objects, pd.DataFrame) or not isinstance(objects, Iterable):
        raise InputError(
            f"data: got {type(objects).__name__}, expected a path, or a list of PyG Data, NetworkX "
            "graphs or SMILES"
        )
    return list(objects)


def from_pyg(
    graphs: Iterable[Data],
    level: Level | None = None,
    task: str | None = None,
    skip_invalid: bool = False,
    like: Reading | None = None,
    labelled: bool = True,
) -> UserData:
    """Take PyG ``Data``: edge_index as it stands (an undirected edge twice), x, edge_attr, y.

    Features that are integers are categories, floats are quantities. y has shape [] or [1] (one
    target), [1, targets], or with level "node" [nodes]; the level is seen from these shapes if not
    stated.
    A single graph with labelled nodes may bring train_mask, val_mask and test_mask. A ``Batch`` is
    the graphs that it was made of.
    """
    from torch_geometric.data import Batch, Data  # importing PyG takes seconds

    try:
        lists = [data.to_data_list() if isinstance(data, Batch) else [data] for data in graphs]
    except (AttributeError, RuntimeError):  # it is not from Batch.from_data_list
        raise InputError("a Batch does not know the graphs it was made of; give these") from None
    graphs = list(chain.from_iterable(lists))
    if level is None:
        level = like.level if like is not None else _level_of_pyg(graphs)
    choice("level", level, ("graph", "node"))
    with_masks = level == "node" and len(graphs) == 1

    def convert(row: int, data: Data) -> RawGraph:
        if not isinstance(data, Data):
            raise InputError(f"expected torch_geometric.data.Data, found {type(data).__name__}")
        if data.edge_index is None:
            raise InputError("has no edge_index; without edges, give one of shape [2, 0]")
        edge_index = dense(data.edge_index, "edge_index")
        if edge_index.ndim != 2 or len(edge_index) != 2 or edge_index.dtype.kind not in "iu":
            raise InputError(
                f"edge_index must be whole numbers [2, edges], found {edge_index.shape} "
                f"{edge_index.dtype}"
            )
        pairs = edge_index.T
        nodes = node_count(data.num_nodes)
        x = None if data.x is None else feature_matrix(dense(data.x, "x"), "x", nodes)
        edge_attr = None
        if data.edge_attr is not None:
            values = dense(data.edge_attr, "edge_attr")
            edge_attr = feature_matrix(values, "edge_attr", len(pairs))
        index, edge_attr = edge_list(pairs, nodes, edge_attr, directed=True)
        y = _pyg_targets(data, level) if labelled else None
        split = _pyg_masks(data) if with_masks else None
        return RawGraph(row, nodes, index, x, edge_attr, y, split)

    targets = [getattr(data, "y", None) for data in graphs]
    data = _collect(
        graphs, targets, convert, "graphs", skip_invalid, level=level, task=task, like=like
    )
    known = {"x", "edge_index", "edge_attr", "y", "num_nodes"}
    known |= {f"{part}_mask" for part in PARTS} if with_masks else set()
    found = {name for row in data.rows.tolist() for name, _ in graphs[row]}
    return replace(data, unused=tuple(sorted(found - known)))


def from_networkx(
    graphs: Iterable[nx.Graph],
    y: Targets | None = None,
    level: Level = "graph",
    task: str | None = None,
    skip_invalid: bool = False,
    like: Reading | None = None,
    labelled: bool = True,
) -> UserData:
    """Take NetworkX graphs, nodes in their own order.

    The attribute ``x`` of nodes and ``edge_attr`` of edges (a number or a list) are the features.
    ``y`` has one value or list for each graph, or with level "node" one list with a value for each
    node; if not given, the graph attribute ``y`` or the node attribute ``y`` is used.
    """
    graphs = list(graphs)
    choice("level", level, ("graph", "node"))
    if like is not None:
        level = like.level
    if y is None:
        targets = [_networkx_target(graph, level) for graph in graphs]
    else:
        targets = target_rows(y, len(graphs), "graphs")

    def convert(row: int, graph: nx.Graph) -> RawGraph:
        if not isinstance(graph, nx.Graph):
            raise InputError(f"expected a networkx graph, found {type(graph).__name__}")
        nodes = node_count(len(graph))
        position = {node: index for index, node in enumerate(graph)}
        ends = [(position[u], position[v]) for u, v in graph.edges()]
        pairs = np.array(ends, dtype=np.int64).reshape(-1, 2)
        x = _attribute([data for _, data in graph.nodes(data=True)], "x")
        edge_attr = _attribute([data for *_, data in graph.edges(data=True)], "edge_attr")
        index, edge_attr = edge_list(pairs, nodes, edge_attr, graph.is_directed())
        y = target_texts(targets[row]) if labelled else None
        return RawGraph(row, nodes, index, x, edge_attr, y)

    data = _collect(
        graphs, targets, convert, "graphs", skip_invalid, level=level, task=task, like=like
    )
    known = {"x of nodes", "edge_attr of edges"}
    known |= set() if y is not None else {f"y of {level}s"}
    found = {name for row in data.rows.tolist() for name in _networkx_names(graphs[row])}
    return replace(data, unused=tuple(sorted(found - known)))


def from_smiles_list(
    smiles: Iterable[str],
    y: Targets | None = None,
    task: str | None = None,
    skip_invalid: bool = False,
    like: Reading | None = None,
    labelled: bool = True,
) -> UserData:
    """Take molecules as SMILES; ``y`` has one value, or a list of them, for each molecule."""
    smiles = list(smiles)
    targets = [None] * len(smiles) if y is None else target_rows(y, len(smiles), "molecules")
    to_graph = from_smiles if like is None else smiles_reader(like.node, like.edge) or from_smiles

    def convert(row: int, word: str) -> RawGraph:
        if not isinstance(word, str):
            raise InputError(f"expected SMILES as text, found {type(word).__name__}")
        x, edge_index, edge_attr = to_graph(word)
        y = target_texts(targets[row]) if labelled else None
        return RawGraph(row, len(x), edge_index, x, edge_attr, y)

    data = _collect(
        smiles,
        targets,
        convert,
        "smiles",
        skip_invalid,
        task=task,
        vocabularies=(ATOM_VOCABULARY, BOND_VOCABULARY),
        like=like,
    )
    return replace(data, smiles=tuple(smiles[row] for row in data.rows.tolist()))


def _collect(
    objects: Sequence[Any],
    targets: list[Any],
    convert: Callable[[int, Any], RawGraph],
    kind: Kind,
    skip_invalid: bool,
    *,
    task: str | None,
    like: Reading | None,
    **options: Any,
) -> UserData:
    """Convert each object under the checks that all readers share; rows count from 0.

    Where the task is not stated it is a regression if some target is a float other than 0 and 1.
    Integers, words and these two are what :func:`~gradformer.graphs.labels.find_labels` takes them
    for: Python's numbers have a type, which those of a table have not.
    """
    rows = RowChecks("the list", "position", skip_invalid)
    graphs = list(rows.graphs(list(enumerate(objects)), convert))
    if task is None and like is None and any(has_quantities(targets[g.row]) for g in graphs):
        task = "regression"
    return assemble(graphs, rows, kind=kind, task=task, like=like, **options)


def _networkx_target(graph: nx.Graph, level: Level) -> Any:
    """The attribute ``y`` of the graph, or of its nodes, None if none has it."""
    if not isinstance(graph, nx.Graph):
        return None
    if level == "graph":
        return graph.graph.get("y")
    values = [data.get("y") for _, data in graph.nodes(data=True)]
    return None if all(value is None for value in values) else values


def _networkx_names(graph: nx.Graph) -> set[str]:
    """All attributes, as ``charge of nodes``."""
    holders = {
        "graphs": [graph.graph],
        "nodes": [data for _, data in graph.nodes(data=True)],
        "edges": [data for *_, data in graph.edges(data=True)],
    }
    return {f"{name} of {what}" for what, each in holders.items() for d in each for name in d}


def _attribute(items: list[dict[str, Any]], name: str) -> Any:
    """The attribute ``name`` of all nodes or edges as [items, columns]; None if none has it."""
    have = [name in item for item in items]
    if not any(have):
        return None
    if not all(have):
        raise InputError(f"some have the attribute {name!r} and some have not: give it to all")
    return feature_matrix([item[name] for item in items], name, len(items))


def _level_of_pyg(graphs: list[Data]) -> Level:
    """ "node" if every y has one row for each node and some graph has more nodes than one."""
    from torch_geometric.data import Data

    shapes = [
        (data.y.shape[0] if data.y.dim() else 1, data.num_nodes)
        for data in graphs
        if isinstance(data, Data) and isinstance(data.y, torch.Tensor)
    ]
    if shapes and all(rows == nodes for rows, nodes in shapes) and any(n > 1 for _, n in shapes):
        return "node"
    return "graph"


def _pyg_targets(data: Data, level: Level) -> list[str | None] | None:
    if not isinstance(data.y, torch.Tensor):
        return target_texts(data.y)
    expected = data.num_nodes if level == "node" else 1
    rows = data.y.shape[0] if data.y.dim() else 1
    if rows != expected or data.y.dim() > 2 or (level == "node" and data.y.numel() != rows):
        shapes = "[nodes]" if level == "node" else "[1] or [1, targets]"
        raise InputError(f"y has shape {tuple(data.y.shape)}, expected {shapes}")
    return target_texts(data.y)


def _pyg_masks(data: Data) -> list[int] | None:
    """The part of each node that the masks name, -1 for none; None without masks."""
    masks = [getattr(data, f"{part}_mask", None) for part in PARTS]
    if all(mask is None for mask in masks):
        return None
    parts = np.full(data.num_nodes, -1)
    for part, (name, mask) in enumerate(zip(PARTS, masks)):
        if mask is None:
            continue
        chosen = dense(mask, f"{name}_mask")
        if chosen.shape != parts.shape or chosen.dtype != np.bool_:
            raise InputError(f"{name}_mask must be booleans [nodes], found {chosen.shape}")
        if (parts[chosen] >= 0).any():
            raise InputError(f"{name}_mask holds nodes that another mask holds too")
        parts[chosen] = part
    return [int(part) for part in parts]
