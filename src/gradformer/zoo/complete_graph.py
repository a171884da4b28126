"""The complete graph on the nodes of each graph, as edges."""

from __future__ import annotations

import torch
from torch import Tensor

from gradformer.attention.layout import Layout
from gradformer.graphs.batch import Edges
from gradformer.zoo.all_pairs import Pairs


def complete_edges(layout: Layout) -> Edges:
    """All ordered pairs of different nodes of each graph, n(n − 1) edges sorted by target.

    A padded layout gives no fewer than there may be, the last of them padding.
    """
    return Pairs.of(layout, loops=False).as_edges(layout)


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
