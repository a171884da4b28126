"""What a model takes: a ragged batch of graphs on one device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from gradformer.attention.compiling import never_compiled
from gradformer.attention.draws import site_seeds
from gradformer.attention.layout import Layout, Rows, pointer_of, untransformed
from gradformer.errors import InputError, counted
from gradformer.structure.distance import hop_distances


@dataclass(frozen=True, eq=False)
class Edges:
    """Directed edges source → target, sorted by target, with the order by source beside it.

    Sums over the edges of a node run over contiguous pieces in a fixed order: those that enter
    node t are ``target_ptr[t] : target_ptr[t+1]``; those that leave node s are
    ``by_source[source_ptr[s] : source_ptr[s+1]]``. Edges from ``target_ptr[-1]`` on are padding.

    Shapes: source, target, by_source [edges] int32; target_ptr, source_ptr [nodes + 1] int32.
    """

    source: Tensor
    target: Tensor
    target_ptr: Tensor
    by_source: Tensor
    source_ptr: Tensor
    rows: Rows

    @cached_property
    def edge_index(self) -> Tensor:
        """[2, edges] int64, as PyG has it."""
        return torch.stack([self.source, self.target]).long()

    @property
    def num_edges(self) -> int:
        return self.source.numel()


@dataclass(frozen=True, eq=False, repr=False)
class Batch:
    """Graphs end to end. Node features ``x`` [nodes, c] and ``edge_attr`` [edges, c] (in the order
    of ``edges``), distance bytes, encodings by name ([nodes, k] each: ``rwse``, ``lap``), further
    arrays that some models ask for, targets ``y`` ([graphs or nodes], or [·, targets] with NaN for
    missing), and, inside a training step, the seeds [sites, 3] of its random draws.
    """

    layout: Layout
    edges: Edges
    x: Tensor | None = None
    edge_attr: Tensor | None = None
    distance: Tensor | None = None
    encodings: Mapping[str, Tensor] = field(default_factory=dict)
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    y: Tensor | None = None
    seeds: Tensor | None = None

    def __repr__(self) -> str:
        own = {"x": self.x, "edge_attr": self.edge_attr, "distance": self.distance, "y": self.y}
        held = {**own, **self.encodings, **self.extras}
        shapes = (f"{name} {list(t.shape)}" for name, t in held.items() if t is not None)
        sizes = {"graph": self.num_graphs, "node": self.num_nodes, "edge": self.edges.num_edges}
        size = ", ".join(counted(number, thing) for thing, number in sizes.items())
        return f"<Batch of {size} on {self.layout.device}: {', '.join(shapes)}>"

    @property
    def nodes(self) -> Rows:
        return self.layout.rows

    @property
    def num_nodes(self) -> int:
        return self.layout.capacity

    @property
    def num_graphs(self) -> int:
        return self.layout.num_graphs

    def pair_bytes(self) -> Tensor:
        """``distance``, of a batch that must have it."""
        if self.distance is None:
            raise InputError("distance: the batch has none; pack the graphs with a pair index")
        return self.distance

    def with_seed(self, seed: Tensor, sites: int) -> Batch:
        """The same batch inside the training step (trial seed, step) [2]."""
        return replace(self, seeds=site_seeds(seed, sites))

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        return _move(self, torch.device(device))

    @classmethod
    @never_compiled  # it reads sizes back, and distances are computed by numba
    def from_pyg(cls, data: Any) -> Batch:
        """From PyG's ``Data`` or ``Batch``.

        Where there is no ``data.distance`` (flat uint8, see the transforms) hops are computed, and
        kept as long as ``data.edge_index`` is. Every other float tensor with one row for each node
        becomes an encoding.
        """
        if not hasattr(data, "edge_index"):
            raise InputError(f"data: expected a Batch, or PyG's Data or Batch, got {type(data)}")
        if data.edge_index is None or not data.num_nodes:
            raise InputError("data: has no edge_index or no nodes; leave such graphs out")
        vector = getattr(data, "batch", None)
        if vector is None:
            vector = torch.zeros(data.num_nodes, dtype=torch.long, device=data.edge_index.device)
        found = packed(data.edge_index, vector, getattr(data, "num_graphs", None))
        # Copies: what they make at need may be large, or be made in inference mode.
        layout, edges = replace(found.layout), replace(found.edges)
        distance = getattr(data, "distance", None)
        distance = found.distance if distance is None else distance
        check_distance(distance, layout)
        x = None if data.x is None else check_features("x", data.x, layout.capacity)
        edge_attr = data.edge_attr
        if edge_attr is not None:
            edge_attr = check_features("edge_attr", edge_attr, edges.num_edges)[found.order]
        known = {"x", "y", "edge_index", "edge_attr", "batch", "ptr", "distance"}
        encodings = {
            key: value
            for key, value in data.to_dict().items()
            if key not in known
            and isinstance(value, Tensor)
            and value.is_floating_point()
            and value.dim() >= 2
            and len(value) == data.num_nodes
        }
        return cls(layout, edges, x, edge_attr, distance, encodings, y=data.y)


@dataclass(frozen=True, eq=False)
class Packed:
    """Graphs of PyG, packed; ``order`` [edges] sorts their edges, and so edge features, as ours."""

    layout: Layout
    edges: Edges
    order: Tensor

    @cached_property
    @untransformed
    def distance(self) -> Tensor:
        """Hops of all pairs, flat uint8."""
        return batch_distances(self.edges, self.layout)


_known: Any = WeakTensorKeyDictionary()  # edge_index → copies of it and its vector, graphs, Packed


@untransformed
def packed(edge_index: Tensor, vector: Tensor, num_graphs: int | None = None) -> Packed:
    """The graphs of PyG's ``edge_index`` and ``batch`` vector, for every layer and epoch.

    They are kept while ``edge_index`` lives, and given again while its content is the same. What
    was made in inference mode is given again in that mode only.
    """
    if (known := _known.get(edge_index)) is not None:
        *before, graphs, found = known
        usable = torch.is_inference_mode_enabled() or not found.layout.node_ptr.is_inference()
        if usable and graphs == num_graphs and all(map(torch.equal, before, (edge_index, vector))):
            return cast(Packed, found)
    layout = Layout.from_batch(vector, num_graphs)
    found = Packed(layout, *sort_edges(edge_index, layout))
    _known[edge_index] = edge_index.clone(), vector.clone(), num_graphs, found
    return found


def graph_arrays(
    edges: Edges, layout: Layout
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """The graphs of a batch as :class:`GraphArrays` has them: node_ptr, edge_ptr, edge_index."""
    node_ptr = layout.node_ptr.cpu().numpy().astype(np.int64)
    edge_ptr = edges.target_ptr.cpu().numpy()[node_ptr].astype(np.int64)
    index = torch.stack([edges.source, edges.target])[:, : edge_ptr[-1]].cpu().numpy()
    first = np.repeat(node_ptr[:-1], np.diff(edge_ptr)).astype(np.int32)
    return node_ptr, edge_ptr, index - first


def batch_distances(edges: Edges, layout: Layout) -> Tensor:
    """Hop distances of all graphs of a batch, flat uint8 on its device."""
    with torch.inference_mode(False):  # they are kept, and may serve in training later
        return torch.from_numpy(hop_distances(*graph_arrays(edges, layout))).to(layout.device)


def sort_edges(edge_index: Tensor, layout: Layout) -> tuple[Edges, Tensor]:
    """Edges sorted by target, and the order [edges] that sorts them (for edge features)."""
    nodes = layout.capacity
    whole = not (edge_index.is_floating_point() or edge_index.dtype == torch.bool)
    if edge_index.dim() != 2 or edge_index.shape[0] != 2 or not whole:
        raise InputError(
            f"edge_index: expected integers [2, edges], got {edge_index.dtype} "
            f"{list(edge_index.shape)}"
        )
    outside = edge_index[(edge_index < 0) | (edge_index >= nodes)]
    if len(outside):
        raise InputError(
            f"edge_index: holds node {int(outside[0])} of {counted(nodes, 'node')}, numbered from 0"
        )
    order = torch.argsort(edge_index[1], stable=True)
    source, target = edge_index[:, order].int().unbind()
    if bool((layout.graph[source] != layout.graph[target]).any()):
        raise InputError("edge_index: an edge joins two different graphs of the batch")
    graph = layout.graph[target]
    counts = torch.bincount(graph, minlength=layout.num_graphs)
    first = pointer_of(counts)[:-1]
    place = torch.arange(len(source), device=source.device) - first[graph]
    rows = Rows(layout.graph_id[graph], place.int())
    return link(source, target, nodes, nodes, rows), order


def link(source: Tensor, target: Tensor, sources: int, targets: int, rows: Rows) -> Edges:
    """Edges that are sorted by ``target``; an end numbered ``sources`` or ``targets`` is padding.

    Shapes: source, target [edges] int32, of so many nodes each.
    """
    by_source = torch.argsort(source, stable=True)
    ends = _pointers(target, targets), _pointers(source[by_source], sources)
    return Edges(source, target, ends[0], by_source.int(), ends[1], rows)


def _pointers(ascending: Tensor, count: int) -> Tensor:
    """[count + 1] int32: where the entries of each number begin."""
    number = torch.arange(count + 1, device=ascending.device, dtype=ascending.dtype)
    return torch.searchsorted(ascending.contiguous(), number, out_int32=True)


def check_distance(distance: Tensor, layout: Layout) -> None:
    """Raise an :class:`InputError` unless there is one byte for each pair of the batch."""
    pairs = int(layout.packed_ptr[-1])
    if distance.dtype != torch.uint8 or distance.shape != (pairs,):
        raise InputError(
            f"distance: expected uint8 [{pairs}], a byte for each pair, "
            f"got {distance.dtype} {list(distance.shape)}; those of a graph that was cut are made "
            "anew, by AddDistance() as the transform of the loader"
        )


def check_features(name: str, x: Tensor, rows: int) -> Tensor:
    """Features as [rows, columns], if they are finite and there is a row for each node or edge."""
    if x.dim() not in (1, 2) or len(x) != rows:
        expected = f"{counted(rows, 'row')} of features"
        raise InputError(f"{name}: expected {expected}, got shape {list(x.shape)}")
    x = (x[:, None] if x.dim() == 1 else x).to_dense()
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        row = int((~torch.isfinite(x)).any(dim=1).nonzero()[0])
        raise InputError(f"{name}: row {row} holds a value that is not finite; clean the features")
    return x


def _move(value: Any, device: torch.device) -> Any:
    """Tensors inside dataclasses and mappings, moved."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        return {key: _move(item, device) for key, item in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        return type(value)(**{f.name: _move(getattr(value, f.name), device) for f in fields(value)})
    return value
