"""Token rows: the larger layout, rows and pairs carried over, padded like unpadded."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gradformer.attention import Layout, decay_attention
from gradformer.zoo.all_pairs import Pairs
from gradformer.zoo.complete_graph import complete_edges
from gradformer.zoo.tokens import TOKEN, add_tokens

SIZES = [3, 1, 4]


def padded_layout() -> Layout:
    """The same graphs with an empty slot in the middle and spare rows at the end."""
    node_ptr = torch.tensor([0, 3, 4, 4, 8], dtype=torch.int32)
    ids = torch.tensor([0, 1, -1, 2], dtype=torch.int32)
    return Layout(node_ptr, torch.tensor([0, 9, 0, 10]), ids, 12, 6, padded=True)


def test_pairs_follow_the_packed_order():
    layout = Layout.from_sizes(SIZES)
    pairs = Pairs.of(layout)
    expected = [(i, j) for g in ([0, 1, 2], [3], [4, 5, 6, 7]) for i in g for j in g]
    assert list(zip(pairs.query.tolist(), pairs.key.tolist())) == expected
    assert pairs.place.tolist() == list(range(26))
    padded = Pairs.of(padded_layout())
    assert padded.rows.mask.sum() == 26
    for name in ("query", "key", "place"):
        assert torch.equal(getattr(padded, name)[:26], getattr(pairs, name))


def test_pairs_of_a_padded_layout_are_no_more_than_it_promises():
    bound = replace(padded_layout(), most_pairs=26)
    pairs = Pairs.of(bound)
    assert pairs.rows.mask.all()
    assert torch.equal(pairs.place, Pairs.of(Layout.from_sizes(SIZES)).place)
    assert complete_edges(bound).num_edges == 26  # 18 real ones
    tokens = add_tokens(bound, 2, first=True)
    assert tokens.pairs.rows.mask.sum() == 25 + 9 + 36
    assert len(tokens.pairs.query) == 26 + 2 * 2 * 12 + 4 * 4 < tokens.layout.capacity * 8


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_rows_survive_the_round_trip(first, padded):
    layout = padded_layout() if padded else Layout.from_sizes(SIZES)
    tokens = add_tokens(layout, 2, first=first)
    x = torch.randn(layout.capacity, 5)
    x[8:] = 0.0
    t = torch.randn(layout.num_graphs * 2, 5)
    rows = tokens.pack(x, t)
    assert torch.equal(tokens.of_nodes(rows), x)
    real = torch.ones(len(t), dtype=torch.bool) if not padded else tokens.real.flatten()
    assert torch.equal(tokens.of_tokens(rows), torch.where(real[:, None], t, 0.0))
    assert real.sum() == 6
    graph = torch.cat([t[:2], x[:3]]) if first else torch.cat([x[:3], t[:2]])
    assert torch.equal(rows[:5], graph)


def test_counts_give_each_graph_its_own_number():
    layout = Layout.from_sizes(SIZES)
    tokens = add_tokens(layout, 2, counts=torch.tensor([0, 2, 1]), first=False)
    x, t = torch.arange(8.0)[:, None], 10 + torch.arange(6.0)[:, None]
    rows = tokens.pack(x, t)[:, 0].tolist()
    assert rows[:11] == [0, 1, 2, 3, 12, 13, 4, 5, 6, 7, 14]
    assert rows[11:] == [0.0] * 3
    assert tokens.of_tokens(tokens.pack(x, t))[:, 0].tolist() == [0, 0, 12, 13, 14, 0]


def test_bytes_and_pair_values():
    layout = Layout.from_sizes([2, 1])
    distance = torch.tensor([0, 254, 1, 0, 0], dtype=torch.uint8)
    tokens = add_tokens(layout, first=True)
    t = TOKEN
    expected = [t, t, t, t, 0, 253, t, 1, 0, t, t, t, 0]
    assert tokens.distance(distance).tolist() == expected
    values, pairs = torch.arange(5.0)[:, None], Pairs.of(layout)
    carried = tokens.pack_pairs(values, pairs, torch.tensor([[-1.0]]))[:, 0].tolist()
    assert carried == [-1, -1, -1, -1, 0, 1, -1, 2, 3, -1, -1, -1, 4]
    assert tokens.pack_pairs(values, pairs)[:, 0].tolist() == [max(v, 0) for v in carried]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_gradients_of_pair_values_find_their_way_back(first, padded):
    layout = padded_layout() if padded else Layout.from_sizes(SIZES)
    tokens, pairs = add_tokens(layout, 2, first=first), Pairs.of(layout)
    values = torch.randn(len(pairs.query), 3, requires_grad=True)
    packed = tokens.pack_pairs(values, pairs)
    weight = torch.randn_like(packed)
    (packed * weight).sum().backward()
    graph, place = tokens.node_pair
    at = (layout.packed_ptr[graph] + place)[tokens.among_nodes]
    assert sorted(at.tolist()) == list(range(26))
    assert torch.equal(packed[tokens.among_nodes], values[at])
    assert torch.equal(values.grad[at], weight[tokens.among_nodes])
    assert not values.grad[26:].any()


def test_attention_with_a_token_is_the_same_when_padded():
    torch.manual_seed(0)
    table = torch.randn(2, 256)
    distance = torch.randint(0, 6, (26,), dtype=torch.uint8)
    values, x = torch.randn(26, 2), torch.randn(8, 2, 4)

    def attend(layout: Layout) -> torch.Tensor:
        tokens = add_tokens(layout, first=False)
        nodes = torch.zeros(layout.capacity, 8)
        nodes[:8] = x.flatten(1)
        rows = tokens.pack(nodes, torch.ones(layout.num_graphs, 8)).view(-1, 2, 4)
        pairs = Pairs.of(layout)
        padding = (0, 0, 0, len(pairs.query) - len(values))
        bias = tokens.pack_pairs(torch.nn.functional.pad(values, padding), pairs)
        bytes_ = tokens.distance(distance)
        y = decay_attention(rows, rows, rows, tokens.layout, bytes_, None, table, bias=bias)
        return tokens.of_nodes(y.flatten(1))[:8]

    assert torch.allclose(attend(Layout.from_sizes(SIZES)), attend(padded_layout()), atol=1e-6)


def test_one_dense_group_is_the_same_attention():
    """What a padded batch on a device does instead of reading sizes back."""
    torch.manual_seed(0)
    layout, dense = padded_layout(), padded_layout()
    dense.__dict__["groups"] = [dense.whole]
    x, bias = torch.randn(12, 2, 4), torch.randn(26, 2)
    bias = torch.nn.functional.pad(bias, (0, 0, 0, 46))
    distance = torch.randint(0, 6, (26,), dtype=torch.uint8)
    found = []
    for one in (layout, dense):
        rows = x.clone().requires_grad_()
        y = decay_attention(rows, rows, rows, one, distance, None, None, bias=bias)
        y.square().sum().backward()
        found.append((y, rows.grad))
    torch.testing.assert_close(found[1], found[0])
    assert not found[0][0][8:].any()
