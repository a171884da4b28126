"""The fused linear map against the plain one: outputs and all gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gradformer.attention import Layout, use_engine
from gradformer.errors import ConfigError
from gradformer.model.maps import linear, linear_and_input, linear_pair
from gradformer.model.parts import Draw

pytest.importorskip("triton")


def _random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _draw(rows: int, p: float, device: str) -> Draw | None:
    layout = Layout.from_sizes([rows], torch.tensor([9]), device)
    return Draw(p, layout.rows, torch.tensor([3, 5, 7], device=device)) if p else None


def _run(
    engine: str, kind: torch.dtype, rows: int, width: int, out: int, relu: bool, bias: bool,
    p: float, device: str,
) -> list[Tensor]:  # fmt: skip
    """Output and gradients of x, W, b, where x is also used on its own afterwards."""
    layer = nn.Linear(width, out, bias=bias)
    for seed, parameter in enumerate(layer.parameters()):
        parameter.data = _random(*parameter.shape, seed=seed)
    layer = layer.to(device, kind)
    x = _random(rows, width, seed=2).to(device, kind).requires_grad_()
    g, later = (_random(rows, n, seed=n).to(device, kind) for n in (out, width))
    with use_engine(engine):
        y, again = linear_and_input(x, layer, relu, draw=_draw(rows, p, device))
        total = (y * g).sum() + (again * later).sum()
    return [y.detach(), *torch.autograd.grad(total, [x, *layer.parameters()])]


@pytest.mark.parametrize(
    ("rows", "width", "out", "relu", "bias", "p"),
    [
        (1, 4, 3, False, True, 0.0),
        (70, 16, 40, True, True, 0.3),
        (150, 20, 20, True, False, 0.0),
        (5, 6, 16, False, False, 0.0),
    ],
)
def test_matches_the_plain_map(rows, width, out, relu, bias, p, device):
    arguments = (rows, width, out, relu, bias, p, device)
    plain = _run("reference", torch.float64, *arguments)
    for ours, reference, same in zip(
        _run("fused", torch.float32, *arguments), plain, _run("fused", torch.float32, *arguments)
    ):
        torch.testing.assert_close(ours.double(), reference, rtol=1e-5, atol=1e-5)
        assert torch.equal(ours, same)


def test_tiles_of_many_rows(device, monkeypatch):
    monkeypatch.setattr("gradformer.model.fused.linear.FEW", 0)
    arguments = (40, 48, 64, True, True, 0.0, device)  # blocks of columns: 4 forward, 3 back
    ours = _run("fused", torch.float32, *arguments)
    for a, b in zip(ours, _run("reference", torch.float64, *arguments)):
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("rows", "few"), [(40, 0), (140, 1024)])
def test_two_maps_of_the_same_rows(rows, few, device, monkeypatch):
    monkeypatch.setattr("gradformer.model.fused.linear.FEW", few)

    def run(engine: str, kind: torch.dtype) -> list[Tensor]:
        first, second = nn.Linear(6, 40), nn.Linear(6, 64, bias=False)
        parameters = [*first.parameters(), *second.parameters()]
        for seed, parameter in enumerate(parameters):
            parameter.data = _random(*parameter.shape, seed=seed).to(device, kind)
        x = _random(rows, 6, seed=4).to(device, kind).requires_grad_()
        with use_engine(engine):
            found = linear_pair(x, first, second)
        slopes = [_random(*y.shape, seed=5 + n).to(device, kind) for n, y in enumerate(found)]
        grads = torch.autograd.grad(found, [x, *parameters], slopes, retain_graph=True)
        # the first map and x used once
        rest = torch.autograd.grad([found[0], found[3]], [x, parameters[0]], slopes[::3])
        return [y.detach() for y in found[:2]] + [*grads, *rest]

    plain = run("reference", torch.float64)
    for ours, reference, same in zip(
        run("fused", torch.float32), plain, run("fused", torch.float32)
    ):
        torch.testing.assert_close(ours.double(), reference, rtol=1e-5, atol=2e-5)
        assert torch.equal(ours, same)


def test_rows_of_several_vectors_take_the_plain_map(device):
    layer, x = nn.Linear(4, 3).to(device), _random(5, 2, 4, seed=0).to(device)
    with use_engine("fused"):
        torch.testing.assert_close(linear(x, layer), layer(x))


def test_three_products_of_tf32_are_as_good_as_float32():
    """What tensor cores do here: a ≈ head + tail; they cut both, and tail·tail is left out."""

    def head(a: np.ndarray) -> np.ndarray:
        bits = a.view(np.uint32) + np.uint32(0x1000)
        return (bits & np.uint32(0xFFFFE000)).view(np.float32)

    def tail(a: np.ndarray) -> np.ndarray:
        return ((a - head(a)).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)

    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal(s, np.float32) for s in ((64, 256), (256, 64)))
    (p, q), (r, s) = (head(a), tail(a)), (head(b), tail(b))
    exact = a.astype(np.float64) @ b
    scale = np.abs(a).astype(np.float64) @ np.abs(b)
    three = p.astype(np.float64) @ r + p.astype(np.float64) @ s + q.astype(np.float64) @ r
    assert (np.abs(three - exact) / scale).max() < 2.0**-21
    one = p.astype(np.float64) @ r
    assert (np.abs(one - exact) / scale).max() > 2.0**-16


def test_only_the_input_that_was_passed_on(device):
    layer, x = nn.Linear(4, 3).to(device), torch.ones(5, 4, device=device, requires_grad=True)
    with use_engine("fused"):
        _, again = linear_and_input(x, layer)
    assert torch.equal(torch.autograd.grad(again.sum(), x)[0], torch.ones_like(x))


def test_refuses_a_second_derivative(device):
    x, layer = torch.randn(3, 4, device=device, requires_grad=True), nn.Linear(4, 2).to(device)
    with use_engine("fused"):
        y = linear(x, layer)
    (dx,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(ConfigError, match="reference engine"):
        dx.sum().backward()
