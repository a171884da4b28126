"""Loss and slope of one kernel against the plain losses and autograd."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from gradformer.attention import use_engine
from gradformer.training.losses import Objective

fused_loss = pytest.importorskip("gradformer.training.fused_loss")


def both(objective: Objective, *arguments: Tensor | None) -> None:
    """The kernel and the plain form agree; prints nothing, raises if not."""
    found = []
    for engine in ("fused", "reference"):
        with use_engine(engine):
            found.append(objective.with_slope(*arguments))  # type: ignore[arg-type]
    (loss, slope), (plain_loss, plain_slope) = found
    torch.testing.assert_close(loss, plain_loss, rtol=2e-6, atol=1e-7)
    torch.testing.assert_close(slope, plain_slope, rtol=2e-5, atol=1e-7)


def rows(device: str, *shape: int) -> Tensor:
    return 3.0 * torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(device)


@pytest.fixture(autouse=True)
def _several_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_loss, "TILE", 16)


@pytest.mark.parametrize("loss", ["l1", "mse"])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_regression(loss: str, scaled: bool, masked: bool, device: str) -> None:
    y = rows(device, 11, 3).flip(0)
    y[2, 1] = y[7, 0] = math.nan
    scale = torch.tensor([[0.3, 9.0, -2.0], [2.5, 0.7, 4.0]], device=device) if scaled else None
    real = torch.arange(11, device=device) % 4 != 1 if masked else None
    both(Objective(loss, scale=scale), rows(device, 11, 3), y, real)


@pytest.mark.parametrize("balanced", [False, True])
def test_binary(balanced: bool, device: str) -> None:
    prediction = rows(device, 9, 2)
    prediction[0, 0], prediction[1, 0] = 90.0, -90.0
    y = (rows(device, 9, 2).flip(0) > 0).float()
    y[5, 1] = math.nan
    balance = torch.tensor([0.2, 4.0], device=device) if balanced else None
    both(Objective("binary", balance=balance), prediction, y, None)


@pytest.mark.parametrize("weights", ["none", "batch", "balanced"])
@pytest.mark.parametrize("labels", [(0, 2, -1, 1, 1, 2, 4), (1,) * 7, (-1,) * 7])
def test_classes(weights: str, labels: tuple[int, ...], device: str) -> None:
    real = torch.tensor([True] * 6 + [False], device=device)
    balance = torch.tensor([1.0, 2.0, 0.5, 3.0, 1.0], device=device)
    objective = Objective("classes", weights == "batch", balance if weights == "balanced" else None)
    prediction = rows(device, 7, 5)
    prediction[6] = 1e4  # whatever a padded row holds
    both(objective, prediction, torch.tensor(labels, device=device), real)


def test_a_bad_prediction_is_a_bad_loss(device: str) -> None:
    prediction = rows(device, 3, 2)
    prediction[1, 1] = math.nan
    with use_engine("fused"):
        loss, _ = Objective("classes").with_slope(
            prediction, torch.tensor([0, 1, 1], device=device)
        )
    assert loss.isnan()
