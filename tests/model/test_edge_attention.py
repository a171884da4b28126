"""Attention along edges: kernels against the plain forms in float64, and those against loops."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gradformer.attention import use_engine
from gradformer.attention.availability import runs_kernels
from gradformer.errors import ConfigError
from gradformer.model.edge_attention import (
    head_products,
    softmax_to_target,
    softmax_with_own,
    weighted_sum,
)
from tests.model.messages import graphs, states, weighted

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("on_the_device")

SHAPES = [  # heads, channels of each, padding, few edges
    (1, 1, None, True),
    (8, 6, (3, 40), False),
    (3, 22, (0, 7), True),
    (1, 70, (2, 9), True),
]
shapes = pytest.mark.parametrize(("heads", "d", "padding", "few"), SHAPES)


def same(function: Callable[..., Tensor], given: tuple[Tensor, ...], twice: bool) -> None:
    """Outputs and derivatives of the kernels in float32 and of the plain code in float64."""

    def outcome(engine: str, dtype: torch.dtype) -> list[Tensor]:
        leaves = [t.detach().to(dtype).requires_grad_() for t in given]
        with use_engine(engine):
            assert runs_kernels(leaves[0]) == (engine == "fused")
            y = function(*leaves)
            first = torch.autograd.grad(weighted(y.square()), leaves, create_graph=twice)
            found = [y, *first]
            if twice:
                found += torch.autograd.grad(sum(map(weighted, first)), leaves)  # type: ignore[arg-type]
        return [t.detach().double() for t in found]

    fused, plain = outcome("fused", torch.float32), outcome("reference", torch.float64)
    for found, want in zip(fused, plain, strict=True):
        torch.testing.assert_close(
            found, want, rtol=1e-5, atol=2e-6 * max(1.0, float(want.abs().max()))
        )


@shapes
def test_products_of_heads(heads: int, d: int, padding: tuple[int, int] | None, few: bool) -> None:
    batch = graphs(padding, few)
    x, y = states(batch, heads * d)[0], states(batch, heads * d, seed=1)[0]

    def function(x: Tensor, y: Tensor) -> Tensor:
        return batch.edges.rows.zero_padding(head_products(x, y, batch.edges, heads))

    same(function, (x, y), twice=True)


@shapes
def test_weighted_sums(heads: int, d: int, padding: tuple[int, int] | None, few: bool) -> None:
    batch = graphs(padding, few)
    (x, _), (_, weight) = states(batch, heads * d), states(batch, heads)
    same(lambda weight, x: weighted_sum(weight, x, batch.edges), (weight, x), twice=True)


@shapes
def test_softmax(heads: int, d: int, padding: tuple[int, int] | None, few: bool) -> None:
    batch = graphs(padding, few)
    own, score = states(batch, heads)
    same(lambda score: softmax_to_target(score, batch.edges), (3.0 * score,), twice=False)

    def with_own(score: Tensor, own: Tensor) -> Tensor:
        weight, own_weight = softmax_with_own(score, own, batch.edges)
        return torch.cat([batch.edges.rows.zero_padding(weight), own_weight])

    same(with_own, (3.0 * score, 3.0 * own), twice=False)


def test_the_plain_forms_are_their_definitions() -> None:
    batch, heads = graphs(), 2
    (x, _), (y, _), (own, score) = states(batch, 6), states(batch, 6, seed=1), states(batch, heads)
    source, target = batch.edges.edge_index.tolist()
    with use_engine("reference"):
        weight, own_weight = softmax_with_own(score, own, batch.edges)
        alone = softmax_to_target(score, batch.edges)
        products = head_products(x, y, batch.edges, heads)
        sums = weighted_sum(score, x, batch.edges)
    for node in range(batch.num_nodes):
        mine = [k for k, t in enumerate(target) if t == node]
        total = sum((score[k].repeat_interleave(3) * x[source[k]] for k in mine), torch.zeros(6))
        torch.testing.assert_close(sums[node], total)
        for k in mine:
            want = (x[node] * y[source[k]]).view(heads, 3).sum(1)
            torch.testing.assert_close(products[k], want)
        torch.testing.assert_close(alone[mine], score[mine].softmax(0))
        both = torch.cat([score[mine], own[node : node + 1]]).softmax(0)
        torch.testing.assert_close(torch.cat([weight[mine], own_weight[node : node + 1]]), both)


def test_autocast_keeps_scores_and_weights_in_float32() -> None:
    """As torch's own sums and exponentials do on a GPU."""
    batch = graphs((1, 5), few=True)
    x, score = (t.bfloat16().requires_grad_() for t in states(batch, 4))
    with use_engine("fused"), torch.autocast(x.device.type, torch.bfloat16):
        products = head_products(x, x, batch.edges, 2)
        weight, own = softmax_with_own(score, x, batch.edges)
        (products.sum() + weight.square().sum() + own.sum()).backward()
    assert products.dtype == weight.dtype == own.dtype == torch.float32
    assert x.grad.dtype == score.grad.dtype == torch.bfloat16


@pytest.mark.parametrize("engine", ["fused", "reference"])
def test_short_floats_are_summed_in_float32(engine: str) -> None:
    batch = graphs()
    x, weight = (t.bfloat16().requires_grad_() for t in states(batch, 4))
    with use_engine(engine):
        score = head_products(x, x, batch.edges, 2)
        y = weighted_sum(weight[:, :2], x, batch.edges)
        (score.sum() + y.sum()).backward()
    assert score.dtype == y.dtype == x.grad.dtype == weight.grad.dtype == torch.bfloat16
    if engine == "fused":  # the hub sums 100 messages: rounding each would show
        want = weighted_sum(weight[:, :2].double(), x.double(), batch.edges)
        torch.testing.assert_close(y, want.bfloat16(), rtol=2**-8, atol=1e-2)


def test_a_score_of_minus_infinity_has_no_weight() -> None:
    batch = graphs(few=True)
    score = states(batch, 2)[1]
    hub = batch.edges.target_ptr[1]
    score[hub] = -torch.inf
    with use_engine("fused"):
        weight = softmax_to_target(score.requires_grad_(), batch.edges)
        (slope,) = torch.autograd.grad(weighted(weight), score)
    assert not weight[hub].any()
    assert slope.isfinite().all()


def test_graphs_without_edges() -> None:
    batch = graphs(few=True)
    none = type(batch.edges)(
        *(t[:0] for t in (batch.edges.source, batch.edges.target)),
        torch.zeros_like(batch.edges.target_ptr),
        batch.edges.by_source[:0],
        torch.zeros_like(batch.edges.source_ptr),
        batch.edges.rows,
    )
    own = states(batch, 2)[0].requires_grad_()
    with use_engine("fused"):
        assert head_products(own, own, none, 2).shape == (0, 2)
        weight, own_weight = softmax_with_own(own[:0], own, none)
        assert not weighted_sum(weight, own, none).any()
        (slope,) = torch.autograd.grad(own_weight.sum(), own)
    assert torch.equal(own_weight, torch.ones_like(own))
    assert not slope.any()


def test_second_derivatives_of_the_softmax_are_refused() -> None:
    batch = graphs(few=True)
    score = states(batch, 2)[1].requires_grad_()
    with use_engine("fused"):
        y = softmax_to_target(score, batch.edges)
    (first,) = torch.autograd.grad(y.square().sum(), score, create_graph=True)
    with pytest.raises(ConfigError, match="reference"):
        torch.autograd.grad(first.sum(), score)
