"""The dropout kernel against the plain draws."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gradformer.attention import Layout, Rows, use_engine
from gradformer.attention.draws import drop, drop_rows
from gradformer.model.parts import Draw, Dropout, DropPath

fused_drop = pytest.importorskip("gradformer.model.fused.drop").fused_drop
pytestmark = pytest.mark.usefixtures("on_the_device")


def _random(*shape: int, seed: int) -> Tensor:
    """Normal numbers, the same on every device."""
    generator = torch.Generator("cpu").manual_seed(seed)
    return torch.randn(*shape, generator=generator, device="cpu").to(torch.get_default_device())


def _seed() -> Tensor:
    return torch.tensor([2**40 + 7, 123_456, 5])


def _rows(count: int) -> Rows:
    """``count`` rows of a batch of graphs of sizes 1, 2, 3, … with scattered numbers."""
    sizes: list[int] = []
    while sum(sizes) < count:
        sizes.append(min(len(sizes) + 1, count - sum(sizes)))
    numbers = torch.arange(len(sizes)) * 7919 + 11
    return Layout.from_sizes(sizes, numbers, numbers.device).rows


@pytest.mark.parametrize("whole_graphs", [False, True])
@pytest.mark.parametrize(("rows", "channels"), [(1, 1), (50, 6), (70, 100)])
@pytest.mark.parametrize("p", [0.1, 0.7])
def test_same_draws(rows: int, channels: int, p: float, whole_graphs: bool) -> None:
    plain = drop_rows if whole_graphs else drop
    x, slope = _random(rows, channels, seed=1), _random(rows, channels, seed=2)
    results: list[tuple[Tensor, Tensor]] = []
    for dropped in (
        Draw(p, _rows(rows), _seed(), whole_graphs),
        lambda x: plain(x, p, _rows(rows), _seed()),
    ):
        x = x.detach().requires_grad_()
        with use_engine("fused"):
            y = dropped(x)
            results.append((y.detach(), torch.autograd.grad(y, x, slope)[0]))
    (y, dx), (y_plain, dx_plain) = results
    assert torch.equal(y == 0, y_plain == 0)
    assert torch.equal(dx == 0, dx_plain == 0)
    torch.testing.assert_close(y, y_plain, rtol=3e-7, atol=0.0)
    torch.testing.assert_close(dx, dx_plain, rtol=3e-7, atol=0.0)


@pytest.mark.parametrize("module", [Dropout(0.4), DropPath(0.4)])
def test_modules_take_the_kernel(module: Dropout, monkeypatch: pytest.MonkeyPatch) -> None:
    x, seeds = _random(60, 8, seed=1), _seed()[None]
    calls: list[int] = []
    monkeypatch.setattr(
        "gradformer.model.fused.drop.fused_drop",
        lambda *arguments: calls.append(1) or fused_drop(*arguments),
    )
    with use_engine("reference"):
        plain = module(x, _rows(60), seeds)
    with use_engine("fused"):
        fused = module(x, _rows(60), seeds)
    assert calls == [1]
    torch.testing.assert_close(fused, plain, rtol=3e-7, atol=0.0)


def test_bfloat16() -> None:
    x = _random(40, 12, seed=1).bfloat16()
    y = fused_drop(x, Draw(0.3, _rows(40), _seed()))
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y, drop(x, 0.3, _rows(40), _seed()), rtol=1e-2, atol=0.0)


def test_a_tensor_that_is_not_contiguous() -> None:
    x = _random(12, 40, seed=1).T
    y = fused_drop(x, Draw(0.3, _rows(40), _seed()))
    torch.testing.assert_close(y, drop(x, 0.3, _rows(40), _seed()), rtol=3e-7, atol=0.0)


def test_second_derivative() -> None:
    x = _random(9, 3, seed=1).requires_grad_()
    with use_engine("fused"):
        y = Draw(0.5, _rows(9), _seed())(x)
        (dx,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(dx.sum(), x)
    kept = drop(torch.ones_like(x), 0.5, _rows(9), _seed())
    torch.testing.assert_close(second, 2.0 * kept.square())
