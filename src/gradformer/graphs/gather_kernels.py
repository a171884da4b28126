"""The Triton kernel of :mod:`gradformer.graphs.fused_gather`.

Some programs own a tile of the batch's slots (a graph each), some a tile of its node rows, the
others a tile of its edge rows. A program walks over the graph numbers of the batch once, to find
the slots of its rows and what lies before them, and then copies what belongs to its rows. Nothing
is read back and every entry is written once.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


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
