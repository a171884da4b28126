"""From a store to a batch: what arrives, in which shapes, and what padding holds."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.structure.random_graphs import pack as end_to_end
from tests.zoo import toys

from gradformer import use_engine
from gradformer.attention.availability import runs_kernels
from gradformer.graphs.arrays import GraphArrays, Schema
from gradformer.graphs.batch import Batch, batch_distances, sort_edges
from gradformer.graphs.collate import Capacity, Collator
from gradformer.graphs.store import pack
from gradformer.graphs.structures import Structure


def blocks(batch: Batch) -> list[torch.Tensor]:
    """The distance bytes of each graph, wherever they lie."""
    assert batch.distance is not None
    sizes = batch.layout.node_ptr.diff().long().square().tolist()
    first = batch.layout.pair_ptr.tolist()
    return [batch.distance[a : a + n] for a, n in zip(first, sizes)]


def check_edges(batch: Batch) -> None:
    """The edges are those that sorting the batch's own edge list gives."""
    edges, real = batch.edges, int(batch.edges.target_ptr[-1])
    expected, _ = sort_edges(edges.edge_index[:, :real], batch.layout)
    for name in ("source", "target", "by_source"):
        assert torch.equal(getattr(edges, name)[:real], getattr(expected, name)), name
    for name in ("target_ptr", "source_ptr"):
        assert torch.equal(getattr(edges, name), getattr(expected, name)), name
    assert torch.equal(edges.rows.graph_id[:real], expected.rows.graph_id)
    assert torch.equal(edges.rows.index[:real], expected.rows.index)


@pytest.mark.parametrize("ids", [[0, 1, 2, 3, 4, 5], [4, 1, 4], [5], [3, 0]])
def test_a_batch_holds_its_graphs(ids: list[int]) -> None:
    arrays = toys.toy_graphs(toys.toy_schema())
    assert arrays.x is not None
    make = toys.collator(arrays)
    batch = make(torch.tensor(ids))
    assert batch.layout.node_ptr.diff().tolist() == [toys.SIZES[i] for i in ids]
    assert batch.layout.graph_id.tolist() == ids
    assert batch.layout.largest == max(toys.SIZES[i] for i in ids)
    rows = np.concatenate([np.arange(arrays.node_ptr[i], arrays.node_ptr[i + 1]) for i in ids])
    assert batch.x is not None
    assert torch.equal(batch.x, torch.from_numpy(arrays.x[rows]))
    check_edges(batch)
    expected = batch_distances(batch.edges, batch.layout)
    assert torch.equal(torch.cat(blocks(batch)), expected)


def test_stores_and_batches_show_what_they_hold_and_no_numbers() -> None:
    store = pack(toys.toy_graphs(toys.toy_schema()), Structure(rwse=4))
    nodes, batch = sum(toys.SIZES), Collator(store)(torch.tensor([1]))
    assert repr(store).startswith(f"<Store of {len(toys.SIZES)} graphs, {nodes} nodes in memory: ")
    assert repr(store).endswith(", y, distance, rwse>")
    size = f"1 graph, 1 node, {batch.edges.num_edges} edges on cpu"
    assert repr(batch).startswith(f"<Batch of {size}: x [{toys.SIZES[1]}, ")
    assert repr(batch).endswith(f", rwse [{toys.SIZES[1]}, 4]>")


@pytest.mark.parametrize("capacity", toys.CAPACITIES)
def test_padding_takes_no_part(capacity: Capacity) -> None:
    make = toys.collator(toys.toy_graphs(toys.toy_schema()))
    plain, padded = make(toys.IDS), make(toys.PADDED_IDS, capacity)
    assert padded.num_nodes == capacity.nodes
    assert padded.edges.num_edges == capacity.edges
    assert padded.num_graphs == capacity.graphs
    assert padded.layout.padded
    check_edges(padded)
    real = plain.num_nodes
    assert padded.nodes.mask is not None
    assert torch.equal(padded.nodes.mask, torch.arange(capacity.nodes) < real)
    for name in ("rwse", "lap"):
        assert torch.equal(padded.encodings[name][:real], plain.encodings[name])
        assert padded.encodings[name][real:].abs().sum() == 0.0
    kept = padded.layout.graph_rows.mask
    assert kept is not None
    assert torch.equal(kept, toys.PADDED_IDS >= 0)
    assert plain.y is not None
    assert padded.y is not None
    assert torch.equal(padded.y[kept], plain.y)


def test_graphs_without_any_edge_can_be_padded() -> None:
    schema = Schema((), (), "graph", "regression", 1)
    arrays = GraphArrays(
        np.array([0, 2, 3]), np.array([0, 0, 0]), np.zeros((2, 0), np.int32), schema,
        y=np.zeros((2, 1), np.float32),
    )  # fmt: skip
    make = Collator(pack(arrays, Structure()))
    ids = torch.tensor([1, 0])
    assert make(ids).edges.num_edges == 0
    padded = make(ids, Capacity(graphs=2, nodes=4, edges=3, largest=2))
    assert int(padded.edges.target_ptr[-1]) == 0
    assert padded.edges.num_edges == 3


def odd_graphs(level: str, edges: bool, device: str) -> Collator:
    """Graphs of one node, without edges, with loops and with one-way edges; arrays of all kinds."""
    draw = np.random.default_rng(0)
    sizes, links = np.array([1, 7, 3, 1, 60, 2]), np.array([0, 12, 0, 2, 70, 0]) * edges
    ends = [draw.integers(0, n, (2, m)) for n, m in zip(sizes, links)]
    node_ptr, edge_ptr, edge_index = end_to_end(zip(sizes, ends))
    schema = Schema(3, (4,), level, "regression", 1)  # type: ignore[arg-type]
    nodes, count = int(node_ptr[-1]), int(edge_ptr[-1])
    arrays = GraphArrays(
        node_ptr, edge_ptr, edge_index, schema,
        x=draw.normal(size=(nodes, 3)).astype(np.float32),
        edge_attr=draw.integers(0, 4, (count, 1)).astype(np.int16),
        y=draw.normal(size=(nodes if level == "node" else len(sizes), 1)).astype(np.float32),
    )  # fmt: skip
    further = {
        "wide": ("node", draw.normal(size=(nodes, 5, 29))),
        "byte": ("node", draw.integers(0, 255, nodes).astype(np.uint8)),
        "flag": ("edge", draw.random((count, 2)) < 0.5),
        "whole": ("graph", draw.integers(0, 9, (len(sizes), 3))),
    }
    store = pack(arrays, Structure(rwse=4))
    return Collator(
        replace(
            store,
            arrays=store.arrays | {name: value for name, (_, value) in further.items()},
            kinds=store.kinds | {name: kind for name, (kind, _) in further.items()},
        ),
        device,
    )


def tensors(value: Any, name: str = "batch") -> dict[str, torch.Tensor]:
    """Every tensor of a batch by name, with those that a layout makes when asked."""
    if isinstance(value, torch.Tensor):
        return {name: value}
    parts = dict(value) if isinstance(value, dict) else {}
    if is_dataclass(value):
        parts = {f.name: getattr(value, f.name) for f in fields(value)}
        if hasattr(value, "graph_rows"):
            parts |= {key: getattr(value, key) for key in ("graph", "rows", "graph_rows")}
    return {k: t for key, part in parts.items() for k, t in tensors(part, f"{name}.{key}").items()}


def check_kernel(make: Collator, ids: torch.Tensor, capacity: Capacity | None) -> None:
    """The kernel gathers the same bytes as plain torch code."""
    pytest.importorskip("triton")
    with use_engine("reference"):
        plain = tensors(make(ids, capacity))
    with use_engine("fused"):
        assert runs_kernels(ids)
        fused = tensors(make(ids, capacity))
    assert fused.keys() == plain.keys()
    for name, want in plain.items():
        assert fused[name].dtype == want.dtype, name
        assert torch.equal(fused[name], want), name


@pytest.mark.parametrize(
    ("level", "ids", "capacity"),
    [
        ("graph", [4, 1, 5, 0, 3, 2], Capacity(graphs=6, nodes=128, edges=90, largest=60)),
        ("node", [4, 1, -1, -1], Capacity(graphs=4, nodes=67, edges=82, largest=60)),  # all full
        ("graph", [5, -1, 2, 3], Capacity(graphs=4, nodes=8, edges=70, largest=3)),
        ("node", [0, 5, 2], Capacity(graphs=3, nodes=7, edges=3, largest=3)),
        ("graph", [-1, -1], Capacity(graphs=2, nodes=2, edges=2, largest=1)),
        ("graph", [1, 0, 4], None),
        ("node", [0, 2], None),
    ],
)
def test_the_kernel_gathers_the_same_bytes(
    level: str, ids: list[int], capacity: Capacity | None, device: str
) -> None:
    check_kernel(odd_graphs(level, True, device), torch.tensor(ids, device=device), capacity)


def test_the_kernel_takes_more_graphs_than_it_looks_at_at_once(device: str) -> None:
    ids = torch.arange(150, device=device) % 3 * 2 - 1  # −1, 1, 3
    ids = torch.where(ids == 1, 0, ids)
    capacity = Capacity(graphs=150, nodes=101, edges=110, largest=1)
    check_kernel(odd_graphs("graph", True, device), ids, capacity)


def test_the_kernel_pads_graphs_without_any_edge(device: str) -> None:
    capacity = Capacity(graphs=2, nodes=9, edges=3, largest=7)
    ids = torch.tensor([1, 0], device=device)
    check_kernel(odd_graphs("graph", False, device), ids, capacity)


@pytest.mark.gpu
def test_distances_that_are_the_same_both_ways_are_promised_to_kernels() -> None:
    store = pack(toys.toy_graphs(toys.toy_schema()), Structure())
    assert Collator(store, "cuda").symmetric
    distance = store.arrays["distance"].copy()
    distance[1] += 1  # from the first graph's node 0 to its node 1
    other = replace(store, arrays={**store.arrays, "distance": distance})
    assert not Collator(other, "cuda").symmetric
