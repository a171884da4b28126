"""GradformerConv: a layer for other people's PyG models."""

from __future__ import annotations

import gc
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, GINConv, GINEConv, GPSConv

from gradformer.attention import Decay, use_engine
from gradformer.attention.draws import number_sites
from gradformer.graphs import batch
from gradformer.model.conv import GradformerConv
from gradformer.model.parallel import shared_batch
from tests.model.convs import EDGES, VECTOR, make


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The edge lists whose distances were computed."""
    seen: list[Tensor] = []
    compute = batch.batch_distances

    def count(edges: batch.Edges, layout: Any) -> Tensor:
        seen.append(edges.source)
        return compute(edges, layout)

    monkeypatch.setattr(batch, "batch_distances", count)
    return seen


def test_it_takes_the_place_of_gpsconv() -> None:
    x, edge_attr = torch.randn(7, 8), torch.randn(10, 8)
    for made in (GPSConv, GradformerConv):
        layer = made(8, GINEConv(nn.Linear(8, 8)), heads=2)
        out = layer(x, EDGES, VECTOR, edge_attr=edge_attr)
        assert out.shape == x.shape
        out.square().sum().backward()
        assert all(p.grad is not None for p in layer.parameters())


def test_graphs_do_not_see_each_other() -> None:
    layer = make(GCNConv(8, 8)).eval()
    x = torch.randn(7, 8)
    together = layer(x, EDGES, VECTOR)
    alone = layer(x[4:], EDGES[:, 4:] - 4)
    torch.testing.assert_close(together[4:], alone)


def test_given_distances_are_used() -> None:
    layer = make(decay={"decay": 0.1, "start": 0.0}).eval()
    x = torch.randn(7, 8)
    near = torch.zeros(9 + 1 + 9, dtype=torch.uint8)
    computed = torch.tensor([0, 1, 2, 1, 0, 1, 2, 1, 0, 0, 0, 1, 1, 1, 0, 1, 1, 1, 0]).byte()
    assert torch.equal(layer(x, EDGES, VECTOR, computed), layer(x, EDGES, VECTOR))
    assert not torch.allclose(layer(x, EDGES, VECTOR, near), layer(x, EDGES, VECTOR))


def test_attention_weights_come_as_pyg_gives_them_and_change_nothing() -> None:
    layer, x = make(GCNConv(8, 8), attention_dropout=0.5, decay={"start": 0.0}), torch.randn(7, 8)
    torch.manual_seed(1)
    plain = layer(x, EDGES, VECTOR)
    torch.manual_seed(1)
    out, (pairs, weights) = layer(x, EDGES, VECTOR, return_attention_weights=True)
    assert torch.equal(out, plain), "also what dropout draws"
    assert pairs.shape == (2, 9 + 1 + 9)
    assert torch.equal(VECTOR[pairs[0]], VECTOR[pairs[1]])
    queries = torch.zeros(7, 2).index_add(0, pairs[1], weights)
    torch.testing.assert_close(queries, torch.ones(7, 2))
    values = layer.attention.project(x)[2]  # [nodes, heads, d]
    seen = torch.zeros_like(values).index_add(0, pairs[1], weights[..., None] * values[pairs[0]])
    heard: list[Tensor] = []
    layer.eval().attention.register_forward_hook(lambda *call: heard.append(call[-1]))
    layer(x, EDGES, VECTOR)
    torch.testing.assert_close(layer.attention.out(seen.flatten(1)), heard[0])
    weights.square().sum().backward()
    assert layer.decay.start.grad.abs().sum() > 0


def test_distances_are_computed_once_for_all_layers(counted: list[Tensor]) -> None:
    decay = Decay(2)
    layers = [make(decay=decay), make(decay=decay)]
    assert layers[0].decay is layers[1].decay
    x, edges = torch.randn(7, 8), EDGES.clone()
    for layer in layers * 2:
        x = layer(x, edges, VECTOR)
    assert len(counted) == 1
    layers[0](x, edges.clone(), VECTOR)
    assert len(counted) == 2


def test_changes_in_place_are_noticed(counted: list[Tensor]) -> None:
    layer = make(decay={"decay": 0.1, "start": 0.0}).eval()
    x, edges, vector = torch.randn(7, 8), EDGES.clone(), VECTOR.clone()
    before = layer(x, edges, vector)
    edges[:, :4] = torch.tensor([[0, 2, 2, 1], [2, 0, 1, 2]])
    after = layer(x, edges, vector)
    assert not torch.allclose(before[:3], after[:3])
    assert torch.equal(after, layer(x, edges.clone(), vector))
    vector[3] = 0  # the node alone joins the first graph
    joined = layer(x, edges, vector)
    assert torch.equal(joined, layer(x, edges.clone(), vector.clone()))
    assert not torch.allclose(joined[:3], after[:3])
    edges.numpy()[:, :4] = EDGES[:, :4]  # of which torch does not know
    assert torch.equal(layer(x, edges, vector), layer(x, edges.clone(), vector))


def test_nothing_is_kept_of_an_edge_list_that_is_gone() -> None:
    layer, x, edges = make(), torch.randn(7, 8), EDGES.clone()
    layer(x, edges, VECTOR)
    gc.collect()
    before = len(batch._known)
    del edges
    gc.collect()
    assert len(batch._known) == before - 1


def test_inference_mode() -> None:
    layer, x = make(GCNConv(8, 8)).eval(), torch.randn(7, 8)
    expected = layer(x, EDGES, VECTOR)
    with torch.inference_mode():
        torch.testing.assert_close(layer(x, EDGES.clone(), VECTOR.clone()), expected)


@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_what_inference_mode_has_made_does_not_meet_training(
    engine: str, counted: list[Tensor]
) -> None:
    layer, x, edges = make(GCNConv(8, 8)), torch.randn(7, 8), EDGES.clone()
    with use_engine(engine):
        for _ in range(2):
            with torch.inference_mode():
                layer(x, edges, VECTOR)
            layer(x, edges, VECTOR).sum().backward()
    assert len(counted) == 2  # what training has made serves both


def test_what_training_has_made_is_not_added_to_in_inference_mode() -> None:
    """The reference engine sorts graphs by size when it is first asked, and that was kept."""
    layer, x, edges = make(GCNConv(8, 8)), torch.randn(7, 8), EDGES.clone()
    layer(x, edges, VECTOR).sum().backward()
    with use_engine("reference"):
        with torch.inference_mode():
            layer(x, edges, VECTOR)
        layer(x, edges, VECTOR).sum().backward()


def test_dropout_acts_in_training_only() -> None:
    layer, x = make(dropout=0.3, attention_dropout=0.3), torch.randn(7, 8)
    assert not torch.allclose(layer(x, EDGES, VECTOR), layer(x, EDGES, VECTOR))
    layer.eval()
    assert torch.equal(layer(x, EDGES, VECTOR), layer(x, EDGES, VECTOR))


def test_reset_draws_weights_and_keeps_start_points() -> None:
    layer = make(GCNConv(8, 8), decay={"start": 3.5})
    before = {name: p.clone() for name, p in layer.named_parameters()}
    layer.reset_parameters()
    changed = {n for n, p in layer.named_parameters() if not torch.equal(p, before[n])}
    assert {"attention.qkv.weight", "conv.lin.weight", "mlp.first.weight"} <= changed
    assert not any(name.startswith("decay.") for name in changed)


def test_a_graph_without_edges() -> None:
    layer, x = make(GCNConv(8, 8)), torch.randn(3, 8)
    assert torch.isfinite(layer(x, torch.zeros(2, 0, dtype=torch.long))).all()


def test_one_process_shares_its_batch_with_none() -> None:
    """A script that also runs without torchrun."""
    layer, x = make(GCNConv(8, 8)), torch.randn(7, 8)
    with shared_batch():
        found = layer(x, EDGES, VECTOR)
    assert torch.equal(found, layer(x, EDGES, VECTOR))


def test_a_model_around_it_has_draws_of_its_own() -> None:
    """As a model of :mod:`gradformer.model.base`, which numbers all that it holds."""
    layers = nn.ModuleList(make(dropout=0.5, attention_dropout=0.5) for _ in range(2))
    x, outs = torch.randn(7, 8), []
    for _ in range(2):
        torch.manual_seed(0)
        outs.append(layers[1](x, EDGES, VECTOR))
        number_sites(layers)
    assert torch.equal(*outs)


def test_it_compiles_around_what_depends_on_the_sizes() -> None:
    """Distances and attention stay plain calls: no graph is made of their insides, and of the rest
    one for the first sizes and one for all others."""
    counters = torch._dynamo.utils.counters
    counters.clear()
    layer = make(GINConv(nn.Linear(8, 8)), dropout=0.3, attention_dropout=0.3)
    compiled = torch.compile(layer, backend="eager")
    graphs = []
    for nodes in (7, 6, 5, 4):  # paths: where edges are as many as nodes, torch 2.11 relies on it
        ends = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])
        x, vector = torch.randn(nodes, 8), torch.zeros(nodes, dtype=torch.long)
        edges = torch.cat([ends, ends.flip(0)], dim=1)
        torch.manual_seed(1)
        expected = layer(x, edges, vector)
        torch.manual_seed(1)
        assert torch.equal(compiled(x, edges.clone(), vector), expected)
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs[1] == graphs[-1]
    assert counters["graph_break"]
    for reason in counters["graph_break"]:
        assert re.search("function (`disable`|_batch_of|_by_engine) ", reason), reason


@pytest.mark.parametrize("shape", ["exponential", "free"])
def test_a_layer_without_storage_takes_weights(shape: str) -> None:
    """ψ is in no state dict, and ``to_empty`` leaves nothing in it."""
    x, edge_index = torch.randn(3, 8), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    layer = GradformerConv(8, None, heads=2, decay={"shape": shape}).eval()
    with torch.device("meta"):
        empty, assigned = (GradformerConv(8, None, 2, decay={"shape": shape}) for _ in range(2))
    empty.to_empty(device="cpu").load_state_dict(layer.state_dict())
    assigned.load_state_dict(layer.state_dict(), assign=True)
    for found in (empty, assigned):
        assert torch.equal(found.eval()(x, edge_index), layer(x, edge_index))


def test_functions_of_torch_take_a_layer_and_new_graphs() -> None:
    """A new edge_index was read where torch.func has no storage."""
    layer, x, edges = make().eval(), torch.randn(len(VECTOR), 8), EDGES.clone()
    parameters = dict(layer.named_parameters())

    def total(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(layer, parameters, (x, edges, VECTOR)).square().sum()

    with use_engine("reference"):
        grads, dx = torch.func.grad(total, (0, 1))(parameters, x)
        jacobian = torch.func.jacrev(lambda x: layer(x, edges, VECTOR).square().sum())(x)
        leaf = x.clone().requires_grad_()
        total(parameters, leaf).backward()
    torch.testing.assert_close(dx, leaf.grad)
    torch.testing.assert_close(jacobian, leaf.grad)
    for name, parameter in parameters.items():
        torch.testing.assert_close(grads[name], parameter.grad)
