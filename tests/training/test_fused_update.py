"""The update in two kernels against the plain one, step by step."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gradformer.attention import use_engine
from gradformer.training.step import Step
from tests.training import toy

fused_update = pytest.importorskip("gradformer.training.fused_update")
WARM = ("train.warmup_epochs=1", "train.epochs=2")  # 4 of 8 steps


def make(engine: str, device: str, settings: tuple[str, ...]) -> Step:
    recipe = toy.RECIPE.change("model.layers=1", "model.width=8", *settings)
    with use_engine(engine):
        return toy.trial(recipe, 1, device).step


def gradient(size: int, step: int) -> Tensor:
    """Norms below and above the limit of 1 in turn."""
    generator = torch.Generator().manual_seed(step)
    return torch.randn(size, generator=generator) * 10.0 ** -(step % 3)


@pytest.mark.parametrize(
    "settings",
    [
        ("train.optimizer=adamw", "train.weight_decay=0.1", "train.ema=0.9", *WARM),
        ("train.optimizer=adam", "train.weight_decay=0.1", "train.ema=0", "train.min_lr=1e-4"),
        ("train.schedule=none", "train.clip=0", "train.ema=0.5"),
    ],
)
def test_eight_steps(
    settings: tuple[str, ...], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused_update, "BLOCK", 256)  # so that there are many pieces
    monkeypatch.setattr(fused_update, "MOST_PIECES", 6)
    fused, plain = (make(engine, device, settings) for engine in ("fused", "reference"))
    for number in range(8):
        for step in (fused, plain):
            size = step.weights.num_parameters
            step.weights.grad.copy_(gradient(size, number))
            step.weights.vector[size:].mul_(1.01)  # running statistics move too
            step.update()
    assert int(fused.count) == int(plain.count) == 8
    for step in (fused, plain):
        step.weights.grad.zero_()  # only the plain form changes it
    for found, expected in zip(fused.state, plain.state, strict=True):
        torch.testing.assert_close(found, expected, rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_spoils_the_weights(bad: float, device: str) -> None:
    """The trial is then seen to have diverged: nothing is hidden by the clipping."""
    step = make("fused", device, ())
    step.weights.grad.fill_(1e-3)
    step.weights.grad[7] = bad
    step.update()
    found = step.weights.vector[: step.weights.num_parameters].isnan()
    assert found.all() if bad != bad else found[7]
