"""Small connected pieces of a graph that cover it several times, drawn at random (DeepGraph).

Candidates of a graph are either **shapes**: induced cycles of 3 to 8 nodes, induced paths of 4 to
8, induced stars with 2 to 6 leaves, and the ball of two hops around each node; or **walks**: the
nodes that a random walk from each node visits. A sample of them is drawn by a greedy cover.

All draws come from a stream that only the seed names, so the sample of a graph depends on the seed
and on that graph, not on its place in a dataset or batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import ConfigError, choice
from gradformer.graphs.arrays import GraphArrays
from gradformer.graphs.portable import below, draw, stream, unsigned
from gradformer.graphs.structures import register_structure
from gradformer.progress import bar
from gradformer.structure.adjacency import simple_neighbours

KINDS = ("shapes", "walks")
CYCLES, PATHS, STARS, BALL = (3, 8), (4, 8), (2, 6), 2
WORK = 20_000
"""Most steps of the search for cycles and paths in one graph; dense graphs have too many."""

Nodes = tuple[int, ...]
Adjacency = list[set[int]]


class Draws:
    """Random numbers in the order they are asked for, from the stream that ``parts`` name."""

    def __init__(self, *parts: int) -> None:
        self.key, self.count = stream(*parts), 0

    def bits(self, size: int) -> NDArray[np.uint64]:
        """``size`` new random words."""
        self.count += size
        return draw(self.key, np.arange(self.count - size, self.count, dtype=np.uint64))

    def some(self, items: NDArray[Any], size: int) -> NDArray[Any]:
        """``size`` different ones of ``items`` (all, if there are fewer), in random order."""
        return items[np.argsort(self.bits(len(items)), kind="stable")[:size]]


def substructures(
    node_ptr: NDArray[Any],
    edge_ptr: NDArray[Any],
    edge_index: NDArray[Any],
    *,
    kind: str = "shapes",
    members: int = 21,
    redundancy: int = 6,
    samples: int = 1,
    seed: int = 0,
    progress: Any = None,
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
        seed: names the random stream.
    """
    choice("kind", kind, KINDS)
    if kind == "shapes" and members < max(CYCLES[1], PATHS[1], STARS[1] + 1):
        raise ConfigError(f"members: {members} is too few for all shapes; give at least 8")
    lists = simple_neighbours(node_ptr, edge_ptr, edge_index)
    found: list[list[list[Nodes]]] = []
    for first, last in pairwise(node_ptr.tolist()):
        ends = pairwise(lists.ptr[first : last + 1])
        near = [set(lists.targets[a:b].tolist()) for a, b in ends]
        streams = [Draws(seed, sample) for sample in range(samples)]
        sample = _sample_shapes if kind == "shapes" else _sample_walks
        found.append(sample(near, members, redundancy, streams))
        if progress is not None:
            progress(1)
    most = max((len(pieces) for graph in found for pieces in graph), default=0)
    out = np.full((len(found), samples, max(most, 1), members), -1, np.int16)
    for g, graph in enumerate(found):
        for k, pieces in enumerate(graph):
            for s, piece in enumerate(pieces):
                out[g, k, s, : len(piece)] = piece
    return out


def _sample_shapes(
    near: Adjacency, members: int, redundancy: int, streams: list[Draws]
) -> list[list[Nodes]]:
    cycles, paths = _cycles_and_paths(near)
    shapes = [*cycles, *paths, *_stars(near)]
    pieces = [*shapes, *_balls(near, members)]
    holds = _membership(pieces, len(near))
    return [
        [pieces[number] for number in cover(holds, len(cycles), len(shapes), redundancy, draws)]
        for draws in streams
    ]


def _sample_walks(
    near: Adjacency, members: int, redundancy: int, streams: list[Draws]
) -> list[list[Nodes]]:
    found = []
    for draws in streams:
        pieces = _walks(near, members, draws)
        chosen = cover(_membership(pieces, len(near)), 0, 0, redundancy, draws)
        found.append([pieces[number] for number in chosen])
    return found


def _membership(pieces: list[Nodes], nodes: int) -> NDArray[np.float32]:
    """1 where a piece holds a node, [pieces, nodes]."""
    holds = np.zeros((len(pieces), nodes), np.float32)
    for number, piece in enumerate(pieces):
        holds[number, list(piece)] = 1.0
    return holds


def cover(
    holds: NDArray[np.float32], cycles: int, shapes: int, redundancy: int, draws: Draws
) -> list[int]:
    """Numbers, ascending, of candidates that cover each node ``redundancy`` times, if they can.

    Half of the candidates are set aside at random, and as many more shapes as shapes outnumber the
    others. Some cycles and one candidate of any kind come first; then, again and again, a random
    half of those that hold most of the nodes that were covered least.

    Args:
        holds: 1 where a candidate holds a node, [candidates, nodes]; the first ``cycles`` are
            cycles, the first ``shapes`` are shapes.
    """
    count, nodes = holds.shape
    if not count:
        return []
    everyone = np.arange(count)
    free = np.ones(count, np.bool_)
    free[draws.some(everyone, count // 2)] = False
    free[draws.some(everyone[:shapes], max(2 * shapes - count, 0))] = False
    chosen = np.zeros(count, np.bool_)
    chosen[draws.some(everyone[:cycles], max(int(0.2 * nodes), 1))] = True
    chosen[draws.some(everyone, 1)] = True
    several = max(int(3 * nodes / count), 1)
    while True:
        covered = chosen @ holds
        if covered.min() >= redundancy:
            break
        score = (holds @ (covered == covered.min())) * (free & ~chosen)
        if not score.any():
            break
        best = np.argsort(-score, kind="stable")[: 2 * several]
        chosen[draws.some(best[score[best] > 0], several)] = True
    picked: list[int] = np.flatnonzero(chosen).tolist()
    return picked


def _cycles_and_paths(near: Adjacency) -> tuple[list[Nodes], list[Nodes]]:
    """Induced cycles and induced paths, shorter ones first: a search along induced paths."""
    cycles: set[Nodes] = set()
    paths: set[Nodes] = set()
    work = 0
    for start in range(len(near)):
        stack: list[Nodes] = [(start,)]
        while stack and work < WORK:
            path = stack.pop()
            work += 1
            if PATHS[0] <= len(path) <= PATHS[1]:
                paths.add(tuple(sorted(path)))
            for node in near[path[-1]].difference(path):
                touched = near[node].intersection(path)
                if len(touched) == 1 and len(path) < PATHS[1]:
                    stack.append((*path, node))
                closes = len(touched) == 2 and path[0] in touched
                if closes and CYCLES[0] <= len(path) + 1 <= CYCLES[1]:
                    cycles.add(tuple(sorted((*path, node))))
    return _in_order(cycles), _in_order(paths)


def _stars(near: Adjacency) -> list[Nodes]:
    """Induced stars: a node and neighbours of it that are not joined."""
    stars: set[Nodes] = set()
    for centre, leaves in enumerate(near):
        for group in _independent(sorted(leaves), near):
            if len(stars) < WORK:
                stars.add(tuple(sorted((centre, *group))))
    return _in_order(stars)


def _independent(nodes: list[int], near: Adjacency) -> Iterator[Nodes]:
    """Groups of 2 to 6 of ``nodes`` without an edge among them."""
    groups: list[Nodes] = [(node,) for node in nodes]
    for _ in range(STARS[0], STARS[1] + 1):
        if len(groups) > WORK:
            return
        groups = [
            (*group, node)
            for group in groups
            for node in nodes
            if node > group[-1] and not near[node].intersection(group)
        ]
        yield from groups


def _balls(near: Adjacency, members: int) -> list[Nodes]:
    """Each node and all within two hops, at most ``members``, nearest first."""
    balls = []
    for root in range(len(near)):
        ball, ring = [root], [root]
        for _ in range(BALL):
            ring = sorted(set().union(*(near[node] for node in ring)).difference(ball))
            ball += ring
        balls.append(tuple(sorted(ball[:members])))
    return balls


def _walks(near: Adjacency, members: int, draws: Draws) -> list[Nodes]:
    """The nodes on a random walk of ``members`` nodes from each node; it ends where no edge is."""
    walks = []
    for root in range(len(near)):
        walk = [root]
        for bits in draws.bits(members - 1):
            options = sorted(near[walk[-1]])
            if options:
                walk.append(options[int(below(bits, unsigned(len(options))))])
        walks.append(tuple(sorted(set(walk))))
    return walks


def _in_order(pieces: set[Nodes]) -> list[Nodes]:
    return sorted(pieces, key=lambda piece: (len(piece), piece))


def _structure(arrays: GraphArrays, **options: Any) -> dict[str, NDArray[Any]]:
    with bar("substructures", arrays.num_graphs) as advance:
        graphs = (arrays.node_ptr, arrays.edge_ptr, arrays.edge_index)
        return {"substructures": substructures(*graphs, **options, progress=advance)}


register_structure("substructures", _structure, "graph")
