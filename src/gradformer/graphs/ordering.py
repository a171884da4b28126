"""Edges in the two orders that sparse kernels want: by destination, and by source."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gradformer.graphs.arrays import GraphArrays
from gradformer.structure.parallel import compiled, over_slices


def sort_by_target(arrays: GraphArrays) -> GraphArrays:
    """The same graphs with each graph's edges sorted by destination (ties keep their order)."""
    target = arrays.edge_index[1]
    falls = np.flatnonzero(target[1:] < target[:-1]) + 1
    if np.isin(falls, arrays.edge_ptr).all():  # falls only where a new graph begins
        return arrays
    order = local_order(target, arrays.node_ptr, arrays.edge_ptr)
    rows = order + np.repeat(arrays.edge_ptr[:-1], np.diff(arrays.edge_ptr))
    return replace(
        arrays,
        edge_index=np.ascontiguousarray(arrays.edge_index[:, rows]),
        edge_attr=None if arrays.edge_attr is None else arrays.edge_attr[rows],
    )


def local_order(
    node: NDArray[np.int32], node_ptr: NDArray[np.int64], edge_ptr: NDArray[np.int64]
) -> NDArray[np.int32]:
    """The stable order that sorts each graph's edges by ``node`` [E], counted from its first edge.

    Position ``i`` of graph g's block in the answer holds the number (0 = the graph's first edge) of
    the edge that comes i-th.
    """
    order = np.empty(len(node), np.int32)
    over_slices(
        lambda first, last: _counting_sort(node, node_ptr, edge_ptr, first, last, order),
        np.diff(edge_ptr) + np.diff(node_ptr),
    )
    return order


@compiled
def _counting_sort(
    node: NDArray[np.int32],
    node_ptr: NDArray[np.int64],
    edge_ptr: NDArray[np.int64],
    first: int,
    last: int,
    order: NDArray[np.int32],
) -> None:
    for g in range(first, last):
        begin, end = edge_ptr[g], edge_ptr[g + 1]
        slot = np.zeros(node_ptr[g + 1] - node_ptr[g] + 1, np.int64)
        for e in range(begin, end):
            slot[node[e] + 1] += 1
        for n in range(1, len(slot)):
            slot[n] += slot[n - 1]
        for e in range(begin, end):
            order[begin + slot[node[e]]] = e - begin
            slot[node[e]] += 1
