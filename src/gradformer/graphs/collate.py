"""From a store to a batch: ragged rows gathered by graph number, on the device the data is on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gradformer.attention.availability import runs_kernels
from gradformer.attention.layout import Layout, Rows, pointer_of
from gradformer.graphs.batch import Batch, Edges
from gradformer.graphs.store import Store

ENCODINGS = ("rwse", "lap")
_GIVEN = (
    *("node_ptr", "edge_ptr", "pair_ptr", "source", "target", "by_source"),
    *("distance", "x", "edge_attr", "y"),
)


@dataclass(frozen=True)
class Capacity:
    """Fixed sizes of a padded batch: graphs, node rows, edge rows, the largest graph, and pairs of
    nodes (Σn² at most; None: not known)."""

    graphs: int
    nodes: int
    edges: int
    largest: int
    pairs: int | None = None


class Collator:
    """A store on one device; ``collator(ids)`` is the batch of those graphs.

    Distances stay where they are: the batch's ``pair_ptr`` points into them. With a
    :class:`Capacity` all shapes are fixed and nothing is read back from the device, so the call
    can be captured in a CUDA graph; graph numbers of −1 are empty slots.

    The batch has everything in the store that belongs to graphs, nodes, edges or pairs, except its
    split; what belongs to pairs stays where it is, as the distances do.
    """

    def __init__(self, store: Store, device: torch.device | str = "cpu") -> None:
        self.level = store.schema.level
        kinds = {name: kind for name, kind in store.kinds.items() if name != "split"}
        self.encodings = [name for name in ENCODINGS if name in kinds]
        further = [name for name in kinds if name not in (*_GIVEN, *self.encodings)]
        self.extras = {
            kind: [name for name in further if kinds[name] == kind]
            for kind in ("graph", "node", "edge", "pair")
        }
        self.data = {
            name: torch.from_numpy(np.require(value, requirements=["C", "W"])).to(device)
            for name, value in store.arrays.items()
            if name in kinds
        }
        self.device = torch.device(device)
        nodes = int(store.arrays["node_ptr"][-1])
        for name, end in (("entering", "target"), ("leaving", "source")):
            self.data[name] = _before(self.data, end, nodes)
        for name in ("source", "target", "by_source", "edge_attr", *self.extras["edge"]):
            value = self.data.get(name)
            if value is not None and not len(value):  # padding needs a row to point at
                self.data[name] = value.new_zeros(1, *value.shape[1:])
        self.symmetric = False  # only kernels profit from it
        if self.device.type == "cuda" and "distance" in self.data:
            self.symmetric = self._whole().is_symmetric(self.data["distance"])

    def sizes(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Nodes and edges of each graph, [len(ids)] each."""
        node_ptr, edge_ptr = self.data["node_ptr"], self.data["edge_ptr"]
        return node_ptr[ids + 1] - node_ptr[ids], edge_ptr[ids + 1] - edge_ptr[ids]

    def __call__(self, ids: Tensor, capacity: Capacity | None = None) -> Batch:
        """The batch of graphs ``ids`` [graphs] int64."""
        padded = capacity is not None
        if capacity is None:
            nodes, edges = self.sizes(ids)
            largest = int(nodes.max()) if len(ids) else 0
            capacity = Capacity(len(ids), int(nodes.sum()), int(edges.sum()), largest)
        rows = self._fused if capacity.nodes and runs_kernels(ids) else self._plain
        layout, links, arrays = rows(ids, capacity, padded)
        return Batch(
            layout,
            links,
            arrays.get("x"),
            arrays.get("edge_attr"),
            self.data.get("distance"),
            {name: arrays[name] for name in self.encodings},
            {
                name: self.data[name] if kind == "pair" else arrays[name]
                for kind, names in self.extras.items()
                for name in names
            },
            arrays.get("y"),
        )

    def _names(self) -> tuple[list[str], list[str], list[str]]:
        """The arrays that are gathered: of graphs, of nodes, of edges."""
        nodes = ["x", *self.encodings, *self.extras["node"]]
        graphs = [*self.extras["graph"]]
        (graphs if self.level == "graph" else nodes).append("y")
        kinds = graphs, nodes, ["edge_attr", *self.extras["edge"]]
        graphs, nodes, edges = ([name for name in kind if name in self.data] for kind in kinds)
        return graphs, nodes, edges

    def _zero(self, name: str) -> bool:
        """Whether padded rows hold zeros; otherwise some row of the store."""
        floats = name == "x" and self.data[name].is_floating_point()
        return floats or name in self.encodings

    def _plain(
        self, ids: Tensor, capacity: Capacity, padded: bool
    ) -> tuple[Layout, Edges, dict[str, Tensor]]:
        """Where graphs and edges lie, and the rows of all arrays."""
        there = ids.clamp(min=0)
        nodes, edges = (size * (ids >= 0) for size in self.sizes(there))
        first_node, first_edge = self.data["node_ptr"][there], self.data["edge_ptr"][there]
        node_row, node_ptr, node_slot = _ragged(first_node, nodes, capacity.nodes)
        edge_row, edge_ptr, edge_slot = _ragged(first_edge, edges, capacity.edges)
        edge_row = edge_row.clamp(max=len(self.data["source"]) - 1)
        layout = self._layout(
            node_ptr.int(), self.data["pair_ptr"][there], ids.int(), capacity, padded
        )

        real = torch.arange(capacity.nodes, device=self.device) < node_ptr[-1]
        begin = {
            name: torch.where(real, self.data[name][node_row] + edge_ptr[node_slot], edge_ptr[-1])
            for name in ("entering", "leaving")
        }
        begin = {name: torch.cat([value, edge_ptr[-1:]]).int() for name, value in begin.items()}
        place = torch.arange(capacity.edges, device=self.device)
        before, nodes_before = edge_ptr[edge_slot], node_ptr[edge_slot]
        real = place < edge_ptr[-1]
        source = torch.where(real, self.data["source"][edge_row] + nodes_before, 0)
        target = torch.where(real, self.data["target"][edge_row] + nodes_before, capacity.nodes - 1)
        by_source = torch.where(real, self.data["by_source"][edge_row] + before, place)
        found = Edges(
            source.int(),
            target.int(),
            begin["entering"],
            by_source.int(),
            begin["leaving"],
            Rows(ids[edge_slot].int(), (place - before).int(), real if padded else None),
        )
        arrays: dict[str, Tensor] = {}
        for names, row in zip(self._names(), (there, node_row, edge_row)):
            arrays |= {name: self.data[name][row] for name in names}
        for name in arrays:
            if self._zero(name):
                arrays[name] = layout.rows.zero_padding(arrays[name])
        return layout, found, arrays

    def _fused(
        self, ids: Tensor, capacity: Capacity, padded: bool
    ) -> tuple[Layout, Edges, dict[str, Tensor]]:
        """The same, in one kernel."""
        from gradformer.graphs.fused_gather import Copied, Index, gather

        index = Index(*(self.data[name] for name in Index._fields))
        sizes = len(ids), capacity.nodes, capacity.edges
        names = self._names()
        copied = [
            [Copied.of(self.data[name], rows, self._zero(name)) for name in some]
            for some, rows in zip(names, sizes)
        ]
        slots, nodes, edges = gather(ids, index, sizes, *copied)
        layout = self._layout(slots.node_ptr, slots.pair_ptr, slots.graph_id, capacity, padded)
        vars(layout).update(  # what it would compute when first asked
            graph=nodes.graph,
            rows=Rows(nodes.graph_id, nodes.place, nodes.mask if padded else None),
            graph_rows=Rows(slots.graph_id, slots.place, slots.mask if padded else None),
        )
        found = Edges(
            edges.source,
            edges.target,
            nodes.target_ptr,
            edges.by_source,
            nodes.source_ptr,
            Rows(edges.graph_id, edges.place, edges.mask if padded else None),
        )
        every = zip((name for some in names for name in some), (c for some in copied for c in some))
        return layout, found, {name: item.out for name, item in every}

    def _layout(
        self, node_ptr: Tensor, pair_ptr: Tensor, graph_id: Tensor, capacity: Capacity, padded: bool
    ) -> Layout:
        size = capacity.nodes, capacity.largest
        return Layout(node_ptr, pair_ptr, graph_id, *size, padded, self.symmetric, capacity.pairs)

    def _whole(self) -> Layout:
        """All graphs of the store as one batch."""
        node_ptr, pair_ptr = self.data["node_ptr"], self.data["pair_ptr"]
        graphs = len(node_ptr) - 1
        ids = torch.arange(graphs, device=self.device, dtype=torch.int32)
        largest = int(node_ptr.diff().max())
        return Layout(node_ptr.int(), pair_ptr[:graphs], ids, int(node_ptr[-1]), largest)


def _ragged(first: Tensor, length: Tensor, capacity: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rows ``first[g] … first[g] + length[g] − 1`` of all g end to end, filled up to ``capacity``.

    Returns the rows [capacity] (the last real place again where padded), the pointers [g + 1] and
    the slot g of each row.
    """
    ptr = pointer_of(length)
    place = torch.arange(capacity, device=first.device)
    slot = torch.searchsorted(ptr[1:], place, right=True).clamp(max=len(first) - 1)
    row = first[slot] + (place - ptr[slot]).clamp(max=(length[slot] - 1).clamp(min=0))
    return row, ptr, slot


def _before(data: Mapping[str, Tensor], end: str, nodes: int) -> Tensor:
    """[nodes] int32: how many edges of its graph have their ``end`` at nodes before each node."""
    node, node_ptr, edge_ptr = data[end], data["node_ptr"], data["edge_ptr"]
    first = node_ptr[:-1].int().repeat_interleave(edge_ptr.diff(), output_size=len(node))
    count = torch.zeros(nodes, dtype=torch.int32, device=node.device)
    count.index_add_(0, node + first, torch.ones_like(first))
    before = count.cumsum(0, dtype=torch.int32) - count
    return before - edge_ptr[:-1].int().repeat_interleave(node_ptr.diff(), output_size=nodes)
