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
    [nodes + 1] int64, where the pairs of each query begin. In a padded layout the rows from Σn² on
    are padding.
    """

    query: Tensor
    key: Tensor
    place: Tensor
    ptr: Tensor
    rows: Rows

    @classmethod
    def of(cls, layout: Layout) -> Pairs:
        """All pairs of ``layout``."""
        first = torch.nn.functional.pad(layout.node_ptr, (0, 1), value=layout.capacity).long()
        size = torch.nn.functional.pad(layout.node_ptr.diff(), (0, 1)).long()  # 0: padded rows
        graph = layout.graph.long()
        ptr = pointer_of(size[graph])  # [capacity + 1]
        pair = torch.arange(layout.pair_capacity, device=layout.device)
        query = torch.searchsorted(ptr[1:], pair, right=True).clamp(max=max(layout.capacity - 1, 0))
        slot = graph[query]
        real = pair < layout.packed_ptr[-1] if layout.padded else None
        column = pair - ptr[query]
        if real is not None:
            column = torch.where(real, column, 0)
        local = (query - first[slot]) * size[slot] + column
        slot = slot.clamp(max=layout.num_graphs - 1)
        return cls(
            query,
            (first[slot] + column).clamp(max=max(layout.capacity - 1, 0)),
            layout.pair_ptr[slot] + (local if real is None else torch.where(real, local, 0)),
            ptr,
            Rows(layout.graph_id[slot], local.int(), real),
        )

    def as_edges(self, layout: Layout) -> Edges:
        """The pairs as edges key → query, so that sums over keys are sums over entering edges."""
        first = layout.node_ptr[layout.graph.long().clamp(max=layout.num_graphs - 1)].long()
        swapped = self.ptr[self.key] + self.query - first[self.query]  # the pair (key, query)
        if self.rows.mask is not None:
            swapped = torch.where(
                self.rows.mask, swapped, torch.arange(len(swapped), device=swapped.device)
            )
        ptr = self.ptr.int()
        return Edges(self.key.int(), self.query.int(), ptr, swapped.int(), ptr, self.rows)
