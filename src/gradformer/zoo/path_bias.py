r"""What Graphormer and DeepGraph add to the attention scores: distances, and edges along paths.

.. math::
    b_{ij} = S[\psi_{ij}] + \frac{1}{\min(\psi_{ij}, K)} \sum_{k < \min(\psi_{ij}, K)}
             \Bigl(\tfrac{1}{F}\sum_f E_f[a_{e_k f}]\Bigr) W_k

for each head, with e_0, e_1, … the edges of one shortest path i → j. The first term is a table of
distances; the second is a value for each pair.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gradformer.attention import Rows, Table, Tables
from gradformer.attention.availability import runs_kernels
from gradformer.errors import choice
from gradformer.graphs.batch import Batch, Edges
from gradformer.model.encoders import EdgeEncoder
from gradformer.model.segments import sum_of_sources
from gradformer.structure.paths import first_edges
from gradformer.zoo.all_pairs import Pairs
from gradformer.zoo.precomputed import Precomputed
from gradformer.zoo.tokens import TOKEN

EDGE_TERMS = ("paths", "adjacent")
FIRST_EDGE = Precomputed("first_edge", first_edges, "pair", with_edge_features=True)


def first_edge_of(batch: Batch, pairs: Pairs) -> tuple[Tensor, Tensor]:
    """First edges as a flat pair array, and where each of the ``pairs`` [pairs] lies in it.

    They come with the batch if its store holds them, and are computed here if not.
    """
    if FIRST_EDGE.name in batch.extras:
        return batch.extras[FIRST_EDGE.name], pairs.place
    found = FIRST_EDGE.compute(batch)
    return found, torch.arange(len(pairs.query), device=found.device).clamp(max=len(found) - 1)


class DistanceBias(nn.Module):
    """S: a learned summand for each distance, for pairs with a token, and for unreachable pairs.

    Args:
        rows: distances 0 … rows − 1 have one; from there on pairs do not attend to each other.
        unreachable: whether unreachable pairs have one too, or do not attend to each other.
    """

    def __init__(self, heads: int, rows: int, unreachable: bool) -> None:
        super().__init__()
        self.distance = nn.Parameter(0.02 * torch.randn(rows, heads))
        self.token = nn.Parameter(0.02 * torch.randn(1, heads))
        self.unreachable = nn.Parameter(0.02 * torch.randn(1, heads)) if unreachable else None

    def forward(self) -> Tables:
        """``add`` [heads, 256]: distance bytes, :data:`TOKEN`, unreachable."""
        rows, heads = self.distance.shape
        never = self.token.new_full((1, heads), -math.inf)
        last = never if self.unreachable is None else self.unreachable
        blocked = never.expand(TOKEN - rows, heads)
        table = torch.cat([self.distance, blocked, self.token, last])
        return Tables(mul=None, add=Table(table.t().contiguous()))


class Start(NamedTuple):
    """Where the path of each pair starts, [pairs] int64 each: its node inside the graph; where the
    first edges towards its goal begin, and how far apart those of two nodes are; first node and
    first edge of the graph."""

    node: Tensor
    row: Tensor
    size: Tensor
    first_node: Tensor
    first_edge: Tensor


class PathBias(nn.Module):
    """The edge term, [pairs, heads].

    Args:
        edge: edge features, as the schema has them.
        hops: K, the hops of a path that are looked at.
        term: ``paths``, or ``adjacent``: E at the edge i → j alone, without W and divisor.
        padding: do as the references do, where an empty place of a path, up to the longest path
            of the batch, counts as an edge with a constant embedding that is not trained. A graph
            then depends on the others in its batch.
        skip_first: do as Graphormer's reference does, which leaves out node 0 of a graph inside
            paths: the two edges beside it become one, with an embedding of its own.
    """

    def __init__(
        self,
        edge: tuple[int, ...] | int,
        heads: int,
        hops: int,
        *,
        term: str = "paths",
        padding: bool = False,
        skip_first: bool = False,
    ) -> None:
        super().__init__()
        self.hops, self.heads, self.skip_first = hops, heads, skip_first
        self.features = len(edge) if isinstance(edge, tuple) else 1
        self.encoder = EdgeEncoder(edge, heads) if edge else None
        self.mix: nn.Parameter | None = None
        if choice("edge_term", term, EDGE_TERMS) == "paths":
            self.mix = nn.Parameter(0.02 * torch.randn(hops, heads, heads))
        self.no_edge = nn.Parameter(0.02 * torch.randn(1, heads)) if skip_first else None
        self.register_buffer("padding", 0.02 * torch.randn(1, heads) if padding else None)
        self.padding: Tensor | None

    def forward(self, batch: Batch, pairs: Pairs) -> Tensor:
        """For all ``pairs`` of the batch's nodes."""
        hops, values = batch.pair_bytes()[pairs.place].long(), self._values(batch)
        empty = len(values) - 1
        if self.mix is None:
            edge = self.paths(batch, pairs, 1)[:, 0]
            return _rows(values, torch.where(hops == 1, edge, empty), pairs)
        edges = self.paths(batch, pairs, self.hops)
        values = values.to(self.mix.dtype)
        terms = torch.einsum("eh,khj->kej", values, self.mix)  # of each edge at each hop
        counted = edges != empty
        if self.padding is not None:
            places = torch.arange(self.hops, device=edges.device)
            terms = terms * (places < self._longest(hops, pairs))[:, None, None]
            counted = torch.ones_like(counted)
        if pairs.rows.mask is not None:
            counted = counted & pairs.rows.mask[:, None]
        total = sum_of_sources(terms.flatten(0, 1), _visits(edges, counted, len(values)))
        return total / hops.clamp(1, self.hops)[:, None]

    def without_path(self, batch: Batch, pairs: Pairs) -> Tensor | None:
        """The term of a pair that no path joins, [1, heads]: none, but for ``padding``."""
        if self.padding is None or self.mix is None:
            return None
        places = torch.arange(self.hops, device=batch.layout.device)
        counted = places < self._longest(batch.pair_bytes()[pairs.place].long(), pairs)
        return (self.padding @ self.mix * counted[:, None, None]).sum(0) / self.hops

    def _longest(self, hops: Tensor, pairs: Pairs) -> Tensor:
        """The longest path of the batch, or more than ``hops`` if a graph is not connected."""
        return (hops if pairs.rows.mask is None else hops * pairs.rows.mask).max()

    def _values(self, batch: Batch) -> Tensor:
        """Embeddings [edges + 2, heads]; the last two stand for a left-out node and for no edge."""
        nothing = torch.zeros(1, self.heads, device=batch.layout.device)
        padding = nothing if self.padding is None else self.padding
        if self.encoder is None:
            edges = padding.expand(batch.edges.num_edges, self.heads)
        else:
            edges = self.encoder(batch) / self.features
        return torch.cat([edges, nothing if self.no_edge is None else self.no_edge, padding])

    def paths(self, batch: Batch, pairs: Pairs, hops: int) -> Tensor:
        """Rows of :meth:`_values` at the first ``hops`` hops of each path, [pairs, hops] int64."""
        layout, edges = batch.layout, batch.edges
        slot = layout.slot[pairs.query]
        start = layout.node_ptr[slot].long()
        size = layout.node_ptr[slot + 1] - start
        node, goal = pairs.query - start, pairs.key - start
        first_edge, place = first_edge_of(batch, pairs)
        if pairs.rows.mask is not None:
            node, size = node * pairs.rows.mask, size * pairs.rows.mask
        row_0 = place - node * size
        begin = edges.target_ptr[start].long()
        left_out, empty = edges.num_edges, edges.num_edges + 1
        targets = torch.nn.functional.pad(edges.target, (0, 2))

        def follow(node: Tensor) -> tuple[Tensor, Tensor]:
            """The edge that leaves ``node`` for the goal, or ``empty``, and where it leads."""
            local = first_edge[row_0 + node * size].long()
            edge = torch.where(local >= 0, begin + local, empty)
            return edge, torch.where(local >= 0, targets[edge] - start, node)

        if runs_kernels(first_edge) and not self.skip_first:
            from gradformer.zoo.path_kernels import follow_paths

            where = Start(node, row_0, size, start, begin)
            return follow_paths(first_edge, targets, where, hops, empty)
        found = []
        for _ in range(hops):
            edge, node = follow(node)
            if self.skip_first:
                inside = (edge != empty) & (node == 0) & (goal != 0)
                edge = torch.where(inside, left_out, edge)
                node = torch.where(inside, follow(node)[1], node)
            found.append(edge)
        return torch.stack(found, dim=1)


def _visits(edges: Tensor, counted: Tensor, count: int) -> Edges:
    """Which rows k · ``count`` + edge of the terms [hops · count, ·] each path visits at hop k.

    ``edges`` [pairs, hops]; the visits that are not ``counted`` have a term, but no gradient:
    those of one row would be added up one after another.
    """
    pairs, hops = edges.shape

    def numbers(end: int) -> Tensor:
        return torch.arange(end, dtype=torch.int32, device=edges.device)

    row, rows = (edges + count * numbers(hops)).flatten().int(), hops * count
    visited, order = torch.where(counted.flatten(), row, rows).sort(stable=True)
    row_ptr = torch.searchsorted(visited, numbers(rows + 1), out_int32=True)
    visit, path_ptr = numbers(pairs * hops), hops * numbers(pairs + 1)
    path = visit // hops
    return Edges(row, path, path_ptr, order.int(), row_ptr, Rows(path, visit))


def _rows(values: Tensor, edge: Tensor, pairs: Pairs) -> Tensor:
    """values[edge], [pairs, heads], for many pairs without an edge: those with the last row.

    The gradients that meet in one row of an indexed tensor are added one after another. So the
    pairs without an edge read rows of any edges, evenly, and leave no gradient there.
    """
    last = len(values) - 1
    real = edge != last if pairs.rows.mask is None else (edge != last) & pairs.rows.mask
    other = torch.arange(len(edge), device=edge.device) % max(last - 1, 1)
    return torch.where(real[:, None], values[torch.where(real, edge, other)], values[-1:])
