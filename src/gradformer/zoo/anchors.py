"""Hops from every node to a few anchors of its graph: positions that take memory linear in n."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn.functional import pad

from gradformer.errors import InputError
from gradformer.graphs.arrays import GraphArrays
from gradformer.graphs.batch import Batch
from gradformer.graphs.structures import register_structure
from gradformer.structure.adjacency import simple_neighbours
from gradformer.structure.codebook import SATURATED, UNREACHABLE
from gradformer.zoo.path_bias import graph_arrays

Array = NDArray[Any]
NAME = "anchors"


def anchor_distances(
    node_ptr: Array, edge_ptr: Array, edge_index: Array, count: int
) -> NDArray[np.uint8]:
    """Hops to the ``count`` anchors of each graph, [nodes, count]; 255 where there is none.

    Anchors are the nodes with most neighbours; equals are told apart by the number of neighbours
    of their neighbours, then by their number. All graphs and anchors are searched together, one
    hop after the other.
    """
    lists = simple_neighbours(node_ptr, edge_ptr, edge_index)
    sizes, degree = np.diff(node_ptr), np.diff(lists.ptr)
    nodes = len(degree)
    first = np.repeat(np.asarray(node_ptr[:-1]), sizes)
    target = lists.targets + np.repeat(first, degree)
    adjacency = csr_array((np.ones(len(target), np.float32), target, lists.ptr), (nodes, nodes))
    graph = np.repeat(np.arange(len(sizes)), sizes)
    order = np.lexsort((-(adjacency @ degree), -degree, graph))
    rank = np.arange(nodes) - first
    chosen = rank < count

    frontier = np.zeros((nodes, count), bool)
    frontier[order[chosen], rank[chosen]] = True
    distance = np.where(frontier, 0, UNREACHABLE).astype(np.uint8)
    hop = 0
    while frontier.any():
        hop = min(hop + 1, SATURATED)
        frontier = (adjacency @ frontier.astype(np.float32) > 0) & (distance == UNREACHABLE)
        distance[frontier] = hop
    return distance


def _structure(arrays: GraphArrays, count: int) -> dict[str, Array]:
    graphs = arrays.node_ptr, arrays.edge_ptr, arrays.edge_index
    return {NAME: anchor_distances(*graphs, count)}


register_structure(NAME, _structure, "node")


def structure_name(count: int) -> str:
    """How a model asks the store for them."""
    return f"{NAME}:count={count}"


def stored_anchors(batch: Batch, count: int) -> Tensor:
    """The distances of a batch, [nodes, count] uint8."""
    found = batch.extras.get(NAME)
    if found is None or found.shape[1:] != (count,):
        shape = None if found is None else list(found.shape)
        raise InputError(f"{NAME}: expected [nodes, {count}] with the batch, got {shape}")
    return found


def with_anchors(batch: Batch, count: int) -> Batch:
    """The same batch with its anchors; computed here (on the host) unless it has them."""
    if NAME in batch.extras:
        return batch
    found = torch.from_numpy(anchor_distances(*graph_arrays(batch), count))
    found = pad(found, (0, 0, 0, batch.num_nodes - len(found)))
    return replace(batch, extras={**batch.extras, NAME: found.to(batch.layout.device)})
