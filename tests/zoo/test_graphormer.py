"""Graphormer: the edge term along shortest paths, and nodes that are too far."""

from __future__ import annotations

import pytest
import torch

from gradformer.attention import use_engine
from gradformer.graphs.collate import Collator
from gradformer.graphs.store import pack
from gradformer.graphs.structures import Structure
from gradformer.zoo.all_pairs import Pairs
from gradformer.zoo.graphormer import NodeInput
from gradformer.zoo.path_bias import PathBias
from tests.zoo import toys


def test_edge_term_follows_one_shortest_path():
    batch = toys.toy_batch(toys.toy_schema())
    pairs = Pairs.of(batch.layout)
    bias = PathBias((4,), heads=2, hops=3)
    found = bias(batch, pairs)
    value = bias.encoder(batch)
    edges = list(zip(batch.edges.source.tolist(), batch.edges.target.tolist()))
    hops = batch.distance[pairs.place].tolist()
    for pair, (i, j) in enumerate(zip(pairs.query.tolist(), pairs.key.tolist())):
        if hops[pair] == 1:
            expected = value[edges.index((i, j))] @ bias.mix[0]
        elif hops[pair] in (0, 255):
            expected = torch.zeros(2)
        elif hops[pair] == 2:
            middles = [v for u, v in edges if u == i and (v, j) in edges]
            first = value[edges.index((i, min(middles)))] @ bias.mix[0]
            second = value[edges.index((min(middles), j))] @ bias.mix[1]
            expected = (first + second) / 2
        else:
            continue
        torch.testing.assert_close(found[pair], expected, msg=f"pair {i}, {j}")


@pytest.mark.parametrize("engine", ["reference", "fused"])
@pytest.mark.parametrize("padding", [False, True])
@pytest.mark.parametrize("capacity", [None, *toys.CAPACITIES])
def test_edge_term_and_its_gradients_are_those_of_indexing(engine, padding, capacity, device):
    """The sums along paths, with a transposed order for the gradients, against plain indexing."""
    pytest.importorskip("triton")
    torch.manual_seed(0)
    bias = PathBias((4,), heads=2, hops=3, padding=padding).to(device)
    store = pack(toys.toy_graphs(toys.toy_schema()), Structure("hops", extras=("first_edge",)))
    ids = toys.IDS if capacity is None else toys.PADDED_IDS
    batch = Collator(store, device)(ids.to(device), capacity)
    pairs = Pairs.of(batch.layout)
    with use_engine("reference"):
        edges, values = bias.paths(batch, pairs, 3), bias._values(batch)
    assert (edges[:, 2] != len(values) - 1).any()
    want = sum((values @ bias.mix[k])[edges[:, k]] for k in range(3))
    want = want / batch.distance[pairs.place].long().clamp(1, 3)[:, None]
    with use_engine(engine):
        assert torch.equal(bias.paths(batch, pairs, 3), edges)
        found = bias(batch, pairs)
    real = pairs.rows.mask if capacity else slice(None)
    weight = torch.randn_like(want[real])
    torch.testing.assert_close(found[real], want[real])
    learned = list(bias.parameters())
    slopes = (torch.autograd.grad((y[real] * weight).sum(), learned) for y in (found, want))
    for ours, theirs in zip(*slopes, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_paths_of_the_store_and_of_the_batch_agree():
    schema = toys.toy_schema()
    arrays = toys.toy_graphs(schema)
    store = pack(arrays, Structure(extras=("first_edge",)))
    stored = Collator(store)(toys.IDS.flip(0))
    computed = toys.collator(arrays)(toys.IDS.flip(0))
    assert "first_edge" in stored.extras
    model = toys.lively(toys.make("graphormer")).eval()
    torch.testing.assert_close(model(stored), model(computed))


def test_far_nodes_do_not_attend():
    model = toys.make("graphormer", reach=2).eval()
    table = model.distance().add.value
    assert torch.isfinite(table[:, :2]).all()
    assert torch.isinf(table[:, 2:254]).all()
    assert torch.isfinite(table[:, 254]).all()
    assert torch.isinf(table[:, 255]).all()


def test_initial_weights_are_small_and_the_smaller_the_deeper():
    torch.manual_seed(0)
    model = toys.make("graphormer", layers=4, width=64)
    found = {"token": (model.token, 0.02)}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            found[name] = (module.weight, 0.02 / 4**0.5)
            assert module.bias is None or not module.bias.any(), name
        elif isinstance(module, torch.nn.Embedding):
            found[name] = (module.weight, 0.02)
    for name, (weight, spread) in found.items():
        if weight.numel() >= 64:
            assert weight.std().item() == pytest.approx(spread, rel=0.3), name


@pytest.mark.parametrize("engine", ["reference", "fused"])
def test_degrees_beyond_the_table_share_its_last_row(engine):
    batch = toys.toy_batch(toys.toy_schema())
    found = NodeInput(toys.toy_schema(), 4, degrees=3, same_degree=False)
    found.features = None
    leaving, entering = (
        batch.edges.edge_index[k].bincount(minlength=batch.num_nodes) for k in (0, 1)
    )
    assert leaving.max() > 2
    expected = found.in_degree.weight[entering.clamp(max=2)]
    expected = expected + found.out_degree.weight[leaving.clamp(max=2)]
    with use_engine(engine):
        torch.testing.assert_close(found(batch), expected)
