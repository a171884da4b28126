"""Shared convolutions beside PyG's."""

from __future__ import annotations

import pytest
import torch
from torch_geometric import nn as pyg

from gradformer.zoo.convs import PNA, GraphConv, max_to_target
from gradformer.zoo.sat import _PNA
from tests.zoo import toys


@pytest.mark.parametrize("edges", [False, True])
@pytest.mark.parametrize("name", _PNA)
def test_pna_is_pygs(name, edges):
    torch.manual_seed(0)
    aggregators, scalers, towers = _PNA[name]
    batch = toys.toy_batch(toys.toy_schema())
    histogram = torch.tensor([2, 5, 9, 4, 1])
    theirs = pyg.PNAConv(
        16, 16, list(aggregators), list(scalers), histogram,
        edge_dim=5 if edges else None, towers=towers, divide_input=True,
    )  # fmt: skip
    ours = PNA(16, aggregators, scalers, towers, edges, float(theirs.aggr_module.avg_deg_log))
    for tower in range(towers):
        ours.before[tower].load_state_dict(theirs.pre_nns[tower][0].state_dict())
        ours.after[tower].load_state_dict(theirs.post_nns[tower][0].state_dict())
    ours.out.load_state_dict(theirs.lin.state_dict())
    x = torch.randn(batch.num_nodes, 16, requires_grad=True)
    e = torch.randn(batch.edges.num_edges, 5) if edges else None
    found = ours(x, theirs.edge_encoder(e) if edges else None, batch)[0]
    expected = theirs(x, batch.edges.edge_index, e)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    weight = torch.randn_like(found)
    for a, b in zip(*(torch.autograd.grad((y * weight).sum(), x) for y in (found, expected))):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("mean", [False, True])
def test_graph_convolution_is_pygs(mean):
    batch = toys.toy_batch(toys.toy_schema())
    ours, theirs = GraphConv(8, mean), (pyg.SAGEConv if mean else pyg.GraphConv)(8, 8)
    neighbours, own = ("lin_l", "lin_r") if mean else ("lin_rel", "lin_root")
    ours.neighbours.load_state_dict(getattr(theirs, neighbours).state_dict())
    ours.own.load_state_dict(getattr(theirs, own).state_dict())
    x = torch.randn(batch.num_nodes, 8)
    expected = theirs(x, batch.edges.edge_index)
    torch.testing.assert_close(ours(x, None, batch)[0], expected, atol=1e-5, rtol=1e-4)


def test_equal_maxima_share_the_gradient():
    edges = toys.toy_batch(toys.toy_schema()).edges
    values = torch.zeros(edges.num_edges, 1, requires_grad=True)
    top = max_to_target(values, edges)
    assert not top.any()
    top.sum().backward()
    degree = edges.target_ptr.diff()[edges.target]
    torch.testing.assert_close(values.grad[:, 0], 1.0 / degree)
