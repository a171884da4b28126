"""Graphs that are PyG ``Data``: features, targets and masks as they stand there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gradformer.errors import InputError, choice
from gradformer.graphs.arrays import Level
from gradformer.graphs.molecules import smiles_reader
from gradformer.graphs.object_targets import Targets, collect, dense
from gradformer.graphs.raw_graphs import Features, RawGraph, edge_list, feature_matrix, node_count
from gradformer.graphs.user_data import Inputs, Reading, UserData
from gradformer.graphs.user_splits import PARTS

if TYPE_CHECKING:
    from torch_geometric.data import Data


def from_pyg(
    graphs: Iterable[Data],
    y: Targets | None = None,
    level: Level | None = None,
    task: str | None = None,
    split: Sequence[str | None] | None = None,
    skip_invalid: bool = False,
    like: Reading | None = None,
    labelled: bool = True,
    inputs: Inputs | None = None,
) -> UserData:
    """Take PyG ``Data``: edge_index as it stands (an undirected edge twice), x, edge_attr, y.

    Features that are integers are categories, floats are quantities. y has shape [] or [1] (one
    target), [1, targets], or with level "node" [nodes]; the level is seen from these shapes if not
    stated. Targets may be given apart instead, and parts, as in :func:`from_networkx`.
    A single graph with labelled nodes may bring train_mask, val_mask and test_mask. A ``Batch`` is
    the graphs that it was made of. ``like`` is the reading of the training data, ``inputs`` what a
    model was trained on that is to be trained further on these.
    """
    from torch_geometric.data import Batch, Data  # importing PyG takes seconds

    try:
        lists = [data.to_data_list() if isinstance(data, Batch) else [data] for data in graphs]
    except (AttributeError, RuntimeError):  # of a Batch that is not from Batch.from_data_list
        raise InputError("a Batch does not know the graphs it was made of; give these") from None
    graphs = list(chain.from_iterable(lists))
    if level is None:
        seen: Level = "graph" if y is not None else _level_of_pyg(graphs)
        level = like.level if like is not None else seen
    choice("level", level, ("graph", "node"))
    given = inputs if like is None else like.inputs
    with_masks = like is None and level == "node" and len(graphs) == 1

    def convert(row: int, data: Data) -> RawGraph:
        if not isinstance(data, Data):
            raise InputError(f"expected torch_geometric.data.Data, found {type(data).__name__}")
        graph = _graph(row, data)
        if given is not None and graph.x is not None:
            _check_atoms(graph.x, getattr(data, "smiles", None), given)
        if labelled and y is None:
            _check_shape(data, level)
        return replace(graph, split=_pyg_masks(data)) if with_masks else graph

    data = collect(
        graphs,
        convert,
        "graphs",
        skip_invalid,
        y=y,
        own=lambda data: getattr(data, "y", None),
        split=split,
        level=level,
        task=task,
        inputs=inputs,
        like=like,
        labelled=labelled,
    )
    known = {"x", "edge_index", "edge_attr", "y", "num_nodes"}
    known |= {f"{part}_mask" for part in PARTS} if with_masks else set()
    found = {name for row in data.rows.tolist() for name, _ in graphs[row]}
    return replace(data, unused=tuple(sorted(found - known)))


def _graph(row: int, data: Data) -> RawGraph:
    """The size, features and edges of a graph."""
    if data.edge_index is None:
        raise InputError("has no edge_index; without edges, give one of shape [2, 0]")
    edge_index = dense(data.edge_index, "edge_index")
    if edge_index.ndim != 2 or len(edge_index) != 2 or edge_index.dtype.kind not in "iu":
        raise InputError(
            f"edge_index must be whole numbers [2, edges], found {edge_index.shape} "
            f"{edge_index.dtype}"
        )
    pairs, nodes = edge_index.T, node_count(data.num_nodes)
    x, edge_attr = (
        None if value is None else feature_matrix(dense(value, name), name, rows)
        for name, value, rows in (("x", data.x, nodes), ("edge_attr", data.edge_attr, len(pairs)))
    )
    index, edge_attr = edge_list(pairs, nodes, edge_attr, directed=True)
    return RawGraph(row, nodes, index, x, edge_attr)


def _check_atoms(x: Features, smiles: Any, inputs: Inputs) -> None:
    """Raise if a graph says which molecule it is, and its atoms are not those that the model knows:
    PyG's ``from_smiles`` makes as many columns as OGB does, with other numbers."""
    reader = smiles_reader(inputs.node, inputs.edge)
    if reader is None or not isinstance(smiles, str):
        return
    try:
        atoms = reader(smiles)[0]
    except InputError:  # not a molecule, or no RDKit to tell
        return
    if sorted(x[:, :1].tolist()) != sorted(atoms[:, :1].tolist()):
        raise InputError(
            f"x numbers the atoms of {smiles} otherwise than the model's training data did, as "
            "PyG's from_smiles does; give the SMILES themselves"
        )


def _level_of_pyg(graphs: list[Data]) -> Level:
    """ "node" if every y has one row for each node and some graph has more nodes than one."""
    from torch_geometric.data import Data

    shapes = [
        (data.y.shape[0] if data.y.dim() else 1, data.num_nodes)
        for data in graphs
        if isinstance(data, Data) and isinstance(data.y, torch.Tensor)
    ]
    if all(rows == nodes for rows, nodes in shapes) and any(n > 1 for _, n in shapes):
        return "node"
    return "graph"


def _check_shape(data: Data, level: Level) -> None:
    """Raise if ``data.y`` is a tensor of another shape than targets of the ``level`` have."""
    if not isinstance(data.y, torch.Tensor):
        return
    expected = data.num_nodes if level == "node" else 1
    rows = data.y.shape[0] if data.y.dim() else 1
    if rows != expected or data.y.dim() > 2 or (level == "node" and data.y.numel() != rows):
        shapes = "[nodes]" if level == "node" else "[1] or [1, targets]"
        raise InputError(f"y has shape {tuple(data.y.shape)}, expected {shapes}")


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
            found = f"{chosen.shape} {chosen.dtype}"
            raise InputError(f"{name}_mask must be booleans [nodes], found {found}")
        if (parts[chosen] >= 0).any():
            raise InputError(f"{name}_mask holds nodes that another mask holds too")
        parts[chosen] = part
    return [int(part) for part in parts]
