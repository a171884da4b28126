"""The feed-forward block in one kernel each way against its two plain maps."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gradformer.attention import Layout, use_engine
from gradformer.errors import ConfigError
from gradformer.graphs.batch import Batch, sort_edges
from gradformer.model import layer
from gradformer.model.layer import FeedForward
from gradformer.training.weights import Weights

pytest.importorskip("triton")


@pytest.fixture(autouse=True)
def whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """One kernel for a few rows too."""
    monkeypatch.setattr(layer, "FEW_ROWS", 0)


def _random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _batch(rows: int, device: str) -> Batch:
    layout = Layout.from_sizes([rows], device=device)
    edges, _ = sort_edges(torch.zeros(2, 0, dtype=torch.int64, device=device), layout)
    return Batch(layout, edges).with_seed(torch.tensor([3, 5], device=device), 2)


def _block(width: int, inner: int, p: float, device: str) -> FeedForward:
    block = FeedForward(width, p, inner)
    for seed, parameter in enumerate(block.parameters()):
        parameter.data = 0.3 * _random(*parameter.shape, seed=seed)
    block.inner_dropout.site = 1
    return block.to(device)


def _run(engine: str, kind: torch.dtype, block: FeedForward, rows: int) -> list[Tensor]:
    """Output and all gradients, where x is also used on its own afterwards."""
    device, width = str(block.first.weight.device), block.second.out_features
    block = block.to(kind)
    x, g, later = (_random(rows, width, seed=n).to(device, kind) for n in (7, 8, 9))
    x.requires_grad_()
    with use_engine(engine):
        y, again = block.pass_on(x, _batch(rows, device))
    found = torch.autograd.grad([y, again], [x, *block.parameters()], [g, later], retain_graph=True)
    only_passed = torch.autograd.grad(again, x, later)
    return [y.detach(), *found, *only_passed]


@pytest.mark.parametrize(
    ("rows", "width", "inner", "p"), [(70, 20, 40, 0.3), (140, 6, 20, 0.0), (1, 16, 32, 0.0)]
)
def test_matches_the_plain_maps(rows, width, inner, p, device, monkeypatch):
    block = _block(width, inner, p, device)
    ours, again = (_run("fused", torch.float32, block, rows) for _ in range(2))
    monkeypatch.setattr(layer, "FUSED_WIDTH", 0)  # a kernel for each map
    apart = _run("fused", torch.float32, block, rows)
    plain = _run("reference", torch.float64, block, rows)
    for a, same, b, c in zip(ours, again, apart, plain):
        torch.testing.assert_close(a.double(), c, rtol=1e-5, atol=2e-5)
        torch.testing.assert_close(a, b, rtol=1e-5, atol=2e-5)
        assert torch.equal(a, same)


def test_gradients_in_pieces(device):
    block = _block(6, 12, 0.3, device)
    weights, x, found = Weights(block), _random(140, 6, seed=7).to(device), []
    for collect in (False, True):
        with use_engine("fused"), weights.collecting() as pieces:
            if not collect:
                pieces._places = {}
            y, _ = block.pass_on(x, _batch(140, device))
            assert y.grad_fn is not None
            assert "FeedForward" in y.grad_fn.name()
            grads = torch.autograd.grad(y.square().sum(), weights.parameters, allow_unused=True)
        weights.set_grad(grads, pieces)
        assert all((grad is None) == collect for grad in grads)
        found.append(weights.grad.clone())
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-4)  # of sums of squares


def test_refuses_a_second_derivative(device):
    x = torch.randn(3, 4, device=device, requires_grad=True)
    with use_engine("fused"):
        y, _ = _block(4, 8, 0.0, device).pass_on(x, _batch(3, device))
    (dx,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(ConfigError, match="reference engine"):
        dx.sum().backward()
