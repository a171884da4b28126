"""Graphs that are Python objects already: PyG ``Data``, NetworkX graphs, SMILES, ``DataFrame``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd

from gradformer.errors import InputError, choice
from gradformer.graphs.arrays import Level
from gradformer.graphs.molecules import ATOM_VOCABULARY, BOND_VOCABULARY, from_smiles, smiles_reader
from gradformer.graphs.object_targets import Targets, collect
from gradformer.graphs.processes import each, sound
from gradformer.graphs.pyg_data import from_pyg
from gradformer.graphs.raw_graphs import RawGraph, edge_list, feature_matrix, node_count
from gradformer.graphs.table_files import frame_table
from gradformer.graphs.tables import read_table
from gradformer.graphs.user_data import Inputs, Kind, Reading, UserData, check_options


def from_objects(
    objects: Any,
    like: Reading | None = None,
    labelled: bool = True,
    inputs: Inputs | None = None,
    **options: Any,
) -> UserData:
    """Take PyG ``Data``, NetworkX graphs or SMILES, whichever the first of ``objects`` is; or a
    ``DataFrame`` with a column of SMILES.

    ``options`` are those of the function below that takes them, or of :func:`read_table`; of
    molecules the ``inputs`` are always the same.
    """
    from torch_geometric.data import Data  # importing PyG takes seconds

    _, items = as_items(objects)
    if isinstance(items, pd.DataFrame):
        check_options(read_table, options, "a DataFrame")
        table = frame_table(items, Path("the DataFrame"), "position", first=0)
        return read_table(table, like=like, labelled=labelled, **options)
    if not items:
        raise InputError("data: the list of graphs is empty")
    for kind, convert in ((Data, from_pyg), (nx.Graph, from_networkx), (str, from_smiles_list)):
        if isinstance(items[0], kind):
            check_options(convert, options, "these graphs")
            options |= {"like": like, "labelled": labelled}
            options |= {} if kind is str else {"inputs": inputs}
            return convert(items, **options)  # type: ignore[operator]
    raise InputError(
        f"data: got {type(items[0]).__name__}, expected PyG Data, NetworkX graphs or SMILES"
    )


def as_items(objects: Any) -> tuple[Kind, Any]:
    """What ``objects`` are, and all of them: a list, of one for a single graph, or a DataFrame."""
    from torch_geometric.data.data import BaseData

    if isinstance(objects, pd.DataFrame):
        return "smiles", objects
    if isinstance(objects, BaseData | nx.Graph):
        return "graphs", [objects]
    if not isinstance(objects, Iterable) and hasattr(objects, "__len__"):
        objects = [objects[k] for k in range(len(objects))]  # a Subset, as random_split makes it
    if not isinstance(objects, Iterable):
        raise InputError(
            f"data: got {type(objects).__name__}, expected a path, a DataFrame, or a list of PyG "
            "Data, NetworkX graphs or SMILES"
        )
    items = list(objects)
    return "smiles" if items and isinstance(items[0], str) else "graphs", items


def from_networkx(
    graphs: Iterable[nx.Graph],
    y: Targets | None = None,
    level: Level = "graph",
    task: str | None = None,
    split: Sequence[str | None] | None = None,
    skip_invalid: bool = False,
    like: Reading | None = None,
    labelled: bool = True,
    inputs: Inputs | None = None,
) -> UserData:
    """Take NetworkX graphs, nodes in their own order.

    The attribute ``x`` of nodes and ``edge_attr`` of edges (a number or a list) are the features.
    ``y`` has one value or list for each graph, or with level "node" one list with a value for each
    node; if not given, the graph attribute ``y`` or the node attribute ``y`` is used. ``split``
    says train, val or test of each graph, or None. ``like`` is the reading of the training data,
    ``inputs`` what a model was trained on that is to be trained further on these.
    """
    graphs = list(graphs)
    choice("level", level, ("graph", "node"))
    if like is not None:
        level = like.level

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
        return RawGraph(row, nodes, index, x, edge_attr)

    data = collect(
        graphs,
        convert,
        "graphs",
        skip_invalid,
        y=y,
        own=partial(_networkx_target, level),
        split=split,
        level=level,
        task=task,
        inputs=inputs,
        like=like,
        labelled=labelled,
    )
    known = {"x of nodes", "edge_attr of edges"}
    known |= set() if y is not None else {f"y of {level}s"}
    found = {name for row in data.rows.tolist() for name in _networkx_names(graphs[row])}
    return replace(data, unused=tuple(sorted(found - known)))


def from_smiles_list(
    smiles: Iterable[str],
    y: Targets | None = None,
    task: str | None = None,
    split: Sequence[str | None] | None = None,
    skip_invalid: bool = False,
    like: Reading | None = None,
    labelled: bool = True,
) -> UserData:
    """Take molecules as SMILES; ``y`` has one value, or a list of them, for each molecule, and
    ``split`` train, val or test, or None."""
    smiles = list(smiles)
    to_graph = from_smiles if like is None else smiles_reader(like.node, like.edge) or from_smiles

    def convert(row: int, word: str) -> RawGraph:
        found = next(molecules)
        if not isinstance(word, str):
            raise InputError(f"expected SMILES as text, found {type(word).__name__}")
        x, edge_index, edge_attr = sound(found)
        return RawGraph(row, len(x), edge_index, x, edge_attr)

    words = [word if isinstance(word, str) else "" for word in smiles]
    with closing(each(to_graph, words)) as molecules:
        data = collect(
            smiles,
            convert,
            "smiles",
            skip_invalid,
            y=y,
            own=lambda word: None,
            split=split,
            task=task,
            inputs=Inputs(ATOM_VOCABULARY, BOND_VOCABULARY),
            like=like,
            labelled=labelled,
        )
    return replace(data, smiles=tuple(smiles[row] for row in data.rows.tolist()))


def _networkx_target(level: Level, graph: nx.Graph) -> Any:
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
