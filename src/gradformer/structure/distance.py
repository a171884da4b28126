"""Shortest-path hops between all pairs of nodes, one byte a pair.

Sixty-four targets are searched at once. Bit b of ``reached[v]`` says that target b can be reached
from v in at most t hops, so one more hop is

    reached'[v] = reached[v] | OR over edges v → u of reached[u],

and the bits that appear are the pairs at distance t + 1. A level costs one word operation an edge
where 64 searches would cost 64 visits; a graph deeper than ``MAX_LEVELS`` (a long path) is searched
node by node instead.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradformer.structure.adjacency import Neighbours, neighbours
from gradformer.structure.codebook import SATURATED, UNREACHABLE
from gradformer.structure.parallel import (
    BLOCK,
    HAVE_NUMBA,
    Progress,
    compiled,
    node_blocks,
    over_slices,
)
from gradformer.structure.pointers import pair_pointer

MAX_LEVELS = 64
"""Measured: beyond about 60 levels the plain search is the faster one."""

_ONE = np.uint64(1)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


def hop_distances(
    node_ptr: NDArray[Any],
    edge_ptr: NDArray[Any],
    edge_index: NDArray[Any],
    *,
    symmetric: bool = False,
    progress: Progress | None = None,
) -> NDArray[np.uint8]:
    """Hops from every node to every node of its graph, flat [Σ n²] uint8.

    Graph g owns the n_g² bytes that follow those of graph g − 1; in it, row i and column j hold the
    length of the shortest path i → j along the edges' direction, 0 on the diagonal. Lengths from
    254 on are stored as 254, and 255 means that there is no path.

    Args:
        node_ptr, edge_ptr: first node and first edge of each graph, [graphs + 1].
        edge_index: source and destination, numbered inside each graph, [2, edges].
        symmetric: walk the edges in both directions.
        progress: called with the number of graphs that became ready.

    >>> path = np.array([[0, 1], [1, 2]])
    >>> hop_distances(np.array([0, 3]), np.array([0, 2]), path).reshape(3, 3)
    array([[  0,   1,   2],
           [255,   0,   1],
           [255, 255,   0]], dtype=uint8)
    """
    lists = neighbours(node_ptr, edge_ptr, edge_index, symmetric=symmetric)
    search = _search_compiled if HAVE_NUMBA else _search_scipy
    return search(np.asarray(node_ptr, np.int64), lists, progress)


def _search_compiled(
    node_ptr: NDArray[np.int64], lists: Neighbours, progress: Progress | None = None
) -> NDArray[np.uint8]:
    pair_ptr = pair_pointer(node_ptr)
    sizes = np.diff(node_ptr)
    out = np.empty(int(pair_ptr[-1]), np.uint8)
    deep = np.zeros(len(sizes), np.bool_)

    graph, word = node_blocks(node_ptr)
    edges = np.diff(lists.ptr[node_ptr])

    def wide(first: int, last: int) -> None:
        _search_words(first, last, graph, word, node_ptr, pair_ptr, *lists, out, deep)

    def plain(first: int, last: int) -> None:
        _search_nodes(first, last, graph[again], word[again], node_ptr, pair_ptr, *lists, out)

    over_slices(wide, 8 * edges[graph] + 16 * sizes[graph], word == 0, progress)
    again = np.flatnonzero(deep[graph])
    over_slices(plain, BLOCK * (edges + sizes)[graph[again]])
    return out


@compiled
def _search_words(first, last, graph, word, node_ptr, pair_ptr, ptr, targets, out, deep):  # type: ignore[no-untyped-def]
    """Distances to 64 targets at a time; marks the graphs that are too deep for it."""
    largest = 0
    for item in range(first, last):
        largest = max(largest, node_ptr[graph[item] + 1] - node_ptr[graph[item]])
    reached, wider = np.empty(largest, np.uint64), np.empty(largest, np.uint64)

    for item in range(first, last):
        g = graph[item]
        if deep[g]:
            continue
        base, n = node_ptr[g], node_ptr[g + 1] - node_ptr[g]
        low = BLOCK * word[item]
        width = min(BLOCK, n - low)
        corner = pair_ptr[g] + low
        full = _ALL >> np.uint64(BLOCK - width)
        for v in range(n):
            reached[v] = 0
            _put(out[corner + v * n : corner + v * n + width], full, np.uint8(UNREACHABLE))
        for b in range(width):
            reached[low + b] = _ONE << np.uint64(b)
            out[corner + (low + b) * n + b] = 0

        level, growing = 0, True
        while growing and level < MAX_LEVELS:
            level += 1
            growing = False
            for v in range(n):
                before = reached[v]
                now = before
                if before != full:
                    for e in range(ptr[base + v], ptr[base + v + 1]):
                        now |= reached[np.uint32(targets[e])]  # unsigned: no test for negatives
                        if now == full:
                            break
                    if now != before:
                        growing = True
                        row = out[corner + v * n : corner + v * n + width]
                        _put(row, now ^ before, np.uint8(level))
                wider[v] = now
            reached, wider = wider, reached
        if growing:
            deep[g] = True


@compiled
def _put(row, bits, value):  # type: ignore[no-untyped-def]
    """Write ``value`` where a bit is set; without a branch, so that it runs in vector registers."""
    for b in range(len(row)):
        row[b] = value if (bits >> np.uint64(b)) & _ONE else row[b]


@compiled
def _search_nodes(first, last, graph, word, node_ptr, pair_ptr, ptr, targets, out):  # type: ignore[no-untyped-def]
    """Breadth-first search from each of 64 sources."""
    for item in range(first, last):
        g = graph[item]
        base, n = node_ptr[g], node_ptr[g + 1] - node_ptr[g]
        queue = np.empty(n, np.int64)
        for root in range(BLOCK * word[item], min(BLOCK * word[item] + BLOCK, n)):
            row = out[pair_ptr[g] + root * n : pair_ptr[g] + (root + 1) * n]
            row[:] = UNREACHABLE
            row[root] = 0
            queue[0] = root
            head, tail = 0, 1
            while head < tail:
                u = queue[head]
                head += 1
                next_level = min(row[u] + 1, SATURATED)
                for e in range(ptr[base + u], ptr[base + u + 1]):
                    v = targets[e]
                    if row[v] == UNREACHABLE:
                        row[v] = next_level
                        queue[tail] = v
                        tail += 1


def _search_scipy(
    node_ptr: NDArray[np.int64], lists: Neighbours, progress: Progress | None = None
) -> NDArray[np.uint8]:
    """The same distances without numba, one graph after the other."""
    from scipy.sparse import csgraph, csr_array

    pair_ptr = pair_pointer(node_ptr)
    out = np.empty(int(pair_ptr[-1]), np.uint8)
    for g, (low, high) in enumerate(pairwise(node_ptr)):
        n = int(high - low)
        ptr = lists.ptr[low : high + 1]
        index = lists.targets[ptr[0] : ptr[-1]]
        matrix = csr_array((np.ones(len(index)), index, ptr - ptr[0]), shape=(n, n))
        hops = csgraph.shortest_path(matrix, method="D", unweighted=True)
        hops = np.where(np.isinf(hops), UNREACHABLE, np.minimum(hops, SATURATED))
        out[pair_ptr[g] : pair_ptr[g + 1]] = hops.astype(np.uint8).ravel()
        if progress is not None:
            progress(1)
    return out
