"""Small connected pieces of a graph that cover it several times, drawn at random (DeepGraph).

Candidates of a graph are either **shapes**: induced cycles of 3 to 8 nodes, induced paths of 4 to
8, induced stars with 2 to 6 leaves, and the ball of two hops around each node; or **walks**: the
nodes that a random walk from each node visits. A sample of them is drawn by a greedy cover.

All draws come from a stream that only the number of a sample names, so a sample depends on its
number and graph, not on the graph's place in a dataset or batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import ConfigError, choice
from gradformer.graphs.portable import stream
from gradformer.structure.adjacency import simple_neighbours
from gradformer.structure.parallel import Progress, compiled, over_slices
from gradformer.zoo.precomputed import Precomputed
from gradformer.zoo.shapes import LARGEST_SHAPE, below, draw, find_balls, find_shapes, find_walks

KINDS = ("shapes", "walks")
ROOM = 4096
"""Most cycles, paths and stars of one graph that become candidates; dense graphs have too many."""


def substructures(
    node_ptr: NDArray[Any],
    edge_ptr: NDArray[Any],
    edge_index: NDArray[Any],
    *,
    kind: str = "shapes",
    members: int = 17,
    redundancy: int = 6,
    samples: int = 1,
    progress: Progress | None = None,
) -> NDArray[np.int16]:
    """Sampled substructures of each graph: [graphs, samples, largest number, members].

    A row lists nodes inside their graph, ascending, then −1; rows that are not needed are all −1.

    Args:
        node_ptr, edge_ptr, edge_index: the graphs, read as simple and undirected.
        kind: ``shapes`` or ``walks``.
        members: most nodes of one substructure; larger balls keep their nearest nodes, and a
            walk visits that many nodes at most.
        redundancy: how often every node shall be covered.
        samples: independent samples of each graph.
        progress: called with the number of graphs that became ready.
    """
    walks = choice("kind", kind, KINDS) == "walks"
    if members < (1 if walks else LARGEST_SHAPE):
        least = 1 if walks else LARGEST_SHAPE
        raise ConfigError(f"members: got {members}, expected at least {least} for {kind}")
    lists = simple_neighbours(node_ptr, edge_ptr, edge_index)
    keys = np.concatenate([stream(0, sample) for sample in range(samples)])
    found: dict[int, NDArray[np.int16]] = {}

    def work(first: int, last: int) -> None:
        found[first] = _sample(first, last, node_ptr, *lists, keys, walks, members, redundancy)

    over_slices(work, 1000 * np.diff(node_ptr), progress=progress)
    slices = [found[first] for first in sorted(found)]
    most = max((part.shape[2] for part in slices), default=1)
    out = np.full((len(node_ptr) - 1, samples, most, members), -1, np.int16)
    begin = 0
    for part in slices:
        out[begin : begin + len(part), :, : part.shape[2]] = part
        begin += len(part)
    return out


@compiled
def _sample(first, last, node_ptr, all_ptr, all_near, keys, walks, members, redundancy):  # type: ignore[no-untyped-def]
    """The samples of graphs first … last − 1."""
    out = np.full((last - first, len(keys), 1, members), -1, np.int16)
    shapes, cycles = np.empty((0, members), np.int16), 0
    for g in range(first, last):
        ptr = all_ptr[node_ptr[g] : node_ptr[g + 1] + 1]
        near = all_near[ptr[0] : ptr[-1]]
        ptr = ptr - ptr[0]
        if not walks:
            shapes, cycles = find_shapes(ptr, near, ROOM, members)
            balls = find_balls(ptr, near, members)
        for sample in range(len(keys)):
            used = 0
            if walks:
                balls, used = find_walks(ptr, near, members, keys[sample], used)
            pieces = np.concatenate((shapes, balls))
            counts = (len(ptr) - 1, cycles, len(shapes))
            chosen = cover(pieces, *counts, redundancy, keys[sample], used)
            if len(chosen) > out.shape[2]:
                wider = np.full((len(out), len(keys), len(chosen), members), -1, np.int16)
                wider[:, :, : out.shape[2]] = out
                out = wider
            for s in range(len(chosen)):
                out[g - first, sample, s] = pieces[chosen[s]]
    return out


@compiled
def cover(pieces, nodes, cycles, shapes, redundancy, key, used):  # type: ignore[no-untyped-def]
    """Numbers, ascending, of pieces that cover each node ``redundancy`` times, if they can.

    Half of the pieces are set aside at random, and as many more shapes as shapes outnumber the
    others. Some cycles and one piece of any kind come first; then, again and again, a random half
    of those that hold most of the nodes that were covered least.

    Args:
        pieces: [count, members]; the first ``cycles`` are cycles, the first ``shapes`` are shapes.
        key, used: a random stream, and how many of its words are used.
    """
    count = len(pieces)
    free, chosen = np.ones(count, np.bool_), np.zeros(count, np.bool_)
    everyone = np.arange(count)
    used = _mark(free, False, everyone, count // 2, key, used)
    used = _mark(free, False, everyone[:shapes], max(2 * shapes - count, 0), key, used)
    used = _mark(chosen, True, everyone[:cycles], max(int(0.2 * nodes), 1), key, used)
    used = _mark(chosen, True, everyone, 1, key, used)
    several = max(3 * nodes // max(count, 1), 1)
    while nodes > 0:
        covered = np.zeros(nodes, np.int64)
        for p in range(count):
            if chosen[p]:
                for v in pieces[p]:
                    if v >= 0:
                        covered[v] += 1
        least = covered.min()
        if least >= redundancy:
            break
        score = np.zeros(count, np.int64)
        for p in range(count):
            if free[p] and not chosen[p]:
                for v in pieces[p]:
                    if v >= 0 and covered[v] == least:
                        score[p] += 1
        best = np.empty(2 * several, np.int64)
        found = 0
        while found < 2 * several and score.max() > 0:
            best[found] = score.argmax()
            score[best[found]] = 0
            found += 1
        if found == 0:
            break
        used = _mark(chosen, True, best[:found], several, key, used)
    return np.flatnonzero(chosen)


@compiled
def _mark(marks, value, items, size, key, used):  # type: ignore[no-untyped-def]
    """Set ``marks`` at ``size`` random ones of ``items`` (at all, if there are fewer)."""
    order = items.copy()
    for i in range(min(size, len(order))):
        j = i + np.int64(below(draw(key, np.uint64(used)), np.uint64(len(order) - i)))
        used += 1
        order[i], order[j] = order[j], order[i]
        marks[order[i]] = value
    return used


SUBSTRUCTURES = Precomputed("substructures", substructures, "graph")
