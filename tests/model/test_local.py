"""Our message passing against PyG's, with the same weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, GINEConv

from gradformer.graphs.batch import Batch
from gradformer.model.gated import GatedGCN
from gradformer.model.local import GAT, GCN, GIN, GINE
from gradformer.model.maps import MLP
from tests.zoo import toys

WIDTH = 8


@pytest.fixture
def batch() -> Batch:
    return toys.toy_batch(toys.toy_schema())


@pytest.fixture
def x(batch: Batch) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(batch.num_nodes, WIDTH)


def sequence(mlp: MLP) -> nn.Sequential:
    first, second = mlp.layers
    return nn.Sequential(first, nn.ReLU(), second)


def test_gin(batch: Batch, x: torch.Tensor) -> None:
    ours = GIN(WIDTH, learn_eps=True)
    assert ours.eps is not None
    with torch.no_grad():
        ours.eps.fill_(0.3)
    theirs = GINConv(sequence(ours.mlp), eps=0.3)
    torch.testing.assert_close(ours(x, None, batch)[0], theirs(x, batch.edges.edge_index))


def test_gine(batch: Batch, x: torch.Tensor) -> None:
    ours = GINE(WIDTH)
    e = torch.randn(batch.edges.num_edges, WIDTH)
    expected = GINEConv(sequence(ours.mlp))(x, batch.edges.edge_index, e)
    found, edges = ours(x, e, batch)
    torch.testing.assert_close(found, expected)
    assert edges is e


def test_gcn(batch: Batch, x: torch.Tensor) -> None:
    ours, theirs = GCN(WIDTH), GCNConv(WIDTH, WIDTH)
    theirs.lin.weight, theirs.bias = ours.linear.weight, ours.bias
    nn.init.normal_(ours.bias)
    torch.testing.assert_close(ours(x, None, batch)[0], theirs(x, batch.edges.edge_index))


def test_gat(batch: Batch, x: torch.Tensor) -> None:
    ours, theirs = GAT(WIDTH, heads=2), GATConv(WIDTH, WIDTH // 2, heads=2)
    theirs.lin.weight, theirs.bias = ours.linear.weight, ours.bias
    theirs.att_src = nn.Parameter(ours.source[None])
    theirs.att_dst = nn.Parameter(ours.target[None])
    nn.init.normal_(ours.bias)
    torch.testing.assert_close(ours(x, None, batch)[0], theirs(x, batch.edges.edge_index))


@pytest.mark.parametrize("module", [GIN, GINE, GCN, GAT, GatedGCN])
def test_states_keep_their_type(module: type[nn.Module], batch: Batch, x: torch.Tensor) -> None:
    kind = torch.bfloat16
    e = torch.randn(batch.edges.num_edges, WIDTH, dtype=kind)
    assert module(WIDTH).to(kind)(x.to(kind), e, batch)[0].dtype == kind


def test_gatedgcn_edge_by_edge(batch: Batch, x: torch.Tensor) -> None:
    """The formula of the docstring, in a loop over nodes, without batch norm's statistics."""
    ours = GatedGCN(WIDTH).eval()
    e = torch.randn(batch.edges.num_edges, WIDTH)
    found, edges = ours(x, e, batch)
    source, target = batch.edges.edge_index
    a, d, b, s = ours.ADBE(x).chunk(4, dim=1)
    u = d[target] + s[source] + ours.C(e)
    gate = u.sigmoid()
    scale = 1.0 / (1.0 + 1e-5) ** 0.5  # running mean 0, running variance 1
    for node in range(batch.num_nodes):
        enters = target == node
        mean = (gate[enters] * b[source[enters]]).sum(0) / (gate[enters].sum(0) + 1e-6)
        expected = x[node] + ((a[node] + mean) * scale).relu()
        torch.testing.assert_close(found[node], expected)
    assert edges is not None
    torch.testing.assert_close(edges, e + (u * scale).relu())


def test_gatedgcn_leaves_edges_alone_when_asked(batch: Batch, x: torch.Tensor) -> None:
    e = torch.randn(batch.edges.num_edges, WIDTH)
    for options in ({"carry_edges": False}, {"update_edges": False}):
        module = GatedGCN(WIDTH, **options)
        assert module(x, e, batch)[1] is e
        assert module.edge_norm is None
