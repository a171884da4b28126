"""Neighbour lists of many graphs at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import InputError, counted
from gradformer.structure.parallel import HAVE_NUMBA, compiled, over_slices
from gradformer.structure.pointers import pointer


class Neighbours(NamedTuple):
    """Out-neighbours of every node: node v, counted over all graphs, has
    ``targets[ptr[v]:ptr[v+1]]``, numbered inside its graph.

    Shapes: ptr [nodes + 1] int64, targets [edges] int32.
    """

    ptr: NDArray[np.int64]
    targets: NDArray[np.int32]

    def ends(self, node_ptr: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Source and target of every entry, [edges] each, counted over all graphs."""
        source = np.repeat(np.arange(len(self.ptr) - 1), np.diff(self.ptr))
        first = np.repeat(node_ptr[:-1], np.diff(self.ptr[node_ptr]))
        return source, self.targets + first

    def within(self, low: int, high: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Source and target of the entries of one graph, nodes low … high − 1, counted in it."""
        ptr = self.ptr[low : high + 1]
        return np.repeat(np.arange(high - low), np.diff(ptr)), self.targets[ptr[0] : ptr[-1]]


def check_edges(node_ptr: NDArray[Any], edge_ptr: NDArray[Any], edge_index: NDArray[Any]) -> None:
    """Raise an :class:`InputError` unless the three arrays describe graphs."""
    for name, ptr in (("node_ptr", node_ptr), ("edge_ptr", edge_ptr)):
        if ptr.ndim != 1 or len(ptr) < 1 or ptr[0] != 0 or (np.diff(ptr) < 0).any():
            raise InputError(f"{name}: expected a rising vector from 0, one entry more than graphs")
    if len(node_ptr) != len(edge_ptr):
        raise InputError(
            f"edge_ptr: {counted(len(edge_ptr) - 1, 'graph')}, but node_ptr has {len(node_ptr) - 1}"
        )
    edges = int(edge_ptr[-1])
    if edge_index.shape != (2, edges) or edge_index.dtype.kind not in "iu":
        raise InputError(
            f"edge_index: {edge_index.dtype} of shape {edge_index.shape}, "
            f"expected integers of shape (2, {edges})"
        )


def check_ends(
    node_ptr: NDArray[Any], edge_ptr: NDArray[Any], edge_index: NDArray[Any], where: str
) -> None:
    """Raise an :class:`InputError` that names the first edge that leaves its graph, if any does."""
    size = np.repeat(np.diff(node_ptr), np.diff(edge_ptr))
    bad = ((edge_index < 0) | (edge_index >= size)).any(axis=0)
    if bad.any():
        edge = int(bad.argmax())
        graph = int(np.searchsorted(edge_ptr, edge, side="right")) - 1
        raise InputError(
            f"{where}: graph {graph} has an edge {tuple(edge_index[:, edge].tolist())} but only "
            f"{counted(node_ptr[graph + 1] - node_ptr[graph], 'node')}; nodes are numbered from 0 "
            "inside each graph"
        )


@compiled
def _sort_by_source(first, last, node_ptr, edge_ptr, source, target, both, ptr, index):  # type: ignore[no-untyped-def]
    """Counting sort of graphs first…last; False at an edge that leaves its graph."""
    for g in range(first, last):
        base, n = node_ptr[g], node_ptr[g + 1] - node_ptr[g]
        start, stop = edge_ptr[g], edge_ptr[g + 1]
        sources, targets = source[start:stop], target[start:stop]
        inside, in_order = True, not both
        for e in range(stop - start):
            s, t = sources[e], targets[e]
            inside &= (s >= 0) & (s < n) & (t >= 0) & (t < n)
        for e in range(stop - start - 1):
            in_order &= sources[e] <= sources[e + 1]
        if not inside:
            return False
        if in_order:
            for e in range(stop - start):  # a slice would be compiled with its error messages
                index[start + e] = targets[e]
            v = 0
            for e in range(stop - start):
                while v < sources[e]:
                    ptr[base + v + 1] = start + e
                    v += 1
            ptr[base + v + 1 : base + n + 1] = stop
            continue
        place = np.zeros(n, np.int64)
        for e in range(stop - start):
            place[sources[e]] += 1
            if both:
                place[targets[e]] += 1
        total = 2 * start if both else start
        for v in range(n):
            count, place[v] = place[v], total
            total += count
            ptr[base + v + 1] = total
        for e in range(stop - start):
            s, t = sources[e], targets[e]
            index[place[s]] = t
            place[s] += 1
            if both:
                index[place[t]] = s
                place[t] += 1
    return True


def neighbours(
    node_ptr: NDArray[Any],
    edge_ptr: NDArray[Any],
    edge_index: NDArray[Any],
    *,
    symmetric: bool = False,
) -> Neighbours:
    """Sort the edges by source; with ``symmetric`` every edge counts in both directions."""
    check_edges(node_ptr, edge_ptr, edge_index)
    node_ptr, edge_ptr = np.asarray(node_ptr, np.int64), np.asarray(edge_ptr, np.int64)
    source, target = np.ascontiguousarray(edge_index)
    if not HAVE_NUMBA:
        check_ends(node_ptr, edge_ptr, edge_index, "edge_index")
        base = np.repeat(node_ptr[:-1], np.diff(edge_ptr))
        source = source + base
        if symmetric:
            source, target = (
                np.concatenate([source, target + base]),
                np.concatenate([target, source - base]),
            )
        ptr = pointer(np.bincount(source, minlength=int(node_ptr[-1])))
        return Neighbours(ptr, target[np.argsort(source, kind="stable")].astype(np.int32))

    ptr = np.zeros(int(node_ptr[-1]) + 1, np.int64)
    index = np.empty((2 if symmetric else 1) * edge_index.shape[1], np.int32)

    def work(first: int, last: int) -> None:
        if not _sort_by_source(
            first, last, node_ptr, edge_ptr, source, target, symmetric, ptr, index
        ):
            check_ends(node_ptr, edge_ptr, edge_index, "edge_index")

    over_slices(work, np.diff(edge_ptr))
    return Neighbours(ptr, index)


def simple_neighbours(
    node_ptr: NDArray[Any], edge_ptr: NDArray[Any], edge_index: NDArray[Any]
) -> Neighbours:
    """Neighbours of the simple undirected graph: both directions, no self-loop, no edge twice,
    each list in rising order."""
    lists = neighbours(node_ptr, edge_ptr, edge_index, symmetric=True)
    node_ptr, nodes = np.asarray(node_ptr, np.int64), len(lists.ptr) - 1
    source, target = lists.ends(node_ptr)
    source, target = np.divmod(np.unique((source * nodes + target)[source != target]), nodes or 1)
    first = np.repeat(node_ptr[:-1], np.diff(node_ptr))  # of each node's graph
    ptr = pointer(np.bincount(source, minlength=nodes))
    return Neighbours(ptr, (target - first[source]).astype(np.int32))
