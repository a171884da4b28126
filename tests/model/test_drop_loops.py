"""Dropout's loop for a CPU is the plain dropout, to the bit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd.forward_ad import dual_level, make_dual, unpack_dual

from gradformer import use_engine
from gradformer.attention.layout import Rows
from gradformer.attention.loops import running
from gradformer.model.loops import drop as drop_loops
from gradformer.model.parts import Draw, Dropout, DropPath

ROWS = 70
SEED = torch.tensor([2**40 + 7, 123_456, 5])


@pytest.fixture(autouse=True)
def looped(monkeypatch: pytest.MonkeyPatch) -> list[Draw]:
    """The draws that the loop made."""
    calls: list[Draw] = []
    known = drop_loops.looped_drop
    monkeypatch.setattr(
        drop_loops, "looped_drop", lambda x, draw: calls.append(draw) or known(x, draw)
    )
    return calls


def rows() -> Rows:
    """Rows of graphs with scattered numbers, among them the largest that there may be."""
    place = torch.arange(ROWS, dtype=torch.int32)
    return Rows(torch.where(place < 9, 2**31 - 1, place // 4 * 7919), place % 4)


def numbers(channels: int) -> Tensor:
    """Of both signs, with zeros and what is no number."""
    x = torch.randn(ROWS, channels, generator=torch.Generator().manual_seed(1))
    x[::7], x[3], x[5] = 0.0, torch.inf, torch.nan
    return x


def result_and_gradient(engine: str, x: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
    x = x.detach().requires_grad_()
    with use_engine(engine):
        y = draw(x)
    return y.detach(), torch.autograd.grad(y, x, x.detach().flip(0))[0]


def bits(x: Tensor) -> Tensor:
    """NaN is whatever a machine makes of it."""
    return torch.where(x.isnan(), 0, x.view(torch.int32))


@pytest.mark.parametrize("whole_graphs", [False, True])
@pytest.mark.parametrize("channels", [1, 50])
@pytest.mark.parametrize("p", [0.1, 0.7])
def test_same_bits(p: float, channels: int, whole_graphs: bool, looped: list[Draw]) -> None:
    draw = Draw(p, rows(), SEED, whole_graphs)
    plain = result_and_gradient("reference", numbers(channels), draw)
    assert looped == []
    found = result_and_gradient("auto", numbers(channels), draw)
    assert looped == [draw, draw]
    for mine, theirs in zip(found, plain):
        assert torch.equal(bits(mine), bits(theirs))
        assert torch.equal(mine.isnan(), theirs.isnan())


def test_slices_and_other_strides(looped: list[Draw], monkeypatch: pytest.MonkeyPatch) -> None:
    draw, across = Draw(0.3, rows(), SEED), numbers(12).T.contiguous().T
    plain = result_and_gradient("reference", across, draw)
    monkeypatch.setattr(running, "LEAST_WORK", 100)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    found = result_and_gradient("auto", across, draw)
    assert looped == [draw, draw]
    assert all(torch.equal(bits(mine), bits(theirs)) for mine, theirs in zip(found, plain))


@pytest.mark.parametrize("module", [Dropout(0.4), DropPath(0.4)])
def test_modules_take_the_loop(module: Dropout, looped: list[Draw]) -> None:
    module(numbers(8), rows(), SEED[None])
    assert len(looped) == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_types_stay_plain(dtype: torch.dtype, looped: list[Draw]) -> None:
    assert Draw(0.3, rows(), SEED)(numbers(8).to(dtype)).dtype == dtype
    assert looped == []


def test_second_derivative(looped: list[Draw]) -> None:
    draw, x = Draw(0.5, rows(), SEED), torch.randn(ROWS, 3).requires_grad_()
    (dx,) = torch.autograd.grad(draw(x).square().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(dx.sum(), x)
    assert looped == [draw] * 4  # and its gradient, and that of both
    torch.testing.assert_close(second, 2.0 * draw(torch.ones_like(x)).square())


def test_a_tangent_of_the_gradient() -> None:
    draw, x = Draw(0.5, rows(), SEED), torch.randn(ROWS, 3).requires_grad_()
    y, along = draw(x), torch.randn(ROWS, 3)
    with dual_level():
        (dx,) = torch.autograd.grad(y, x, make_dual(torch.ones_like(y), along))
        assert torch.equal(unpack_dual(dx).tangent, draw(along))


def test_gradients_over_a_batch_of_slopes() -> None:
    draw, x = Draw(0.5, rows(), SEED), torch.randn(ROWS, 3).requires_grad_()
    slopes = torch.randn(2, ROWS, 3)
    (found,) = torch.autograd.grad(draw(x), x, slopes, is_grads_batched=True)
    assert torch.equal(found, torch.stack([draw(slope) for slope in slopes]))
