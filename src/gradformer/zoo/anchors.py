"""Hops from every node to a few anchors of its graph: positions that take memory linear in n."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradformer.structure.adjacency import simple_neighbours
from gradformer.structure.codebook import SATURATED, UNREACHABLE
from gradformer.structure.parallel import Progress, compiled, over_slices
from gradformer.zoo.precomputed import Precomputed


def anchor_distances(
    node_ptr: NDArray[Any],
    edge_ptr: NDArray[Any],
    edge_index: NDArray[Any],
    count: int,
    progress: Progress | None = None,
) -> NDArray[np.uint8]:
    """Hops to the ``count`` anchors of each graph, [nodes, count]; 255 where there is none.

    Anchors are the nodes with most neighbours; equals are told apart by the number of neighbours
    of their neighbours, then by their number.
    """
    lists = simple_neighbours(node_ptr, edge_ptr, edge_index)
    node_ptr = np.asarray(node_ptr, np.int64)
    distance = np.full((int(node_ptr[-1]), count), UNREACHABLE, np.uint8)

    def work(first: int, last: int) -> None:
        _search(first, last, node_ptr, *lists, distance)

    over_slices(work, count * np.diff(lists.ptr[node_ptr]) + np.diff(node_ptr), progress=progress)
    return distance


@compiled
def _search(first, last, node_ptr, ptr, near, distance):  # type: ignore[no-untyped-def]
    """Breadth first from each anchor of the graphs first … last − 1."""
    for g in range(first, last):
        base, n = node_ptr[g], node_ptr[g + 1] - node_ptr[g]
        degree, around = np.zeros(n, np.int64), np.zeros(n, np.int64)
        for v in range(n):
            degree[v] = ptr[base + v + 1] - ptr[base + v]
        for v in range(n):
            for e in range(ptr[base + v], ptr[base + v + 1]):
                around[v] += degree[near[e]]
        reached = np.empty(n, np.int64)
        for a in range(min(distance.shape[1], n)):
            anchor = 0
            for v in range(n):
                larger = around[v] > around[anchor]
                if degree[v] > degree[anchor] or (degree[v] == degree[anchor] and larger):
                    anchor = v
            degree[anchor] = -1  # chosen
            distance[base + anchor, a] = 0
            reached[0], done, found = anchor, 0, 1
            while done < found:
                v = reached[done]
                done += 1
                hop = min(np.int64(distance[base + v, a]) + 1, SATURATED)
                for e in range(ptr[base + v], ptr[base + v + 1]):
                    if distance[base + near[e], a] == UNREACHABLE:
                        distance[base + near[e], a] = hop
                        reached[found] = near[e]
                        found += 1


ANCHORS = Precomputed("anchors", anchor_distances, "node")
