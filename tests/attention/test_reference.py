"""The reference engine: held to torch's own attention, to formulas, to numerical derivatives."""

from __future__ import annotations

import math
from dataclasses import replace

import networkx as nx
import pytest
import torch
from torch import Tensor, nn

from gradformer.attention import Decay, Layout, Table, decay_attention
from gradformer.errors import InputError
from tests.attention.problems import random_problem, solve

SIZES = (5, 1, 9, 3)


def hops(graph: nx.Graph) -> Tensor:
    """Distance bytes of one graph, [n²]."""
    far = dict(nx.all_pairs_shortest_path_length(graph))
    return torch.tensor([far[i].get(j, 255) for i in graph for j in graph], dtype=torch.uint8)


def split(problem_layout: Layout, x: Tensor) -> list[Tensor]:
    return list(x.split(problem_layout.node_ptr.diff().tolist()))


@pytest.mark.parametrize("width", [1, 3, 5, 16])
@pytest.mark.parametrize("on", ["logit", "weight"])
def test_without_decay_it_is_softmax_attention(width: int, on: str) -> None:
    problem = random_problem(SIZES, heads=3, width=width)
    found = solve(problem, Decay(3, decay=1.0, on=on), "reference", torch.float64)["out"]
    parts = zip(*(split(problem.layout, t) for t in (problem.q, problem.k, problem.v)))
    expected = [
        nn.functional.scaled_dot_product_attention(*(t.transpose(0, 1) for t in part)).transpose(
            0, 1
        )
        for part in parts
    ]
    torch.testing.assert_close(found, torch.cat(expected))


def test_values_may_have_another_width() -> None:
    p = random_problem(SIZES, width=4)
    v = torch.randn(p.layout.capacity, 2, 7, dtype=torch.float64)
    out = decay_attention(p.q, p.k, v, p.layout, p.distance, None, None)
    pieces = [
        decay_attention(p.q, p.k, part, p.layout, p.distance, None, None)
        for part in (v[..., :4], v[..., 4:])
    ]
    torch.testing.assert_close(out, torch.cat(pieces, dim=-1))


@pytest.mark.parametrize("on", ["weight", "logit"])
def test_no_decay_beyond_the_start_is_message_passing_only_on_the_weight(on: str) -> None:
    """λ = 0, sp = 1: on the weight, far pairs take no part; on the logit they share exp(0)/Z."""
    graph = nx.disjoint_union(nx.path_graph(5), nx.cycle_graph(4))  # unreachable pairs too
    layout, distance = Layout.from_sizes([9]), hops(graph)
    q, k, v = torch.randn(3, 9, 2, 3, dtype=torch.float64)
    (tables,) = Decay(2, decay=0.0, start=1.0, on=on)()
    _, weight = decay_attention(
        q, k, v, layout, distance, tables.mul, tables.add, return_weights=True
    )
    weight = weight.view(9, 9, 2)
    score = torch.einsum("ihd,jhd->ijh", q, k) / math.sqrt(3)
    near = (distance.view(9, 9) <= 1)[..., None]
    if on == "weight":
        expected = score.masked_fill(~near, -math.inf).softmax(dim=1)
        assert torch.equal(weight == 0.0, ~near.expand_as(weight))
    else:
        raised = torch.where(near, score, 0.0).exp()
        total = raised.sum(dim=1, keepdim=True)
        expected = raised / total
        shared = (1.0 / total).expand_as(weight)
        torch.testing.assert_close(weight[~near[..., 0]], shared[~near[..., 0]])
    torch.testing.assert_close(weight, expected)


def test_a_row_at_minus_infinity_gives_zeros_and_zero_gradients() -> None:
    layout = Layout.from_sizes([3, 1])
    distance = torch.tensor([0, 1, 2, 255, 255, 255, 1, 0, 255, 255], dtype=torch.uint8)
    add = torch.zeros(1, 256, dtype=torch.float64)
    add[:, 255] = -math.inf
    q, k, v = (torch.randn(4, 1, 3, dtype=torch.float64, requires_grad=True) for _ in range(3))
    add.requires_grad_()
    out, weight = decay_attention(q, k, v, layout, distance, None, add, return_weights=True)
    assert torch.equal(out[[1, 3]], torch.zeros(2, 1, 3, dtype=torch.float64))
    out.square().sum().backward()
    for tensor in (q, k, v, add):
        assert tensor.grad is not None
        assert torch.isfinite(tensor.grad).all()
    assert q.grad is not None
    assert q.grad[[1, 3]].abs().sum() == 0.0
    assert q.grad[[0, 2]].abs().sum() > 0.0
    torch.testing.assert_close(weight[[3, 4, 5, 9]], torch.zeros(4, 1, dtype=torch.float64))


def test_weights_of_every_row_sum_to_one() -> None:
    p = random_problem(SIZES, heads=3, width=5)
    (tables,) = Decay(3, decay=0.5, learn_decay=True, profile=True)()
    _, weight = decay_attention(
        p.q, p.k, p.v, p.layout, p.distance, tables.mul, tables.add, return_weights=True
    )
    assert weight.shape == (sum(n * n for n in SIZES), 3)
    for part, n in zip(weight.split([n * n for n in SIZES]), SIZES):
        torch.testing.assert_close(part.view(n, n, 3).sum(1), torch.ones(n, 3).double())


def test_a_single_node_and_an_edgeless_graph() -> None:
    layout = Layout.from_sizes([1, 3])
    distance = torch.tensor([0, 0, 255, 255, 255, 0, 255, 255, 255, 0], dtype=torch.uint8)
    (tables,) = Decay(2, decay=0.5, unreachable="blocked")()
    q, k, v = torch.randn(3, 4, 2, 3)
    out = decay_attention(q, k, v, layout, distance, tables.mul, tables.add)
    torch.testing.assert_close(out, v)  # every node sees itself alone


def test_no_graphs_at_all() -> None:
    layout = Layout.from_sizes([])
    q = torch.zeros(0, 2, 3)
    out = decay_attention(q, q, q, layout, torch.zeros(0, dtype=torch.uint8), None, None)
    assert out.shape == (0, 2, 3)


def test_graphs_of_no_nodes_change_nothing() -> None:
    p = random_problem((5, 0, 3, 0))
    q = random_problem((5, 3))
    assert torch.equal(p.q, q.q)
    a = decay_attention(p.q, p.k, p.v, p.layout, p.distance, None, None)
    b = decay_attention(q.q, q.k, q.v, q.layout, q.distance, None, None)
    assert torch.equal(a, b)


def test_distances_may_lie_in_a_larger_array_in_any_order() -> None:
    """A bias and the returned weights keep the order of the batch."""
    p = random_problem(SIZES)
    (tables,) = Decay(2, decay=0.5)()
    bias = torch.randn(len(p.distance), 2)

    def attend(layout: Layout, distance: Tensor) -> tuple[Tensor, Tensor]:
        return decay_attention(
            p.q, p.k, p.v, layout, distance, tables.mul, tables.add, bias=bias, return_weights=True
        )

    blocks = p.distance.split([n * n for n in SIZES])
    filler = torch.full((11,), 77, dtype=torch.uint8)
    pieces, starts, place = [filler], [0] * len(SIZES), len(filler)
    for graph in (2, 0, 3, 1):
        starts[graph] = place
        pieces += [blocks[graph], filler]
        place += len(blocks[graph]) + len(filler)
    layout = replace(p.layout, pair_ptr=torch.tensor(starts))
    expected = attend(p.layout, p.distance)
    found = attend(layout, torch.cat(pieces))
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_padding_changes_nothing_and_comes_out_as_zero(dropout: float) -> None:
    p = random_problem(SIZES)
    seed = torch.tensor([1, 2, 3])
    (tables,) = Decay(2, decay=0.5)()
    args = (p.distance, tables.mul, tables.add)
    plain = decay_attention(p.q, p.k, p.v, p.layout, *args, dropout=dropout, seed=seed)
    last = p.layout.node_ptr[-1:]
    layout = Layout(
        torch.cat([p.layout.node_ptr, last, last]),  # two empty slots
        torch.cat([p.layout.pair_ptr, torch.zeros(2, dtype=torch.int64)]),
        torch.cat([p.layout.graph_id, torch.tensor([-1, -1])]),
        capacity=p.layout.capacity + 6,
        largest=12,
        padded=True,
    )
    junk = torch.full((6, 2, 4), torch.nan, dtype=torch.float64)
    q, k, v = (torch.cat([t, junk]).requires_grad_() for t in (p.q, p.k, p.v))
    out = decay_attention(q, k, v, layout, *args, dropout=dropout, seed=seed)
    assert torch.equal(out[:-6], plain)
    assert torch.equal(out[-6:], torch.zeros_like(out[-6:]))
    out.sum().backward()
    for tensor in (q, k, v):
        assert tensor.grad is not None
        assert torch.isfinite(tensor.grad).all()
        assert tensor.grad[-6:].abs().sum() == 0.0


def test_a_bias_is_a_table_looked_up_by_hand() -> None:
    p = random_problem(SIZES)
    add = torch.randn(2, 256, dtype=torch.float64)
    by_table = decay_attention(p.q, p.k, p.v, p.layout, p.distance, None, add)
    bias = add[:, p.distance.long()].T
    by_bias = decay_attention(p.q, p.k, p.v, p.layout, p.distance, None, None, bias=bias)
    torch.testing.assert_close(by_bias, by_table)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_lower_precision_is_close(dtype: torch.dtype) -> None:
    problem = random_problem(SIZES, width=8)
    decay = Decay(2, decay=0.5, learn_decay=True)
    expected = solve(problem, decay, "reference", torch.float64, dropout=0.2)
    found = solve(problem, decay, "reference", dtype, dropout=0.2)
    allowed = 40 * torch.finfo(dtype).eps
    for name, value in expected.items():
        error = (found[name].double() - value).norm() / value.norm()
        assert error < allowed, f"{name}: {error:.1e}"


def test_the_mean_over_dropout_draws_is_the_output_without_dropout() -> None:
    p = random_problem((6,), heads=1)
    plain = decay_attention(p.q, p.k, p.v, p.layout, p.distance, None, None)
    draws = [
        decay_attention(
            p.q, p.k, p.v, p.layout, p.distance, None, None,
            dropout=0.5, seed=torch.tensor([0, step, 0]),
        )
        for step in range(1000)
    ]  # fmt: skip
    torch.testing.assert_close(torch.stack(draws).mean(0), plain, atol=0.1, rtol=0.0)


def test_bad_arguments_are_named() -> None:
    p = random_problem((3, 2))
    good = {
        "q": p.q, "k": p.k, "v": p.v, "layout": p.layout, "distance": p.distance,
        "mul": None, "add": None,
    }  # fmt: skip
    elsewhere = Table(torch.ones(2, 256), torch.ones(2, 1, device="meta"), torch.ones(1, 2, 256))
    shorter = replace(Layout.from_sizes((3, 1)), capacity=5)  # a row behind the last graph
    wrong = [
        ("q, k, v", {"k": p.k[:, :1]}),
        ("q, k, v", {"v": p.v.float()}),
        ("q, k, v", {name: getattr(p, name).long() for name in "qkv"}),
        ("q", {name: getattr(p, name)[:4] for name in "qkv"}),
        ("distance", {"distance": p.distance.long()}),
        ("distance", {"distance": p.distance[:-1]}),
        ("mul", {"mul": torch.ones(3, 256)}),
        ("add", {"add": torch.ones(2, 255)}),
        ("bias", {"bias": torch.zeros(13, 3)}),
        ("bias", {"bias": torch.zeros(12, 2)}),
        ("seed", {"dropout": 0.5}),
        ("seed", {"dropout": 0.5, "seed": torch.tensor([1, 2])}),
        ("seed", {"dropout": 0.5, "seed": torch.tensor([1.0, 2.0, 3.0])}),
        ("seed", {"dropout": 0.5, "seed": torch.zeros(3, device="meta", dtype=torch.int64)}),
        ("mul", {"mul": torch.ones(2, 256, device="meta")}),
        ("mul", {"mul": elsewhere}),
        ("q", {"q": None}),
        ("layout", {"layout": shorter}),
        ("distance, layout", {"distance": p.distance.to("meta")}),
        ("dropout", {"dropout": 1.0, "seed": torch.tensor([1, 2, 3])}),
        ("dropout", {"dropout": -0.1, "seed": torch.tensor([1, 2, 3])}),
    ]
    for argument, change in wrong:
        with pytest.raises(ValueError, match=rf"^{argument}: "):
            decay_attention(**(good | change))


def test_layouts_refuse_what_they_cannot_hold() -> None:
    with pytest.raises(InputError, match=r"^sizes: "):
        Layout.from_sizes([3, -1])
    with pytest.raises(InputError, match=r"^sizes: .* got torch.float32 \[2\]"):
        Layout.from_sizes([2.5, 3.0])  # type: ignore[list-item]
    with pytest.raises(InputError, match=r"^batch: "):
        Layout.from_batch(torch.tensor([0, 1, 0]))
    with pytest.raises(InputError, match=r"^batch: "):
        Layout.from_batch(torch.tensor([-1, 0]))
    with pytest.raises(InputError, match=r"^batch: "):
        Layout.from_batch(torch.tensor([0.0, 1.0]))
    for batch in (torch.zeros(2, 2, dtype=torch.long), torch.tensor([0j, 1j])):
        with pytest.raises(InputError, match="expected integers"):
            Layout.from_batch(batch)
    assert Layout.from_batch(torch.tensor([0, 0, 2])).node_ptr.tolist() == [0, 2, 2, 3]
    assert Layout.from_batch(torch.empty(0, dtype=torch.long)).num_graphs == 0
    assert Layout.from_batch(torch.tensor([0, 0, 2]), 4).node_ptr.tolist() == [0, 2, 2, 3, 3]


def test_a_padded_layout_bounds_its_pairs_without_counting_them() -> None:
    layout = Layout.from_sizes([3, 1])
    assert layout.pair_capacity == 10
    padded = replace(layout, padded=True, capacity=8)
    bounds = [replace(padded, most_pairs=most).pair_capacity for most in (None, 12, 99)]
    assert bounds == [24, 12, 24]
