"""The k-hop neighbourhood of every node as a graph of its own, found from the distance bytes.

What a store keeps for it are the distances, one byte a pair. The neighbourhoods themselves would be
up to n copies of all e edges of a graph: where three hops reach everything, as in the block models,
half a million edges for a graph of 117 nodes. They are cheap to find, and are found in each step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradformer.attention.layout import Layout, Rows, pointer_of
from gradformer.graphs.batch import Edges, link
from gradformer.zoo.all_pairs import Pairs


@dataclass(frozen=True, eq=False)
class Subgraphs:
    """Copies of nodes and edges, one for each neighbourhood that they lie in.

    ``members`` leads from a node to the root of each neighbourhood that the node lies in: copies
    of node states are ``from_source(x, members)``, and the sum over each neighbourhood is
    ``sum_to_target(z, members)``. ``inside`` joins the copies that belong to one root.
    ``copies`` leads from an edge to its copies, which are in the order of ``inside``.
    """

    members: Edges
    inside: Edges
    copies: Edges


def neighbourhoods(layout: Layout, edges: Edges, distance: Tensor, hops: int) -> Subgraphs:
    """For each node v the subgraph induced by all nodes at most ``hops`` hops before v.

    ``distance`` holds the hops of all pairs as ``layout.pair_ptr`` has them. In a padded batch
    nothing is read back from the device: there is room for all pairs of nodes and for every edge
    as often as the largest graph has nodes.
    """
    pairs = Pairs.of(layout)
    graph = layout.slot  # [nodes]
    first = layout.node_ptr[graph].long()
    size = torch.where(layout.graph < layout.num_graphs, layout.node_ptr.diff()[graph], 0)
    root, node = pairs.query, pairs.key
    back = layout.pair_ptr[graph[root]] + (node - first[node]) * size[root] + root - first[root]
    back = back if pairs.rows.mask is None else torch.where(pairs.rows.mask, back, 0)
    member = _real((distance[back] <= hops) | (root == node), pairs.rows.mask)  # [pairs]
    order, count = _to_front(member, layout.padded)
    members = _edges(node[order], root[order], count, layout.capacity, layout.capacity, layout)

    # Beside each root all edges of its graph: those into its nodes are contiguous.
    begin = edges.target_ptr[first].long()
    length = edges.target_ptr[(first + size).clamp(max=layout.capacity)] - begin
    ptr = pointer_of(length)
    room = edges.num_edges * layout.largest if layout.padded else int(ptr[-1])
    row = torch.arange(room, device=layout.device)
    root = torch.searchsorted(ptr[1:], row, right=True).clamp(max=max(layout.capacity - 1, 0))
    edge = (begin[root] + row - ptr[root]).clamp(max=max(edges.num_edges - 1, 0))
    of_root = (size.cumsum(0) - size)[root] - first[root]  # pair (root, node) is at of_root + node
    source = (of_root + edges.source[edge]).clamp(0, max(len(member) - 1, 0))
    target = (of_root + edges.target[edge]).clamp(0, max(len(member) - 1, 0))
    both = _real(member[source] & member[target], row < ptr[-1] if layout.padded else None)
    order, kept = _to_front(both, layout.padded)
    copy = member.cumsum(0) - 1  # pair → its row among the copies of nodes
    rows = members.num_edges
    inside = _edges(copy[source[order]], copy[target[order]], kept, rows, rows, layout)
    place = torch.arange(len(order), device=layout.device)
    copies = _edges(edge[order], place, kept, edges.num_edges, len(order), layout)
    return Subgraphs(members, inside, copies)


def _real(flag: Tensor, mask: Tensor | None) -> Tensor:
    return flag if mask is None else flag & mask


def _to_front(flag: Tensor, padded: bool) -> tuple[Tensor, Tensor]:
    """The rows that are True, in order, and their number; padded, the others follow them."""
    if padded:
        return torch.argsort(~flag, stable=True), flag.sum()
    rows = flag.nonzero()[:, 0]
    return rows, torch.tensor(len(rows), device=flag.device)


def _edges(
    source: Tensor, target: Tensor, count: Tensor, sources: int, targets: int, layout: Layout
) -> Edges:
    """Edges source → target sorted by target, of which ``count`` are real."""
    place = torch.arange(len(source), device=source.device, dtype=torch.int32)
    real = place < count
    rows = Rows(torch.zeros_like(place), place, real if layout.padded else None)
    outside = torch.where(real, source, sources).int(), torch.where(real, target, targets).int()
    made = link(*outside, sources, targets, rows)
    return replace(
        made,
        source=torch.where(real, made.source, 0),
        target=torch.where(real, made.target, max(targets - 1, 0)),
    )
