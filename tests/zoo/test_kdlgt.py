"""KDLGT: linear attention equals its quadratic form and tends to softmax."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gradformer.attention import Layout, decay_attention
from gradformer.structure.distance import hop_distances
from gradformer.zoo.anchors import anchor_distances
from gradformer.zoo.kdlgt import Where
from gradformer.zoo.linear_attention import Places, key_features, linear_attention, query_features
from tests.zoo import toys

CASES = [
    {"positions": "product", "hops": 2},
    {"positions": "anchors", "hops": 0},
    {"positions": "none", "hops": 1},
]
SIZES = [5, 1, 8]


def quadratic(query, key, value, layout):
    """The definition: explicit n × n weights."""
    out = torch.zeros_like(value)
    for a, b in zip(layout.node_ptr[:-1].tolist(), layout.node_ptr[1:].tolist()):
        weight = torch.einsum("ihf,jhf->hij", query[a:b], key[a:b])
        weight = weight / weight.sum(dim=2, keepdim=True)
        out[a:b] = torch.einsum("hij,jhd->ihd", weight, value[a:b])
    return out


@pytest.mark.parametrize("options", CASES)
def test_linear_form_equals_quadratic_form(options):
    model = toys.make("kdlgt", **options).double().eval()
    batch = toys.toy_batch(model.schema)
    attention = model.layers[0].attention
    z = torch.randn(batch.num_nodes, 32, dtype=torch.float64)
    position, anchors = model.position.raw(batch), model.anchors(batch)
    places = Places.of(batch.layout)
    query, key = attention.features(z, Where(batch, places, position, anchors))
    value = torch.randn(batch.num_nodes, 2, 16, dtype=torch.float64)
    query, key, value = inputs = [t.detach().requires_grad_() for t in (query, key, value)]
    linear = linear_attention(query, key, value, places)
    expected = quadratic(query, key, value, batch.layout)
    torch.testing.assert_close(linear, expected, atol=1e-10, rtol=1e-10)
    weight = torch.randn_like(linear)
    for ours, theirs in zip(*(torch.autograd.grad(y, inputs, weight) for y in (linear, expected))):
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-10)
    single = linear_attention(query.float(), key.float(), value.float(), places)
    torch.testing.assert_close(single.double(), expected, atol=1e-6, rtol=1e-6)


def test_error_against_softmax_falls_like_the_root_of_features():
    torch.manual_seed(0)
    layout = Layout.from_sizes(SIZES)
    q, k, v = (torch.randn(sum(SIZES), 2, 4, dtype=torch.float64) for _ in range(3))
    q, k = 0.5 * q, 0.5 * k  # the variance grows like exp(|x + y|²)
    distance = torch.zeros(sum(n * n for n in SIZES), dtype=torch.uint8)
    exact = decay_attention(q, k, v, layout, distance, None, None)
    x, y = q * 4**-0.25, k * 4**-0.25

    def error(features: int) -> float:
        found = []
        for _ in range(40):
            w = torch.randn(2, features, 4, dtype=torch.float64)
            near = linear_attention(
                query_features(x, w), key_features(y, w, layout), v, Places.of(layout)
            )
            found.append((near - exact).square().mean())
        return float(torch.stack(found).mean().sqrt())

    order = math.log(error(64) / error(4096)) / math.log(64)
    assert 0.4 < order < 0.6, order


def test_product_positions_add_to_the_score():
    """E φ(x)·φ(y) = exp(q·k/√d + p·r) with p and r concatenated."""
    model = toys.make("kdlgt", **CASES[0]).double()
    model.layers[0].attention.directions = torch.randn(2, 50_000, 20, dtype=torch.float64)
    batch = toys.toy_batch(model.schema)
    attention = model.layers[0].attention
    with torch.no_grad():
        z = 0.5 * torch.randn(batch.num_nodes, 32, dtype=torch.float64)
        position = 0.5 * torch.randn(batch.num_nodes, toys.STEPS, dtype=torch.float64)
        query, key = attention.features(z, Where(batch, Places.of(batch.layout), position, None))
        rows = slice(0, toys.SIZES[0])
        weight = torch.einsum("ihf,jhf->hij", query[rows], key[rows])
        weight = weight / weight.sum(2, keepdim=True)
        q, k = (m(z[rows]).view(-1, 2, 16) for m in (attention.query, attention.key))
        p, r = (t[rows] for t in attention.product(position))
        score = torch.einsum("ihd,jhd->hij", q, k) / 4 + torch.einsum("ihd,jhd->hij", p, r)
    torch.testing.assert_close(weight, score.softmax(dim=2), atol=0.02, rtol=0.0)


def test_anchor_factors_multiply_out():
    model = toys.make("kdlgt", **CASES[1])
    anchor = model.layers[0].attention.anchor
    distance = torch.tensor([[0, 2, 255], [1, 1, 255]], dtype=torch.uint8)
    left, right = anchor(distance)
    f, c = anchor.table[0], anchor.floor[0]
    assert (f[:3].tolist(), c.item()) == ([0.0, -0.5, -1.0], -2.0)  # at first the near weigh more
    product = (left[0, 0] * right[1, 0]).sum()
    torch.testing.assert_close(product, c.exp() + (f[0] + f[1]).exp() + (f[2] + f[1]).exp())


def test_anchor_distances_are_hops_to_the_busiest_nodes():
    arrays = toys.toy_graphs(toys.toy_schema())
    graphs = (arrays.node_ptr, arrays.edge_ptr, arrays.edge_index)
    seen: list[int] = []
    found, hops = anchor_distances(*graphs, 3, seen.append), hop_distances(*graphs)
    assert sum(seen) == len(toys.SIZES)
    start = 0
    for graph, n in enumerate(toys.SIZES):
        square = hops[start : start + n * n].reshape(n, n)
        start += n * n
        mine = found[arrays.node_ptr[graph] : arrays.node_ptr[graph + 1]]
        degree = (square == 1).sum(axis=1)
        chosen = [int(np.flatnonzero(mine[:, a] == 0)[0]) for a in range(min(n, 3))]
        assert sorted(degree[chosen]) == sorted(degree)[-len(chosen) :]
        assert np.array_equal(mine[:, : len(chosen)], square[:, chosen])
        assert (mine[:, len(chosen) :] == 255).all()
