"""DeepGraph: who attends to whom, and samples from the store."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Batch, Data

from gradformer.errors import InputError
from gradformer.graphs.collate import Collator
from gradformer.graphs.store import pack
from gradformer.graphs.structures import Structure
from tests.zoo import toys


def make(*where, **options):
    return toys.make("deepgraph", *where, **options)


def test_members_attend_and_others_do_not():
    model = make().eval()
    batch = toys.toy_batch(model.schema)
    rows = model.rows(batch)
    add = model.distance().add.value[0]
    open_ = torch.isfinite(add[rows.batch.distance.long()])
    first = 0
    for graph, n in enumerate(toys.SIZES):
        pieces = [set(p[p >= 0].tolist()) for p in rows.members[graph] if p[0] >= 0]
        size = 1 + n + len(pieces)
        seen = open_[first : first + size**2].view(size, size)
        first += size**2
        expected = torch.zeros(size, size, dtype=torch.bool)
        expected[0] = expected[:, 0] = True
        expected[1 : n + 1, 1 : n + 1] = True
        for number, piece in enumerate(pieces):
            for node in piece:
                expected[1 + n + number, 1 + node] = expected[1 + node, 1 + n + number] = True
        assert torch.equal(seen, expected)


def test_adjacency_of_a_substructure():
    model = make().eval()
    batch = toys.toy_batch(model.schema)
    members = model.rows(batch).members
    edges = set(zip(batch.edges.source.tolist(), batch.edges.target.tolist()))
    matrices = model.adjacency(batch, members).view(*members.shape[:2], 9, 9)
    for graph, start in enumerate(batch.layout.node_ptr[:-1].tolist()):
        nodes = members[graph, 0].tolist()
        for a, i in enumerate(nodes):
            for b, j in enumerate(nodes):
                joined = i >= 0 and j >= 0 and (start + i, start + j) in edges
                assert matrices[graph, 0, a, b] == joined


def test_a_graph_without_nodes_may_be_the_last():
    """It begins where the distances end, and places that hold no member pointed there."""
    model = toys.lively(make("graph", False)).eval()
    path = Data(x=torch.tensor([[0], [1]]), edge_index=torch.tensor([[0, 1], [1, 0]]))
    empty = Data(x=torch.zeros(0, 1, dtype=torch.long), edge_index=torch.zeros(2, 0).long())
    found = model(Batch.from_data_list([path, empty]))
    torch.testing.assert_close(found[:1], model(path))


def test_samples_of_the_store_and_of_the_batch_agree():
    model = toys.lively(make()).eval()
    arrays = toys.toy_graphs(model.schema)
    store = pack(arrays, Structure(extras=model.config.needs().extras))
    stored = Collator(store)(toys.IDS.flip(0))
    computed = toys.collator(arrays)(toys.IDS.flip(0))
    torch.testing.assert_close(model(stored), model(computed))


def test_training_draws_among_the_samples():
    model = toys.lively(make(dropout=0.0, attention_dropout=0.0, samples=4))
    batch = toys.toy_batch(model.schema)
    outs = [model(batch.with_seed(torch.tensor([1, step]), model.sites)) for step in range(6)]
    assert any(not torch.allclose(out, outs[0]) for out in outs[1:])
    model.eval()
    assert torch.equal(model(batch), model(batch))


def test_refuses_other_samples():
    model = make()
    batch = toys.toy_batch(model.schema)
    batch.extras["substructures"] = torch.zeros(6, 1, 2, 5, dtype=torch.int16)
    with pytest.raises(InputError, match="members=9"):
        model(batch)


def test_deepnorm_starts_with_smaller_values_output_maps_and_blocks():
    plain, small = (make(layers=2, deepnorm=on).layers[0] for on in (False, True))
    factor = (8 * 2) ** -0.25
    for part in ("attention.out", "first", "second"):
        before, after = (layer.get_submodule(part).weight for layer in (plain, small))
        torch.testing.assert_close(after, factor * before)
    ratios = (small.attention.qkv.weight / plain.attention.qkv.weight).chunk(3)
    for ratio, expected in zip(ratios, (1.0, 1.0, factor)):
        torch.testing.assert_close(ratio, torch.full_like(ratio, expected))
    assert plain.second.weight.std().item() == pytest.approx(0.02, rel=0.3)
