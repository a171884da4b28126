"""All ordered pairs of nodes of a packed batch, graph after graph, row by row: Σn² rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradformer.attention.layout import Layout, Rows, pointer_of
from gradformer.graphs.batch import Edges


@dataclass(frozen=True, eq=False)
class Pairs:
    """Which pair is in each row of a packed pair tensor [pairs, c], such as an attention ``bias``.

    Shapes, all [pairs]: query, key int64, rows of the layout; place int64, where the pair lies in
    flat pair arrays (distances and pair extras of a batch, see :class:`Layout`); and ptr
    [nodes + 1] int64, where the pairs of each query begin. In a padded layout the rows from
    ``ptr[-1]`` on are padding. Without ``loops`` no node is paired with itself.
    """

    query: Tensor
    key: Tensor
    place: Tensor
    ptr: Tensor
    rows: Rows
    loops: bool = True

    @classmethod
    def of(cls, layout: Layout, loops: bool = True) -> Pairs:
        """All pairs of ``layout``."""
        first = torch.nn.functional.pad(layout.node_ptr, (0, 1), value=layout.capacity).long()
        size = torch.nn.functional.pad(layout.node_ptr.diff(), (0, 1)).long()  # 0: padded rows
        graph = layout.graph.long()
        degree = size[graph] if loops else (size[graph] - 1).clamp(min=0)
        ptr = pointer_of(degree)  # [capacity + 1]
        count = layout.pair_capacity if loops or layout.padded else int(ptr[-1])
        pair = torch.arange(count, device=layout.device)
        query = torch.searchsorted(ptr[1:], pair, right=True).clamp(max=max(layout.capacity - 1, 0))
        slot = graph[query]
        real = pair < ptr[-1] if layout.padded else None
        own, number = query - first[slot], pair - ptr[query]
        if real is not None:
            number = torch.where(real, number, 0)
        column = number if loops else number + (number >= own)
        local = own * size[slot] + column
        slot = slot.clamp(max=layout.num_graphs - 1)
        return cls(
            query,
            (first[slot] + column).clamp(max=max(layout.capacity - 1, 0)),
            layout.pair_ptr[slot] + (local if real is None else torch.where(real, local, 0)),
            ptr,
            Rows(layout.graph_id[slot], (own * degree[query] + number).int(), real),
            loops,
        )

    def as_edges(self, layout: Layout) -> Edges:
        """The pairs as edges key → query, so that sums over keys are sums over entering edges."""
        first = layout.node_ptr[layout.slot].long()
        swapped = self.ptr[self.key] + self.query - first[self.query]  # the pair (key, query)
        swapped = swapped if self.loops else swapped - (self.query > self.key).long()
        if self.rows.mask is not None:
            swapped = torch.where(
                self.rows.mask, swapped, torch.arange(len(swapped), device=swapped.device)
            )
        ptr = self.ptr.int()
        return Edges(self.key.int(), self.query.int(), ptr, swapped.int(), ptr, self.rows)
