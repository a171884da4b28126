"""One Triton kernel that gathers a batch from a store; the plain form is in ``collate.py``.

Some programs own a tile of the batch's slots (a graph each), some a tile of its node rows, the
others a tile of its edge rows. A program walks over the graph numbers of the batch once, to find
the slots of its rows and what lies before them, and then copies what belongs to its rows. Nothing
is read back and every entry is written once.
"""

# mypy: ignore-errors
from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 64
COLUMNS = 64  # of an array that one program copies at once
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Index(NamedTuple):
    """The store's arrays that say where things are; see the collator."""

    node_ptr: Tensor
    edge_ptr: Tensor
    pair_ptr: Tensor
    source: Tensor
    target: Tensor
    by_source: Tensor
    entering: Tensor
    leaving: Tensor


class Slots(NamedTuple):
    """What a layout has for each graph; ``place`` is 0 everywhere."""

    node_ptr: Tensor
    pair_ptr: Tensor
    graph_id: Tensor
    place: Tensor
    mask: Tensor


class NodeRows(NamedTuple):
    """What a layout and the edges have for each node row."""

    graph: Tensor
    graph_id: Tensor
    place: Tensor
    mask: Tensor
    target_ptr: Tensor
    source_ptr: Tensor


class EdgeRows(NamedTuple):
    """What the edges have for each edge row."""

    source: Tensor
    target: Tensor
    by_source: Tensor
    graph_id: Tensor
    place: Tensor
    mask: Tensor


class Copied(NamedTuple):
    """An array whose rows are gathered, where they go, and whether padded rows become zero."""

    values: Tensor
    out: Tensor
    zero: bool

    @classmethod
    def of(cls, values: Tensor, rows: int, zero: bool) -> Copied:
        return cls(values, values.new_empty(rows, *values.shape[1:]), zero)

    @property
    def kind(self) -> tuple[int, int, bool]:
        """Width, columns that are copied at once, and ``zero``."""
        width = math.prod(self.values.shape[1:])
        return width, min(triton.next_power_of_2(width), COLUMNS), self.zero


@triton.jit
def _locate(
    ids, index, place, graphs,
    BY_NODES: tl.constexpr, BY_EDGES: tl.constexpr, GRAPHS: tl.constexpr,
):  # fmt: skip
    """Slot of each ``place``, nodes and edges of all slots before it, and of the whole batch.

    Places are node rows, edge rows or slots; those behind the last row count to the last slot.
    """
    slot = place * 0
    nodes_before = place * 0
    edges_before = place * 0
    all_nodes = 0
    all_edges = 0
    for start in range(0, graphs, GRAPHS):
        g = start + tl.arange(0, GRAPHS)
        graph = tl.load(ids + g, g < graphs, other=-1)
        real = graph >= 0
        nodes = tl.load(index.node_ptr + graph + 1, real, other=0)
        nodes = (nodes - tl.load(index.node_ptr + graph, real, other=0)).to(tl.int32)
        edges = tl.load(index.edge_ptr + graph + 1, real, other=0)
        edges = (edges - tl.load(index.edge_ptr + graph, real, other=0)).to(tl.int32)
        if BY_NODES:
            passed = (all_nodes + tl.cumsum(nodes, 0))[None, :] <= place[:, None]
            passed = passed & (g < graphs - 1)[None, :]
        elif BY_EDGES:
            passed = (all_edges + tl.cumsum(edges, 0))[None, :] <= place[:, None]
            passed = passed & (g < graphs - 1)[None, :]
        else:
            passed = g[None, :] < place[:, None]
        slot += tl.sum(passed.to(tl.int32), 1)
        nodes_before += tl.sum(tl.where(passed, nodes[None, :], 0), 1)
        edges_before += tl.sum(tl.where(passed, edges[None, :], 0), 1)
        all_nodes += tl.sum(nodes)
        all_edges += tl.sum(edges)
    return slot, nodes_before, edges_before, all_nodes, all_edges


@triton.jit
def _row(ids, ptr, slot, place, last):
    """Graph in each ``slot``, and the store's row at ``place`` in it; padding reads any row."""
    graph = tl.load(ids + slot)
    there = tl.maximum(graph, 0)
    first = tl.load(ptr + there)
    size = tl.where(graph >= 0, tl.load(ptr + there + 1) - first, 0)
    return graph, tl.minimum(first + tl.minimum(place, tl.maximum(size - 1, 0)), last)


@triton.jit
def _copy(values, out, row, place, inside, kept, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """out[place] = values[row], 0 where not ``kept``; a second grid axis shares out the columns."""
    for start in range(tl.program_id(1) * BLOCK, WIDTH, tl.num_programs(1) * BLOCK):
        column = start + tl.arange(0, BLOCK)
        wide = (column < WIDTH)[None, :]
        word = tl.load(values + row.to(tl.int64)[:, None] * WIDTH + column, kept[:, None] & wide, 0)
        here = place.to(tl.int64)[:, None] * WIDTH + column
        tl.store(out + here, word, inside[:, None] & wide)


@triton.jit
def _copy_all(
    values, outs, row, place, inside, real, KINDS: tl.constexpr
):  # fmt: skip
    """All arrays of one kind; KINDS has (width, columns at once, zero in padded rows) of each."""
    for i in tl.static_range(len(KINDS)):
        if KINDS[i][2]:
            _copy(values[i], outs[i], row, place, inside, inside & real, KINDS[i][0], KINDS[i][1])
        else:
            _copy(values[i], outs[i], row, place, inside, inside, KINDS[i][0], KINDS[i][1])


@triton.jit
def _slot_tile(
    tile, ids, index, out, values, outs, graphs,
    KINDS: tl.constexpr, ROWS: tl.constexpr, GRAPHS: tl.constexpr,
):  # fmt: skip
    place = tile * ROWS + tl.arange(0, ROWS)
    inside = place < graphs
    _, before, _, all_nodes, _ = _locate(ids, index, place, graphs, False, False, GRAPHS)
    graph = tl.load(ids + place, inside, other=-1)
    there = tl.maximum(graph, 0)
    size = tl.load(index.node_ptr + there + 1) - tl.load(index.node_ptr + there)
    if tl.program_id(1) == 0:
        tl.store(out.node_ptr + place, before, inside)
        tl.store(out.node_ptr + graphs, all_nodes)
        tl.store(out.pair_ptr + place, tl.load(index.pair_ptr + there), inside)
        tl.store(out.graph_id + place, graph.to(tl.int32), inside)
        tl.store(out.place + place, place * 0, inside)
        tl.store(out.mask + place, ((graph >= 0) & (size > 0)).to(tl.uint8), inside)
    _copy_all(values, outs, there, place, inside, inside, KINDS)


@triton.jit
def _node_tile(
    tile, ids, index, out, values, outs, graphs, rows, last,
    KINDS: tl.constexpr, ROWS: tl.constexpr, GRAPHS: tl.constexpr,
):  # fmt: skip
    place = tile * ROWS + tl.arange(0, ROWS)
    inside = place < rows
    slot, before, edges, all_nodes, all_edges = _locate(
        ids, index, place, graphs, True, False, GRAPHS
    )
    real = place < all_nodes
    graph, row = _row(ids, index.node_ptr, slot, place - before, last)
    if tl.program_id(1) == 0:
        tl.store(out.graph + place, tl.where(real, slot, graphs), inside)
        tl.store(out.graph_id + place, graph.to(tl.int32), inside)
        tl.store(out.place + place, place - before, inside)
        tl.store(out.mask + place, real.to(tl.uint8), inside)
        entering = tl.where(real, edges + tl.load(index.entering + row), all_edges)
        leaving = tl.where(real, edges + tl.load(index.leaving + row), all_edges)
        tl.store(out.target_ptr + place, entering, place <= rows)
        tl.store(out.source_ptr + place, leaving, place <= rows)
    _copy_all(values, outs, row, place, inside, real, KINDS)


@triton.jit
def _edge_tile(
    tile, ids, index, out, values, outs, graphs, nodes, rows, last,
    KINDS: tl.constexpr, ROWS: tl.constexpr, GRAPHS: tl.constexpr,
):  # fmt: skip
    place = tile * ROWS + tl.arange(0, ROWS)
    inside = place < rows
    slot, nodes_before, before, _, all_edges = _locate(
        ids, index, place, graphs, False, True, GRAPHS
    )
    real = place < all_edges
    graph, row = _row(ids, index.edge_ptr, slot, place - before, last)
    if tl.program_id(1) == 0:
        source = tl.where(real, tl.load(index.source + row) + nodes_before, 0)
        target = tl.where(real, tl.load(index.target + row) + nodes_before, nodes - 1)
        by_source = tl.where(real, tl.load(index.by_source + row) + before, place)
        tl.store(out.source + place, source, inside)
        tl.store(out.target + place, target, inside)
        tl.store(out.by_source + place, by_source, inside)
        tl.store(out.graph_id + place, graph.to(tl.int32), inside)
        tl.store(out.place + place, place - before, inside)
        tl.store(out.mask + place, real.to(tl.uint8), inside)
    _copy_all(values, outs, row, place, inside, real, KINDS)


@triton.jit(do_not_specialize=["graphs", "nodes", "edges", "last_node", "last_edge"])
def gather_kernel(
    ids, index, slots, node_rows, edge_rows,
    slot_values, slot_outs, node_values, node_outs, edge_values, edge_outs,
    graphs, nodes, edges, last_node, last_edge,
    SLOTS: tl.constexpr, NODES: tl.constexpr, EDGES: tl.constexpr,
    ROWS: tl.constexpr, GRAPHS: tl.constexpr,
):  # fmt: skip
    """Grid (tiles of slots, of node rows, of edge rows; columns)."""
    tile = tl.program_id(0)
    slot_tiles = tl.cdiv(graphs, ROWS)
    node_tiles = tl.cdiv(nodes + 1, ROWS)  # pointers have one entry more
    if tile < slot_tiles:
        _slot_tile(
            tile, ids, index, slots, slot_values, slot_outs, graphs,
            SLOTS, ROWS, GRAPHS,
        )  # fmt: skip
    elif tile < slot_tiles + node_tiles:
        _node_tile(
            tile - slot_tiles, ids, index, node_rows, node_values, node_outs, graphs, nodes,
            last_node, NODES, ROWS, GRAPHS,
        )  # fmt: skip
    else:
        _edge_tile(
            tile - slot_tiles - node_tiles, ids, index, edge_rows, edge_values, edge_outs, graphs,
            nodes, edges, last_edge, EDGES, ROWS, GRAPHS,
        )  # fmt: skip


def gather(
    ids: Tensor, index: Index, sizes: tuple[int, int, int], *copied: list[Copied]
) -> tuple[Slots, NodeRows, EdgeRows]:
    """The batch of graphs ``ids`` [graphs] int64 in one launch.

    Args:
        index: of the store.
        sizes: slots, node rows and edge rows of the batch.
        copied: three lists of arrays, of graphs, of nodes and of edges; their ``out`` are filled.
    """
    graphs, nodes, edges = sizes

    def ints(count: int, *, more: int = 0) -> Tensor:
        return torch.empty(count + more, dtype=torch.int32, device=ids.device)

    def mask(count: int) -> Tensor:
        return torch.empty(count, dtype=torch.bool, device=ids.device)

    pair_ptr = torch.empty(graphs, dtype=torch.int64, device=ids.device)
    slots = Slots(ints(graphs, more=1), pair_ptr, ints(graphs), ints(graphs), mask(graphs))
    node_rows = NodeRows(
        ints(nodes), ints(nodes), ints(nodes), mask(nodes), ints(nodes, more=1), ints(nodes, more=1)
    )
    edge_rows = EdgeRows(*(ints(edges) for _ in range(5)), mask(edges))
    lists = [arg for part in copied for arg in (_words(part, "values"), _words(part, "out"))]
    tiles = -(-graphs // ROWS) - (-(nodes + 1) // ROWS) - (-edges // ROWS)
    widest = max((item.kind[0] for part in copied for item in part), default=1)
    gather_kernel[tiles, min(-(-widest // COLUMNS), 64)](
        ids.contiguous(), index, *(_bytes(rows) for rows in (slots, node_rows, edge_rows)), *lists,
        *sizes, len(index.entering) - 1, len(index.source) - 1,
        *(tuple(item.kind for item in part) for part in copied), ROWS=ROWS,
        GRAPHS=min(triton.next_power_of_2(graphs), 128), num_warps=4,
    )  # fmt: skip
    return slots, node_rows, edge_rows


def _words(part: list[Copied], name: str) -> tuple[Tensor, ...]:
    """Arrays as integers of the same size: copies must not change a bit."""
    arrays = (getattr(item, name) for item in part)
    return tuple(array.view(WORDS[array.element_size()]) for array in arrays)


def _bytes(rows: NamedTuple) -> NamedTuple:
    return rows._replace(mask=rows.mask.view(torch.uint8))
