"""One shortest path for every pair of nodes, stored as its first edge.

Floyd and Warshall's recursion with strict improvement and intermediate nodes k in rising order
picks, among all shortest paths i → j, the one whose largest intermediate node is smallest, and so
on inside both halves. What remains of such a path after its first edge is itself the chosen path
of the next node to j. So one integer a pair holds all paths: follow first edges until j.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradformer.structure.adjacency import check_edges
from gradformer.structure.parallel import Progress, compiled, over_slices
from gradformer.structure.pointers import pair_pointer

NONE = -1
"""No first edge: on the diagonal, and where there is no path."""


def first_edges(
    node_ptr: NDArray[Any],
    edge_ptr: NDArray[Any],
    edge_index: NDArray[Any],
    *,
    progress: Progress | None = None,
) -> NDArray[np.int32]:
    """First edge of the chosen shortest path of every pair, flat [Σ n²], row = start.

    Edges are counted from 0 inside each graph; of parallel edges the last one counts.

    Args:
        node_ptr, edge_ptr: first node and first edge of each graph, [graphs + 1].
        edge_index: source and destination, numbered inside each graph, [2, edges].
        progress: called with the number of graphs that became ready.

    >>> path = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> first_edges(np.array([0, 3]), np.array([0, 4]), path).reshape(3, 3)
    array([[-1,  0,  0],
           [ 1, -1,  2],
           [ 3,  3, -1]], dtype=int32)
    """
    check_edges(node_ptr, edge_ptr, edge_index)
    node_ptr, edge_ptr = np.asarray(node_ptr, np.int64), np.asarray(edge_ptr, np.int64)
    pair_ptr = pair_pointer(node_ptr)
    first = np.full(int(pair_ptr[-1]), NONE, np.int32)
    sources, targets = (np.ascontiguousarray(ends, np.int64) for ends in edge_index)

    def work(low: int, high: int) -> None:
        _search(low, high, node_ptr, edge_ptr, pair_ptr, sources, targets, first)

    over_slices(work, np.diff(node_ptr) ** 3, progress=progress)
    return first


@compiled
def _search(low, high, node_ptr, edge_ptr, pair_ptr, sources, targets, first):  # type: ignore[no-untyped-def]
    """Floyd and Warshall on the graphs low … high − 1."""
    for g in range(low, high):
        n = node_ptr[g + 1] - node_ptr[g]
        edge = first[pair_ptr[g] : pair_ptr[g + 1]].reshape(n, n)
        far = 2 * n  # longer than any path
        hops = np.full((n, n), far, np.int32)
        for i in range(n):
            hops[i, i] = 0
        for e in range(edge_ptr[g], edge_ptr[g + 1]):
            i, j = sources[e], targets[e]
            if i != j:
                hops[i, j] = 1
                edge[i, j] = e - edge_ptr[g]
        for k in range(n):
            for i in range(n):
                if hops[i, k] < far and i != k:
                    for j in range(n):
                        through = hops[i, k] + hops[k, j]
                        if through < hops[i, j]:
                            hops[i, j] = through
                            edge[i, j] = edge[i, k]
