"""Gradients in pieces: the sum at the end of a step is what autograd would have given."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from gradformer.attention import use_engine
from gradformer.model.fused.pieces import claim
from gradformer.model.maps import linear
from gradformer.training.weights import Weights

pytest.importorskip("triton")


class Toy(nn.Module):
    """Maps with and without bias, one used twice, one whose result nobody uses, one that rests."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.twice = nn.Linear(5, 7), nn.Linear(7, 7, bias=False)
        self.last, self.unused, self.idle = (nn.Linear(7, n) for n in (2, 3, 4))

    def forward(self, x: Tensor) -> Tensor:
        x = linear(linear(linear(x, self.first, relu=True), self.twice), self.twice)
        linear(x, self.unused)
        return linear(x, self.last)


@pytest.fixture
def toy(device: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Toy, Weights, Tensor]:
    monkeypatch.setattr("gradformer.model.fused.linear.piece_of", lambda count: 32)
    torch.manual_seed(0)
    model = Toy().to(device)
    return model, Weights(model), torch.randn(40, 5, device=device)


def _step(model: Toy, weights: Weights, x: Tensor, collect: bool) -> list[Tensor | None]:
    with use_engine("fused"):
        if collect:
            with weights.collecting() as pieces:
                y = model(x)
        else:
            pieces, y = None, model(x)
        grads = torch.autograd.grad(y.square().sum(), weights.parameters, allow_unused=True)
    weights.set_grad(grads, pieces)
    return list(grads)


def test_the_sum_is_the_gradient(toy: tuple[Toy, Weights, Tensor]) -> None:
    model, weights, x = toy
    _step(model, weights, x, collect=False)
    expected = weights.grad.clone()
    for rows in (40, 20, 40):  # fewer pieces in between
        weights.grad.fill_(7.0)  # what an earlier step left
        for view in weights._grads:
            view.fill_(7.0)
        weights.grad.copy_(torch.where(expected == 0.0, 0.0, weights.grad))
        grads = _step(model, weights, x[:rows], collect=True)
    torch.testing.assert_close(weights.grad, expected, rtol=1e-5, atol=1e-5)
    given = {id(p) for p, g in zip(weights.parameters, grads) if g is not None}
    assert given == {id(model.twice.weight)}


@pytest.mark.gpu  # the interpreter runs one program after the other
def test_same_bits_every_time(toy: tuple[Toy, Weights, Tensor]) -> None:
    model, weights, x = toy
    _step(model, weights, x, collect=True)
    first = weights.grad.clone()
    _step(model, weights, x[:20], collect=True)
    _step(model, weights, x, collect=True)
    assert torch.equal(weights.grad, first)


def test_who_gets_room(toy: tuple[Toy, Weights, Tensor]) -> None:
    model, weights, x = toy
    weight = model.first.weight
    assert claim(2, weight) is None  # nobody collects
    with weights.collecting():
        with torch.no_grad():
            assert claim(2, weight) is None
        assert claim(2, weight, nn.Parameter(weight.detach().clone())) is None  # a stranger
        assert claim(2, weight, weight) is None
        first = claim(2, weight, model.first.bias)
        assert first is not None
        assert claim(2, weight) is None  # a second use
        assert [tuple(room.shape) for room in first.open(x.device)] == [(2, 64), (2, 32)]
        assert claim(2, model.idle.weight) is None  # pieces are being written
    assert claim(2, model.idle.weight) is None
