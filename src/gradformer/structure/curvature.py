"""Discrete Ricci curvature of the edges, and the distance between nodes that it induces.

Ollivier's curvature compares the neighbourhoods of an edge's ends. With idleness ½, a walker at x
stays with probability ½ and else moves to a neighbour at random: the measure μ_x. Then

    κ(x, y) = 1 − W₁(μ_x, μ_y),

W₁ being the cost of moving one measure onto the other, a hop a unit. Edges inside a cluster have κ
near ½, bridges have κ < 0. An edge is 1 − κ long, at least ``FLOOR``, and ψ(i, j) is the shortest
path over these lengths: bottlenecks push nodes apart, dense parts pull them together.

Transport is exact and costs about (d_x + d_y) d_x d_y steps. Where that is hopeless, Forman's
curvature stands in, in its balanced form with triangles, halved for the idleness:

    κ(x, y) = 1/d_x + 1/d_y − 1 + t/max(d_x, d_y) + t/(2 min(d_x, d_y)),

t being the triangles over the edge. It equals Ollivier's on trees and complete graphs. Edges count
in both directions, once; self-loops are ignored.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import choice
from gradformer.structure.adjacency import Neighbours, simple_neighbours
from gradformer.structure.codebook import Codebook
from gradformer.structure.distance import hop_distances
from gradformer.structure.parallel import BLOCK, Progress, compiled, node_blocks, over_slices
from gradformer.structure.pointers import pair_pointer
from gradformer.structure.transport import transport

FLOOR = 0.05
"""Shortest length of an edge (an isolated pair has κ = 1)."""

TRANSPORT_LIMIT = 2 * 16**3
"""Mean (d_x + d_y) d_x d_y of the edges up to which transport is used: that of degree 16."""

OLLIVIER, FORMAN = "curvature-ollivier", "curvature-forman"
"""What codebooks are called whose distances are made of one or the other."""


def curvature_distances(
    node_ptr: NDArray[Any],
    edge_ptr: NDArray[Any],
    edge_index: NDArray[Any],
    *,
    codebook: Codebook | None = None,
    progress: Progress | None = None,
) -> tuple[NDArray[np.uint8], Codebook]:
    """Curvature distance of all pairs as bytes, flat [Σ n²], and what the bytes mean.

    Args:
        node_ptr, edge_ptr, edge_index: as in :func:`~gradformer.structure.hop_distances`.
        codebook: that of an earlier call, to give new graphs the same unit (and the same curvature,
            by its name); otherwise 255 even bins up to the largest distance found.
        progress: called with the number of graphs that became ready.
    """
    name = None
    if codebook is not None:
        name = choice("codebook.name", codebook.name, (OLLIVIER, FORMAN))
    lists, kappa, name = edge_curvature(node_ptr, edge_ptr, edge_index, name)
    length = np.maximum(1 - kappa, FLOOR)
    node_ptr = np.asarray(node_ptr, np.int64)
    pair_ptr = pair_pointer(node_ptr)
    sizes = np.diff(node_ptr)
    graph, block = node_blocks(node_ptr)
    start = np.append(pair_ptr[graph] + BLOCK * block * sizes[graph], pair_ptr[-1])
    cost = 16 * BLOCK * (np.diff(lists.ptr[node_ptr]) + sizes)[graph]

    def paths(first: int, last: int) -> NDArray[np.float64]:
        psi = np.empty(start[last] - start[first])
        _weighted_paths(first, last, graph, block, node_ptr, *lists, length, psi)
        return psi

    if codebook is None:
        largest = np.zeros(len(graph))

        def measure(first: int, last: int) -> None:
            psi = paths(first, last)
            largest[first] = psi[np.isfinite(psi)].max()

        over_slices(measure, cost)
        codebook = Codebook.uniform(name, float(largest.max(initial=FLOOR)))

    out = np.empty(int(pair_ptr[-1]), np.uint8)

    def encode(first: int, last: int) -> None:
        out[start[first] : start[last]] = codebook.encode(paths(first, last))

    over_slices(encode, cost, block == 0, progress)
    return out, codebook


def edge_curvature(
    node_ptr: NDArray[Any], edge_ptr: NDArray[Any], edge_index: NDArray[Any], name: str | None
) -> tuple[Neighbours, NDArray[np.float64], str]:
    """Simple neighbour lists, κ of each of their entries, and which of the two it is: that of
    ``name``, or, if None, by what transport would cost."""
    lists = simple_neighbours(node_ptr, edge_ptr, edge_index)
    node_ptr = np.asarray(node_ptr, np.int64)
    degree = np.diff(lists.ptr)
    here, there = (degree[end] for end in lists.ends(node_ptr))
    work = (here + there) * here * there
    if name is None:
        hopeless = len(work) > 0 and work.mean() > TRANSPORT_LIMIT
        name = FORMAN if hopeless else OLLIVIER

    kappa = np.zeros(len(lists.targets))
    if name == OLLIVIER:
        hops = hop_distances(node_ptr, edge_ptr, edge_index, symmetric=True)
        pair_ptr = pair_pointer(node_ptr)
        per_graph = np.diff(np.append(0, np.cumsum(8 * work))[lists.ptr[node_ptr]])
        over_slices(
            lambda first, last: _ollivier(first, last, node_ptr, *lists, pair_ptr, hops, kappa),
            per_graph,
        )
    else:
        per_graph = np.diff(np.append(0, np.cumsum(here + there))[lists.ptr[node_ptr]])
        over_slices(lambda first, last: _forman(first, last, node_ptr, *lists, kappa), per_graph)
    return lists, kappa, name


@compiled
def _ollivier(first, last, node_ptr, ptr, targets, pair_ptr, hops, kappa):  # type: ignore[no-untyped-def]
    """κ of all edges of graphs first…last, both directions of an edge at once.

    Masses are whole numbers: μ_x and μ_y are multiplied by 2 d_x d_y. What both measures have in
    common stays where it is, which is always optimal.
    """
    for g in range(first, last):
        base, n = node_ptr[g], node_ptr[g + 1] - node_ptr[g]
        excess = np.zeros(n, np.int64)
        for x in range(n):
            for e in range(ptr[base + x], ptr[base + x + 1]):
                y = targets[e]
                if y < x:
                    continue
                of_x = targets[ptr[base + x] : ptr[base + x + 1]]
                of_y = targets[ptr[base + y] : ptr[base + y + 1]]
                dx, dy = len(of_x), len(of_y)
                for v in of_x:
                    excess[v] += dy
                for v in of_y:
                    excess[v] -= dx
                excess[x] += dx * dy
                excess[y] -= dx * dy

                supply_at, demand_at = np.empty(dx + 1, np.int64), np.empty(dy + 1, np.int64)
                supplies = demands = 0
                for i in range(dx + 1):
                    v = of_x[i] if i < dx else x
                    if excess[v] > 0:
                        supply_at[supplies] = v
                        supplies += 1
                for i in range(dy + 1):
                    v = of_y[i] if i < dy else y
                    if excess[v] < 0:
                        demand_at[demands] = v
                        demands += 1
                supply, demand = np.empty(supplies, np.int64), np.empty(demands, np.int64)
                cost = np.empty((supplies, demands), np.int64)
                for s in range(supplies):
                    supply[s] = excess[supply_at[s]]
                for d in range(demands):
                    demand[d] = -excess[demand_at[d]]
                for s in range(supplies):
                    for d in range(demands):
                        cost[s, d] = hops[pair_ptr[g] + supply_at[s] * n + demand_at[d]]
                kappa[e] = 1 - transport(cost, supply, demand) / (2 * dx * dy)
                for back in range(ptr[base + y], ptr[base + y + 1]):
                    if targets[back] == x:
                        kappa[back] = kappa[e]
                for v in of_x:
                    excess[v] = 0
                for v in of_y:
                    excess[v] = 0


@compiled
def _forman(first, last, node_ptr, ptr, targets, kappa):  # type: ignore[no-untyped-def]
    """Halved balanced Forman curvature with triangles, counted on sorted lists."""
    for g in range(first, last):
        base, n = node_ptr[g], node_ptr[g + 1] - node_ptr[g]
        for x in range(n):
            for e in range(ptr[base + x], ptr[base + x + 1]):
                y = targets[e]
                i, i_end = ptr[base + x], ptr[base + x + 1]
                j, j_end = ptr[base + y], ptr[base + y + 1]
                dx, dy = i_end - i, j_end - j
                triangles = 0
                while i < i_end and j < j_end:
                    u, v = targets[i], targets[j]
                    triangles += u == v
                    i += u <= v
                    j += v <= u
                shared = triangles / max(dx, dy) + triangles / (2 * min(dx, dy))
                kappa[e] = 1 / dx + 1 / dy - 1 + shared


@compiled
def _weighted_paths(first, last, graph, block, node_ptr, ptr, targets, length, psi):  # type: ignore[no-untyped-def]
    """Shortest weighted paths from 64 nodes at a time, row after row into ``psi``.

    A queue of nodes whose neighbours may improve: edge lengths differ little, so nearly every node
    enters it once or twice.
    """
    place = 0
    for item in range(first, last):
        g = graph[item]
        base, n = node_ptr[g], node_ptr[g + 1] - node_ptr[g]
        queue = np.empty(n, np.int64)
        waiting = np.zeros(n, np.bool_)
        for root in range(BLOCK * block[item], min(BLOCK * block[item] + BLOCK, n)):
            row = psi[place : place + n]
            place += n
            row[:] = np.inf
            row[root] = 0.0
            queue[0] = root
            head, count = 0, 1
            while count > 0:
                u = queue[head]
                head = head + 1 if head + 1 < n else 0
                count -= 1
                waiting[u] = False
                for e in range(ptr[base + u], ptr[base + u + 1]):
                    v = targets[e]
                    if row[u] + length[e] < row[v]:
                        row[v] = row[u] + length[e]
                        if not waiting[v]:
                            waiting[v] = True
                            queue[(head + count) % n] = v
                            count += 1
