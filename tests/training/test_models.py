"""Every model trains: gathered, stepped, evaluated, saved, continued to the same weights; on a GPU
also captured, alone and side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from gradformer.model.base import all_models
from gradformer.training.capture import capture
from gradformer.training.checkpoint import load_checkpoint, save_checkpoint
from gradformer.training.epochs import train_epoch
from gradformer.training.loop import train
from gradformer.training.stop import Stop
from gradformer.training.trial import Trial
from tests.training import toy


@pytest.mark.parametrize("name", sorted(all_models()))
def test_trains_and_continues(name: str, tmp_path: Path) -> None:
    trial, again = toy.trials(0, 0, recipe=toy.recipe_of(name))
    first = train_once(trial)
    assert first["val"]["accuracy"] >= 0
    save_checkpoint(tmp_path, trial)
    load_checkpoint(tmp_path, again)
    last = [[train_once(each)["loss"] for _ in range(3)][-1] for each in (trial, again)]
    assert last[0] == last[1] < first["loss"]
    assert trial.progress.status == "finished"
    assert torch.equal(trial.weights.vector, again.weights.vector)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", sorted(all_models()))
def test_captured_side_by_side_as_alone(name: str) -> None:
    def trained(*numbers: int) -> list[Trial]:
        trials = toy.trials(*numbers, recipe=toy.recipe_of(name), device="cuda")
        assert capture(trials) is None
        assert train(trials, lambda *_: None, Stop())
        return trials

    (alone,), (_, beside) = trained(1), trained(0, 1)
    assert torch.isfinite(alone.weights.vector).all()
    assert torch.equal(alone.weights.vector, beside.weights.vector)


def train_once(trial: Trial) -> dict[str, Any]:
    """One epoch; its record."""
    train_epoch([trial], Stop())
    return trial.close_epoch()
