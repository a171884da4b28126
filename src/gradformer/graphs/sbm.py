"""PATTERN and CLUSTER, drawn from their published law (stochastic block models).

Node i of a graph belongs to a block b(i). Nodes i ≠ j are joined with probability ``inside`` if
b(i) = b(j), else ``across``. PATTERN adds a block of its own, the pattern: an Erdős–Rényi graph
that is drawn once and repeated in many graphs, each of its nodes joined to any other node of the
graph with probability ½. The published files were made without a seed; these follow the same law,
graph by graph different, and are the same for one seed on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradformer.graphs import portable
from gradformer.graphs.arrays import GraphArrays, Schema
from gradformer.graphs.portable import Bits, below, draw, stream, unsigned
from gradformer.structure.parallel import compiled, over_slices
from gradformer.structure.pointers import pointer

SMALLEST, LARGEST = 5, 34  # nodes of a block, both included
_SIZES, _EDGES, _FEATURES, _ORDER = range(4)  # the streams of one graph, and of one pattern

_draw: Callable[..., Any] = compiled(portable.draw)
_below: Callable[..., Any] = compiled(portable.below)


@dataclass(frozen=True)
class _Nodes:
    """Nodes after shuffling: ``origin`` [N] is the number a node had when blocks lay in a row."""

    node_ptr: NDArray[np.int64]
    graph: NDArray[np.int64]
    block: NDArray[np.int64]
    origin: NDArray[np.int64]


def cluster(seed: int = 0, splits: tuple[int, int, int] = (10_000, 1_000, 1_000)) -> GraphArrays:
    """CLUSTER: six blocks, one marked node in each; the label of a node is its block.

    ``splits`` counts the training, validation and test graphs, which follow one another.
    """
    keys = draw(stream(seed, 6), unsigned(range(sum(splits))))
    sizes = _block_sizes(keys, 6)
    nodes = _shuffle(keys, sizes)
    mark = below(_stream(keys, _FEATURES, 6), unsigned(sizes)).astype(np.int64)
    marked = np.cumsum(sizes, axis=1) - sizes + mark  # [graphs, 6], in original numbers
    is_marked = nodes.origin == marked[nodes.graph, nodes.block]
    x = np.where(is_marked, nodes.block + 1, 0)
    no_pattern = np.zeros_like(keys)
    edge_ptr, edge_index = _edges(keys, no_pattern, nodes, sizes, -1, inside=0.55, across=0.25)
    schema = Schema(node=(7,), edge=(), level="node", task="multiclass", outputs=6)
    y, split = nodes.block, _split(splits)
    return GraphArrays(nodes.node_ptr, edge_ptr, edge_index, schema, x[:, None], y=y, split=split)


def pattern(
    seed: int = 0, patterns: int = 100, copies: Sequence[int] = (100, 20, 20)
) -> GraphArrays:
    """PATTERN: five background blocks and a hidden pattern; the label is 1 on the pattern's nodes.

    Each of ``patterns`` patterns is hidden in ``copies`` training, validation and test graphs;
    graphs are ordered by split, then by pattern.
    """
    which = np.concatenate([np.repeat(np.arange(patterns), count) for count in copies])
    keys = draw(stream(seed, 5), unsigned(range(len(which))))
    pattern_keys = draw(stream(seed, 5, 1), unsigned(range(patterns)))
    pattern_sizes = _block_sizes(pattern_keys, 1)
    sizes = np.concatenate([_block_sizes(keys, 5), pattern_sizes[which]], axis=1)
    nodes = _shuffle(keys, sizes)
    in_pattern = nodes.block == 5
    first = (sizes.sum(axis=1) - sizes[:, 5])[nodes.graph]
    own, shared = (draw(k, unsigned([_FEATURES])) for k in (keys, pattern_keys[which]))
    three = unsigned([3])
    background = below(draw(own[nodes.graph], unsigned(nodes.origin)), three)
    repeated = below(draw(shared[nodes.graph], unsigned(nodes.origin - first)), three)
    x = np.where(in_pattern, repeated, background).astype(np.int64)
    edge_ptr, edge_index = _edges(
        keys, pattern_keys[which], nodes, sizes, 5, inside=0.5, across=0.35
    )
    schema = Schema(node=(3,), edge=(), level="node", task="multiclass", outputs=2)
    split = _split((patterns * copies[0], patterns * copies[1], patterns * copies[2]))
    y = in_pattern.astype(np.int64)
    return GraphArrays(nodes.node_ptr, edge_ptr, edge_index, schema, x[:, None], y=y, split=split)


def _split(counts: tuple[int, int, int]) -> NDArray[np.int8]:
    return np.repeat(np.arange(3, dtype=np.int8), counts)[:, None]


def _stream(keys: Bits, purpose: int, count: int) -> Bits:
    """The first ``count`` draws of each graph's stream for one purpose, [graphs, count]."""
    own = draw(keys, unsigned([purpose]))
    return draw(own[:, None], unsigned(range(count))[None, :])


def _block_sizes(keys: Bits, blocks: int) -> NDArray[np.int64]:
    spread = unsigned([LARGEST - SMALLEST + 1])
    return SMALLEST + below(_stream(keys, _SIZES, blocks), spread).astype(np.int64)


def _shuffle(keys: Bits, sizes: NDArray[np.int64]) -> _Nodes:
    """Lay the blocks of each graph in a row, then order the nodes of each graph at random."""
    per_graph = sizes.sum(axis=1)
    node_ptr = pointer(per_graph)
    graph = np.repeat(np.arange(len(sizes)), per_graph)
    origin = np.empty(node_ptr[-1], np.int64)
    order_keys = draw(keys, unsigned([_ORDER]))
    over_slices(lambda first, last: _orders(order_keys, node_ptr, first, last, origin), per_graph)
    ends = np.cumsum(sizes, axis=1)
    block = (origin[:, None] >= ends[graph]).sum(axis=1)
    return _Nodes(node_ptr, graph, block, origin)


@compiled
def _orders(
    keys: Bits, node_ptr: NDArray[np.int64], first: int, last: int, order: NDArray[np.int64]
) -> None:
    """Write a random order of the nodes of graphs ``first`` to ``last`` (Fisher–Yates)."""
    for g in range(first, last):
        begin = node_ptr[g]
        for i in range(node_ptr[g + 1] - begin):
            j = np.int64(_below(_draw(keys[g], np.uint64(i)), np.uint64(i + 1)))
            order[begin + i] = order[begin + j]
            order[begin + j] = i


def _edges(
    keys: Bits,
    pattern_keys: Bits,
    nodes: _Nodes,
    sizes: NDArray[np.int64],
    pattern_block: int,
    *,
    inside: float,
    across: float,
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Both directions of all edges, sorted by destination, then source."""
    thresholds = np.array([int(p * 2.0**64) for p in (inside, across, 0.5)], np.uint64)
    own, shared = (draw(k, unsigned([_EDGES])) for k in (keys, pattern_keys))
    pattern_start = sizes.sum(axis=1) - sizes[:, -1]
    law = (own, shared, nodes.node_ptr, nodes.block, nodes.origin)
    pattern = (pattern_start, pattern_block, thresholds)
    pairs = np.diff(nodes.node_ptr) ** 2
    edge_ptr = np.zeros(len(keys) + 1, np.int64)
    nothing = np.empty((2, 0), np.int32)
    over_slices(lambda a, b: _draw_edges(*law, *pattern, a, b, edge_ptr, nothing), pairs)
    np.cumsum(edge_ptr, out=edge_ptr)
    edge_index = np.empty((2, edge_ptr[-1]), np.int32)
    over_slices(lambda a, b: _draw_edges(*law, *pattern, a, b, edge_ptr, edge_index), pairs)
    return edge_ptr, edge_index


@compiled
def _draw_edges(
    own: Bits,
    shared: Bits,
    node_ptr: NDArray[np.int64],
    block: NDArray[np.int64],
    origin: NDArray[np.int64],
    pattern_start: NDArray[np.int64],
    pattern_block: int,
    thresholds: Bits,
    first: int,
    last: int,
    edge_ptr: NDArray[np.int64],
    edge_index: NDArray[np.int32],
) -> None:
    """Write the edges of graphs ``first`` to ``last``; into ``edge_ptr[g + 1]`` only their number
    where ``edge_index`` has no room.

    The draw of a pair depends on the pair alone, so that two passes and both directions agree.
    """
    write = edge_index.shape[1] > 0
    for g in range(first, last):
        begin, end = node_ptr[g], node_ptr[g + 1]
        position = edge_ptr[g] if write else 0
        count = 0
        for target in range(begin, end):
            for source in range(begin, end):
                if source == target:
                    continue
                a, b = origin[source], origin[target]
                low, high = min(a, b), max(a, b)
                key, threshold = own[g], thresholds[1]
                if block[source] == block[target]:
                    threshold = thresholds[0]
                    if block[source] == pattern_block:  # the pattern's own edges, the same anywhere
                        key, threshold = shared[g], thresholds[2]
                        low, high = low - pattern_start[g], high - pattern_start[g]
                elif block[source] == pattern_block or block[target] == pattern_block:
                    threshold = thresholds[2]
                if _draw(key, np.uint64((low << 20) | high)) < threshold:
                    if write:
                        edge_index[0, position + count] = source - begin
                        edge_index[1, position + count] = target - begin
                    count += 1
        if not write:
            edge_ptr[g + 1] = count
