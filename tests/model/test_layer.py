"""The layer: its split of queries, keys and values, and both of its halves in kernels."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from gradformer.attention import Decay, Layout, use_engine
from gradformer.attention.draws import number_sites
from gradformer.graphs.batch import Batch, batch_distances, sort_edges
from gradformer.model.fused import norm as fused_norm
from gradformer.model.fused.edge_norm import Unmade
from gradformer.model.layer import FeedForward, GradformerLayer
from gradformer.model.local import make_local

WIDTH = 8


def _batch(device: str) -> Batch:
    layout = Layout.from_sizes([4, 3, 5], device=device)
    index = torch.tensor(
        [[0, 1, 1, 2, 4, 5, 7, 8, 9, 10, 8], [1, 0, 2, 1, 5, 4, 8, 7, 10, 9, 11]], device=device
    )
    edges, _ = sort_edges(index, layout)
    batch = Batch(layout, edges, distance=batch_distances(edges, layout))
    return batch.with_seed(torch.tensor([5, 6], device=device), 10)


@pytest.mark.parametrize(("name", "p"), [("gine", 0.3), ("gatedgcn", 0.3), ("none", 0.0)])
def test_kernels_follow_the_plain_layer(name: str, p: float, device: str) -> None:
    pytest.importorskip("triton")
    torch.manual_seed(0)
    local = make_local(name, WIDTH, dropout=p)
    layer = GradformerLayer(WIDTH, 2, local, dropout=p, attention_dropout=p, drop_path=p)
    number_sites(layer)
    batch = _batch(device)
    nodes, edges = batch.num_nodes, len(batch.edges.source)
    inputs = [torch.randn(rows, WIDTH) for rows in (nodes, edges)]

    def run(engine: str, kind: torch.dtype) -> dict[str, Tensor]:
        ours, tables = copy.deepcopy(layer).to(device, kind), Decay(2).to(device, kind)()[0]
        x, e = (value.clone().to(device, kind).requires_grad_() for value in inputs)
        with use_engine(engine):
            y, f = ours(x, e, tables, batch)
            assert f is not None
            (y.square().sum() + f.sin().sum()).backward()
        found = {"y": y.detach(), "e": f.detach(), "dx": x.grad, "de": e.grad}
        return found | {name: parameter.grad for name, parameter in ours.named_parameters()}

    plain = run("reference", torch.float64)
    for key, value in run("fused", torch.float32).items():
        if plain[key] is not None:
            torch.testing.assert_close(value.double(), plain[key], rtol=1e-3, atol=1e-4, msg=key)


@pytest.mark.parametrize("name", ["local", "attention", "feed_forward"])
@pytest.mark.parametrize("local", ["gin", "gatedgcn"])
def test_a_hook_on_a_part_sees_it_called(local: str, name: str) -> None:
    """Although the layer has shorter ways through its parts, which pass x on."""
    batch, seen = _batch("cpu"), []
    layer = GradformerLayer(WIDTH, 2, make_local(local, WIDTH), dropout=0.3, attention_dropout=0.2)
    batch = batch.with_seed(torch.tensor([3, 4]), number_sites(layer))
    x, e = torch.randn(batch.num_nodes, WIDTH), torch.randn(len(batch.edges.source), WIDTH)
    tables = Decay(2)()[0]
    expected, edges = layer(x, e, tables, batch)
    layer.get_submodule(name).register_forward_hook(lambda module, given, y: seen.append(y))
    found, found_edges = layer(x, e, tables, batch)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found_edges, edges)
    assert len(seen) == 1


def test_a_hook_on_a_layer_sees_edges_that_the_next_would_make(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr(fused_norm, "MOST_WHOLE_ROWS", 4)
    layer, batch = (
        GradformerLayer(WIDTH, 2, make_local("gatedgcn", WIDTH)).to(device),
        _batch(device),
    )
    number_sites(layer)
    x, e = (torch.randn(n, WIDTH, device=device) for n in (batch.num_nodes, batch.edges.num_edges))
    with use_engine("fused"), torch.no_grad():
        tables = Decay(2).to(device)()[0]
        assert isinstance(layer(x, e, tables, batch, unmade=True)[1], Unmade)
        layer.register_forward_hook(lambda *_: None)
        assert isinstance(layer(x, e, tables, batch, unmade=True)[1], Tensor)


def test_a_feed_forward_block_is_twice_as_wide_inside_unless_told() -> None:
    assert FeedForward(WIDTH).first.out_features == 2 * WIDTH
    assert FeedForward(WIDTH, inner=5).second.in_features == 5
