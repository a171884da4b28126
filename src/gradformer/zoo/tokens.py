"""Further rows in each graph: a graph token, virtual nodes, substructures.

Attention over n nodes and t tokens is attention in a larger :class:`Layout`. This file makes that
layout, carries rows and pair tensors between the two, and gives pairs with a token a byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gradformer.attention.layout import Layout, pointer_of
from gradformer.model.segments import moved
from gradformer.structure.codebook import SATURATED
from gradformer.zoo.all_pairs import Pairs

TOKEN = SATURATED
"""Distance byte of pairs with a token; nodes 254 or more hops apart share byte 253 then."""


@dataclass(frozen=True, eq=False)
class Tokens:
    """A batch of graphs with ``slots`` token rows, or fewer, before or after the nodes of each.

    Shapes: nodes → the smaller layout, rows → the larger; real [graphs, slots] bool, which slots
    are taken (None: all); source [rows], place of each row in nodes followed by tokens;
    node_row [nodes] and token_row [graphs · slots], the rows where they went.
    """

    nodes: Layout
    layout: Layout
    real: Tensor | None
    source: Tensor
    node_row: Tensor
    token_row: Tensor

    def pack(self, x: Tensor, tokens: Tensor) -> Tensor:
        """Nodes [nodes, c] and tokens [graphs · slots, c] → [rows, c]."""
        return self.layout.rows.zero_padding(torch.cat([x, tokens]).index_select(0, self.source))

    def of_nodes(self, rows: Tensor) -> Tensor:
        """[rows, c] → [nodes, c]."""
        return self.nodes.rows.zero_padding(rows.index_select(0, self.node_row))

    def of_tokens(self, rows: Tensor) -> Tensor:
        """[rows, c] → [graphs · slots, c]; zero where there is no token."""
        y = rows.index_select(0, self.token_row)
        return y if self.real is None else torch.where(self.real.view(-1, 1), y, 0.0)

    def unpack(self, rows: Tensor) -> Tensor:
        """[rows, c] → nodes followed by tokens, [nodes + graphs · slots, c]."""
        return torch.cat([self.of_nodes(rows), self.of_tokens(rows)])

    @cached_property
    def is_token(self) -> Tensor:
        """Which rows are tokens, [rows, 1] bool."""
        return (self.source >= self.nodes.capacity)[:, None]

    @cached_property
    def pairs(self) -> Pairs:
        """All pairs of the larger layout."""
        return Pairs.of(self.layout)

    @cached_property
    def among_nodes(self) -> Tensor:
        """Whether both ends of a pair are nodes, [pairs] bool; also False for padding."""
        is_node = self.source < self.nodes.capacity
        both = is_node[self.pairs.query] & is_node[self.pairs.key]
        return both if self.pairs.rows.mask is None else both & self.pairs.rows.mask

    @cached_property
    def node_pair(self) -> tuple[Tensor, Tensor]:
        """Of each pair among nodes: graph, and place i·n + j inside it; 0 for other pairs."""
        query = torch.where(self.among_nodes, self.source[self.pairs.query], 0)
        key = torch.where(self.among_nodes, self.source[self.pairs.key], 0)
        graph = self.nodes.slot[query]
        first = self.nodes.node_ptr[graph].long()
        size = self.nodes.node_ptr[graph + 1] - first
        place = (query - first) * size + key - first
        return graph, torch.where(self.among_nodes, place, 0)

    def pack_pairs(self, values: Tensor, pairs: Pairs, other: Tensor | None = None) -> Tensor:
        """Pair tensor of the nodes [Σn², c] → [Σ(n+t)², c].

        ``pairs`` are those of the nodes; ``other`` [·, c] is taken where a token takes part, in
        place of zero.
        """
        graph, place = self.node_pair
        there = torch.where(self.among_nodes, self.nodes.packed_ptr[graph] + place, -1)
        first = self.layout.node_ptr[self.nodes.graph[pairs.query]]
        row = self.node_row
        back = self.pairs.ptr[row[pairs.query]] + row[pairs.key] - first
        if pairs.rows.mask is not None:
            back = torch.where(pairs.rows.mask, back, -1)
        packed = moved(values, there, back)
        return packed if other is None else torch.where(self.among_nodes[:, None], packed, other)

    def distance(self, distance: Tensor, token: int = TOKEN) -> Tensor:
        """Bytes of all pairs, [Σ(n+t)²] uint8: ``token`` where a token takes part."""
        graph, place = self.node_pair
        byte = distance[self.nodes.pair_ptr[graph] + place]
        if token == SATURATED:
            byte = torch.where(byte == SATURATED, SATURATED - 1, byte)
        return torch.where(self.among_nodes, byte, token).to(torch.uint8)


def add_tokens(
    layout: Layout, slots: int = 1, *, counts: Tensor | None = None, first: bool
) -> Tokens:
    """``slots`` tokens in each graph, or ``counts`` [graphs] ≤ ``slots``, before or after nodes.

    Empty slots of a padded batch get none. With ``counts`` the larger layout is padded, so that
    nothing has to be read back from the device.
    """
    sizes = layout.node_ptr.diff().long()
    taken = torch.full_like(sizes, slots) if counts is None else counts.long()
    if layout.padded:
        taken = torch.where(sizes > 0, taken, 0)
    padded = layout.padded or counts is not None
    both = sizes + taken
    node_ptr = pointer_of(both)
    larger = Layout(
        node_ptr.int(),
        pointer_of(both * both)[:-1],
        layout.graph_id,
        layout.capacity + slots * layout.num_graphs,
        layout.largest + slots,
        padded,
        most_pairs=_most_pairs(layout, slots) if layout.padded else None,
    )
    last_row = max(larger.capacity - 1, 0)
    before = taken if first else torch.zeros_like(taken)  # rows before a graph's nodes
    ahead = torch.zeros_like(sizes) if first else sizes  # rows before a graph's tokens

    graph = larger.slot
    place = torch.arange(larger.capacity, device=layout.device) - node_ptr[graph]
    in_nodes, in_tokens = place - before[graph], place - ahead[graph]
    is_token = (in_tokens >= 0) & (in_tokens < taken[graph])
    source = torch.where(
        is_token, layout.capacity + graph * slots + in_tokens, layout.node_ptr[graph] + in_nodes
    )
    if padded:
        source = torch.where(larger.graph < layout.num_graphs, source, 0)

    graph = layout.slot
    local = torch.arange(layout.capacity, device=layout.device) - layout.node_ptr[graph]
    node_row = node_ptr[graph] + before[graph] + local

    slot = torch.arange(slots, device=layout.device)
    real = slot < taken[:, None]  # [graphs, slots]
    token_row = (node_ptr[:-1] + ahead)[:, None] + slot
    return Tokens(
        layout,
        larger,
        real if padded else None,
        source,
        node_row.clamp(max=last_row),
        token_row.clamp(max=last_row).flatten(),
    )


def _most_pairs(layout: Layout, slots: int) -> int:
    """No less than Σ(n + t)² of graphs of n nodes with t ≤ ``slots`` tokens."""
    rest = 2 * slots * layout.capacity + slots * slots * layout.num_graphs
    return layout.pair_capacity + rest
