"""From a store to a batch: what arrives, in which shapes, and what padding holds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.zoo import toys

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
    expected = batch_distances(batch.edges.edge_index, batch.layout)
    assert torch.equal(torch.cat(blocks(batch)), expected)
    assert batch.layout.diameter >= int(expected[expected < 255].max())


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
    make = Collator(pack(arrays, Structure()).arrays, level="graph")
    ids = torch.tensor([1, 0])
    assert make(ids).edges.num_edges == 0
    padded = make(ids, Capacity(graphs=2, nodes=4, edges=3, largest=2))
    assert int(padded.edges.target_ptr[-1]) == 0
    assert padded.edges.num_edges == 3
