"""Graphs for the tests of message passing: a hub, loops, repeated and one-way edges, padding."""

from __future__ import annotations

import torch
from torch import Tensor

from gradformer.attention.layout import Layout, Rows
from gradformer.graphs.batch import Batch, Edges, sort_edges

# A single node; a hub with many, repeated edges; one-way edges, loops and an isolated node.
SIZES = [1, 5, 4]
HUB = [(1 + k % 4, 1) for k in range(100)] + [(1, 2), (1, 3), (1, 3)]
LOOSE = [(6, 6), (6, 7), (7, 7), (7, 7)]


def graphs(padding: tuple[int, int] | None = None, few: bool = False) -> Batch:
    """The graphs, with padded rows of nodes and edges; ``few`` leaves most edges of the hub out."""
    layout = Layout.from_sizes(SIZES, device=torch.get_default_device())
    edges, _ = sort_edges(torch.tensor((HUB[::17] if few else HUB) + LOOSE).T, layout)
    if padding is None:
        return Batch(layout, edges)
    more, free = padding
    nodes, real = layout.capacity + more, edges.num_edges
    rest = torch.arange(real, real + free, dtype=torch.int32)

    def longer(index: Tensor, fill: int) -> Tensor:
        return torch.cat([index, torch.full((free,), fill, dtype=torch.int32)])

    def pointers(ptr: Tensor) -> Tensor:
        return torch.cat([ptr, ptr[-1:].expand(more)])

    rows = Rows(
        longer(edges.rows.graph_id, 0),
        longer(edges.rows.index, 0),
        torch.arange(real + free) < real,
    )
    padded = Edges(
        longer(edges.source, 0),
        longer(edges.target, nodes - 1),
        pointers(edges.target_ptr),
        torch.cat([edges.by_source, rest]),
        pointers(edges.source_ptr),
        rows,
    )
    wide = Layout(layout.node_ptr, layout.pair_ptr, layout.graph_id, nodes, layout.largest, True)
    return Batch(wide, padded)


def states(batch: Batch, width: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Node states, zero in padded rows, and edge states, arbitrary in padded rows."""
    draw, device = torch.Generator("cpu").manual_seed(seed), torch.get_default_device()
    x, e = (
        torch.randn(rows, width, generator=draw, device="cpu").to(device)
        for rows in (batch.num_nodes, batch.edges.num_edges)
    )
    return batch.nodes.zero_padding(x), e


def weighted(y: Tensor) -> Tensor:
    """The sum with a different weight for each number."""
    weights = torch.linspace(-1.0, 1.0, y.numel(), dtype=torch.float64, device="cpu").sin()
    return (y * weights.to(y).view_as(y)).sum()
