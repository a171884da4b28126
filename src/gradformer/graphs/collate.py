"""From a store to a batch: ragged rows gathered by graph number, on the device the data is on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gradformer.attention.layout import Layout, Rows
from gradformer.graphs.batch import Batch, Edges


@dataclass(frozen=True)
class Capacity:
    """Fixed sizes of a padded batch: graphs, node rows, edge rows, and the largest graph."""

    graphs: int
    nodes: int
    edges: int
    largest: int


class Collator:
    """A packed dataset on one device; ``collator(ids)`` is the batch of those graphs.

    Distances stay where they are: the batch's ``pair_ptr`` points into them. With a
    :class:`Capacity` all shapes are fixed and nothing is read back from the device, so the call
    can be captured in a CUDA graph; graph numbers of −1 are empty slots.

    Args:
        arrays: the arrays of a store: node_ptr, edge_ptr, pair_ptr, source, target, by_source,
            and as far as present distance, x, edge_attr, y.
        level: whether ``y`` has a row for each ``graph`` or each ``node``.
        encodings, node_extras, edge_extras, graph_extras: names of further arrays with a row for
            each node, edge or graph.
        pair_extras: ... for each pair of nodes; like the distances they stay where they are.
    """

    def __init__(
        self,
        arrays: Mapping[str, np.ndarray],
        *,
        level: str,
        encodings: tuple[str, ...] = (),
        node_extras: tuple[str, ...] = (),
        edge_extras: tuple[str, ...] = (),
        graph_extras: tuple[str, ...] = (),
        pair_extras: tuple[str, ...] = (),
        device: torch.device | str = "cpu",
    ) -> None:
        self.level = level
        self.encodings, self.node_extras, self.edge_extras = encodings, node_extras, edge_extras
        self.graph_extras, self.pair_extras = graph_extras, pair_extras
        wanted = {"node_ptr", "edge_ptr", "pair_ptr", "source", "target", "by_source"}
        wanted |= {"distance", "x", "edge_attr", "y", *encodings, *node_extras, *edge_extras}
        wanted |= {*graph_extras, *pair_extras}
        self.data = {
            name: torch.from_numpy(np.require(value, requirements=["C", "W"])).to(device)
            for name, value in arrays.items()
            if name in wanted
        }
        self.device = torch.device(device)
        for name in ("source", "target", "by_source", "edge_attr", *edge_extras):
            value = self.data.get(name)
            if value is not None and not len(value):  # padding needs a row to point at
                self.data[name] = value.new_zeros(1, *value.shape[1:])
        self.diameter = 254
        if self.device.type == "cuda" and "distance" in self.data:
            self.data["distance"], self.diameter = _for_kernels(self.data["distance"])

    def sizes(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Nodes and edges of each graph, [len(ids)] each."""
        node_ptr, edge_ptr = self.data["node_ptr"], self.data["edge_ptr"]
        return node_ptr[ids + 1] - node_ptr[ids], edge_ptr[ids + 1] - edge_ptr[ids]

    def __call__(self, ids: Tensor, capacity: Capacity | None = None) -> Batch:
        """The batch of graphs ``ids`` [graphs] int64."""
        padded = capacity is not None
        there = ids.clamp(min=0)
        nodes, edges = self.sizes(there)
        if padded:
            nodes, edges = nodes * (ids >= 0), edges * (ids >= 0)
        else:
            capacity = Capacity(
                len(ids), int(nodes.sum()), int(edges.sum()), int(nodes.max()) if len(ids) else 0
            )
        assert capacity is not None
        first_node, first_edge = self.data["node_ptr"][there], self.data["edge_ptr"][there]
        node_row, node_ptr, _ = _ragged(first_node, nodes, capacity.nodes)
        edge_row, edge_ptr, slot = _ragged(first_edge, edges, capacity.edges)
        edge_row = edge_row.clamp(max=len(self.data["source"]) - 1)
        layout = Layout(
            node_ptr.int(),
            self.data["pair_ptr"][there],
            ids.int(),
            capacity.nodes,
            capacity.largest,
            padded,
            self.diameter,
        )
        y = self.data.get("y")
        if y is not None:
            y = y[there] if self.level == "graph" else y[node_row]
        return Batch(
            layout,
            self._edges(ids, edge_row, edge_ptr, slot, node_ptr, capacity, padded),
            self._rows("x", node_row, layout.rows),
            self._edge_rows("edge_attr", edge_row),
            self.data.get("distance"),
            {name: layout.rows.zero_padding(self.data[name][node_row]) for name in self.encodings},
            {
                **{name: self.data[name][node_row] for name in self.node_extras},
                **{name: self.data[name][edge_row] for name in self.edge_extras},
                **{name: self.data[name][there] for name in self.graph_extras},
                **{name: self.data[name] for name in self.pair_extras},
            },
            y,
        )

    def _rows(self, name: str, index: Tensor, rows: Rows) -> Tensor | None:
        value = self.data.get(name)
        if value is None:
            return None
        value = value[index]
        return rows.zero_padding(value) if value.is_floating_point() else value

    def _edge_rows(self, name: str, index: Tensor) -> Tensor | None:
        value = self.data.get(name)
        return None if value is None else value[index]

    def _edges(
        self,
        ids: Tensor,
        edge_row: Tensor,
        edge_ptr: Tensor,
        slot: Tensor,
        node_ptr: Tensor,
        capacity: Capacity,
        padded: bool,
    ) -> Edges:
        first_node, first_edge = node_ptr[slot], edge_ptr[slot]
        place = torch.arange(capacity.edges, device=self.device)
        real = place < edge_ptr[-1]
        source = torch.where(real, self.data["source"][edge_row] + first_node, 0)
        target = torch.where(real, self.data["target"][edge_row] + first_node, capacity.nodes - 1)
        by_source = torch.where(real, self.data["by_source"][edge_row] + first_edge, place)
        beyond = torch.full_like(source, capacity.nodes)
        sorted_source = torch.where(real, source[by_source], beyond)
        return Edges(
            source.int(),
            target.int(),
            _begin(torch.where(real, target, beyond), capacity.nodes),
            by_source.int(),
            _begin(sorted_source, capacity.nodes),
            Rows(ids[slot].int(), (place - first_edge).int(), real if padded else None),
        )


def _for_kernels(distance: Tensor) -> tuple[Tensor, int]:
    """The bytes with eight to spare behind them (kernels read ahead), and the largest distance."""
    roomy = torch.empty(len(distance) + 8, dtype=torch.uint8, device=distance.device)[:-8]
    roomy.copy_(distance)
    finite = torch.where(distance == 255, 0, distance)
    return roomy, int(finite.max()) if len(finite) else 0


def _ragged(first: Tensor, length: Tensor, capacity: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rows ``first[g] … first[g] + length[g] − 1`` of all g end to end, filled up to ``capacity``.

    Returns the rows [capacity] (the last real place again where padded), the pointers [g + 1] and
    the slot g of each row.
    """
    ptr = torch.nn.functional.pad(length.cumsum(0), (1, 0))
    place = torch.arange(capacity, device=first.device)
    slot = torch.searchsorted(ptr[1:], place, right=True).clamp(max=len(first) - 1)
    row = first[slot] + (place - ptr[slot]).clamp(max=(length[slot] - 1).clamp(min=0))
    return row, ptr, slot


def _begin(sorted_index: Tensor, nodes: int) -> Tensor:
    """[nodes + 1]: where the entries of each node begin in an ascending list."""
    node = torch.arange(nodes + 1, device=sorted_index.device, dtype=sorted_index.dtype)
    return torch.searchsorted(sorted_index, node, out_int32=True)
