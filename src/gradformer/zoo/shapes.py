"""Candidates for substructures of one graph: induced cycles, paths and stars, balls, and walks.

Compiled loops. A graph comes as sorted neighbour lists (node v has ``near[ptr[v]:ptr[v + 1]]``);
found pieces go into ``pieces`` [room, members], nodes ascending and then −1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradformer.graphs import portable
from gradformer.structure.parallel import compiled

CYCLE_NODES, PATH_NODES, STAR_LEAVES, BALL_HOPS = (3, 8), (4, 8), (2, 6), 2
LARGEST_SHAPE = 8
PATHS, STARS = 100, 200  # ranks: cycles have their size, paths and stars that and one of these

draw: Callable[..., Any] = compiled(portable.draw)
below: Callable[..., Any] = compiled(portable.below)


@compiled
def find_shapes(ptr, near, room, members):  # type: ignore[no-untyped-def]
    """All shapes, at most ``room``: cycles, then paths, then stars, each by size.

    Returns pieces and the number of cycles.
    """
    nodes = len(ptr) - 1
    linked = np.zeros((nodes, nodes), np.bool_)
    for v in range(nodes):
        for e in range(ptr[v], ptr[v + 1]):
            linked[v, near[e]] = True
    found = np.full((room, members), -1, np.int16)
    rank = np.zeros(room, np.int64)  # kind and size
    count = _paths_and_cycles(ptr, near, linked, found, rank)
    count = _stars(ptr, near, linked, found, rank, count)
    pieces = np.empty((count, members), np.int16)
    place, cycles = 0, 0
    for wanted in range(STARS + LARGEST_SHAPE + 1):
        for i in range(count):
            if rank[i] == wanted:
                pieces[place] = found[i]
                place += 1
        if wanted < PATHS:
            cycles = place
    return pieces, cycles


@compiled
def _add(piece, node):  # type: ignore[no-untyped-def]
    """Put ``node`` into its place among the nodes of ``piece``."""
    i = 0
    while piece[i] >= 0:
        i += 1
    while i > 0 and piece[i - 1] > node:
        piece[i] = piece[i - 1]
        i -= 1
    piece[i] = node


@compiled
def _paths_and_cycles(ptr, near, linked, found, rank):  # type: ignore[no-untyped-def]
    """Grow induced paths from every node; one whose next node touches its start is a cycle.

    A path is kept from its smaller end; a cycle from its smallest node, towards the smaller side.
    """
    nodes = len(linked)
    path, turn = np.empty(LARGEST_SHAPE, np.int64), np.empty(LARGEST_SHAPE, np.int64)
    inside = np.zeros(nodes, np.bool_)
    touched = np.zeros(nodes, np.int64)  # how many nodes of the path are neighbours
    count = 0
    for start in range(nodes):
        node, size = start, 0
        while count < len(found):
            path[size], turn[size] = node, ptr[node]  # the path grows by ``node``
            size += 1
            inside[node] = True
            for e in range(ptr[node], ptr[node + 1]):
                touched[near[e]] += 1
            if PATH_NODES[0] <= size and start < node:
                for i in range(size):
                    _add(found[count], path[i])
                rank[count] = PATHS + size
                count += 1
            grown = False
            while size > 0 and not grown:
                last = path[size - 1]
                if turn[size - 1] == ptr[last + 1]:  # all ways on are tried: one step back
                    size -= 1
                    inside[last] = False
                    for e in range(ptr[last], ptr[last + 1]):
                        touched[near[e]] -= 1
                    continue
                node = near[turn[size - 1]]
                turn[size - 1] += 1
                if inside[node]:
                    continue
                if touched[node] == 1:
                    grown = size < PATH_NODES[1]
                elif touched[node] == 2 and linked[node, start] and size < CYCLE_NODES[1]:
                    smallest = path[1] < node
                    for i in range(1, size):
                        smallest &= start < path[i]
                    if smallest and count < len(found):
                        _add(found[count], node)
                        for i in range(size):
                            _add(found[count], path[i])
                        rank[count] = size + 1
                        count += 1
            if size == 0:
                break
    return count


@compiled
def _stars(ptr, near, linked, found, rank, count):  # type: ignore[no-untyped-def]
    """Every node with 2 to 6 of its neighbours that are not linked among themselves."""
    leaves, turn = np.empty(STAR_LEAVES[1], np.int64), np.empty(STAR_LEAVES[1], np.int64)
    for centre in range(len(linked)):
        turn[0], taken = ptr[centre], 0
        while taken >= 0 and count < len(found):
            if turn[taken] == ptr[centre + 1]:
                taken -= 1
                continue
            leaf = near[turn[taken]]
            turn[taken] += 1
            apart = True
            for i in range(taken):
                apart &= not linked[leaf, leaves[i]]
            if not apart:
                continue
            leaves[taken] = leaf
            if taken + 1 >= STAR_LEAVES[0]:
                _add(found[count], centre)
                for i in range(taken + 1):
                    _add(found[count], leaves[i])
                rank[count] = STARS + taken
                count += 1
            if taken + 1 < STAR_LEAVES[1]:
                turn[taken + 1] = turn[taken]
                taken += 1
    return count


@compiled
def find_balls(ptr, near, members):  # type: ignore[no-untyped-def]
    """Around each node all within two hops, at most ``members``, nearest first."""
    nodes = len(ptr) - 1
    pieces = np.full((nodes, members), -1, np.int16)
    for root in range(nodes):
        hops = np.full(nodes, BALL_HOPS + 1)
        hops[root] = 0
        for level in range(BALL_HOPS):
            for v in range(nodes):
                if hops[v] == level:
                    for e in range(ptr[v], ptr[v + 1]):
                        hops[near[e]] = min(hops[near[e]], level + 1)
        size = 0
        for level in range(BALL_HOPS + 1):
            for v in range(nodes):
                if hops[v] == level and size < members:
                    _add(pieces[root], v)
                    size += 1
    return pieces


@compiled
def find_walks(ptr, near, members, key, used):  # type: ignore[no-untyped-def]
    """The nodes on a random walk of ``members`` nodes from each node; it ends where no edge is.

    Returns the pieces and how many words of the stream ``key`` are used by now.
    """
    nodes = len(ptr) - 1
    pieces = np.full((nodes, members), -1, np.int16)
    for root in range(nodes):
        visited = np.zeros(nodes, np.bool_)
        visited[root] = True
        _add(pieces[root], root)
        v = root
        for _ in range(members - 1):
            options = near[ptr[v] : ptr[v + 1]]
            if len(options) == 0:
                break
            word = draw(key, np.uint64(used))
            used += 1
            v = options[np.int64(below(word, np.uint64(len(options))))]
            if not visited[v]:
                visited[v] = True
                _add(pieces[root], v)
    return pieces, used
