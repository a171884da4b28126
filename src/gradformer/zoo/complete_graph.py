"""The complete graph on the nodes of each graph, as edges."""

from __future__ import annotations

import torch
from torch import Tensor

from gradformer.attention.layout import Layout, Rows, pointer_of
from gradformer.graphs.batch import Edges


def complete_edges(layout: Layout) -> Edges:
    """All ordered pairs of different nodes of each graph, n(n − 1) edges sorted by target.

    A padded layout gives no fewer than there may be, the last of them padding.
    """
    capacity, device = layout.capacity, layout.device
    first = torch.nn.functional.pad(layout.node_ptr, (0, 1), value=capacity).long()
    size = torch.nn.functional.pad(layout.node_ptr.diff(), (0, 1)).long()  # 0: padded rows
    graph = layout.graph.long()
    degree = (size[graph] - 1).clamp(min=0)  # [nodes]
    ptr = pointer_of(degree)
    if layout.padded:
        count = min(capacity * max(layout.largest - 1, 0), layout.pair_capacity)
    else:
        count = int(ptr[-1])

    edge = torch.arange(count, device=device)
    real = edge < ptr[-1]
    target = torch.searchsorted(ptr[1:], edge, right=True).clamp(max=max(capacity - 1, 0))
    start = first[graph[target]]
    own, rank = target - start, edge - ptr[target]
    source = start + rank + (rank >= own).long()

    def number(of_source: Tensor, of_target: Tensor) -> Tensor:
        return ptr[of_target] + of_source - start - (of_source > of_target).long()

    source = torch.where(real, source, 0)
    by_source = torch.where(real, number(target, source), edge)  # the pairs are symmetric
    target = torch.where(real, target, max(capacity - 1, 0))
    slot = graph[target].clamp(max=layout.num_graphs - 1)
    place = torch.where(real, edge - ptr[layout.node_ptr[slot].long()], 0)
    rows = Rows(layout.graph_id[slot], place.int(), real if layout.padded else None)
    return Edges(source.int(), target.int(), ptr.int(), by_source.int(), ptr.int(), rows)


def unlinked(edges: Edges, pairs: Edges, layout: Layout) -> Tensor:
    """True for each of the complete edges ``pairs`` that is not among ``edges``, [pairs] bool.

    Padded pairs count as unlinked; they take no part in sums.
    """
    source, target = layout.rows.index[edges.source], layout.rows.index[edges.target]
    place = pairs.target_ptr[edges.target] + source - (source > target).int()
    nowhere = source == target
    if edges.rows.mask is not None:
        nowhere = nowhere | ~edges.rows.mask
    mask = torch.ones(pairs.num_edges + 1, dtype=torch.bool, device=layout.device)
    linked = torch.where(nowhere, pairs.num_edges, place).long()
    return mask.index_fill(0, linked, False)[:-1]
