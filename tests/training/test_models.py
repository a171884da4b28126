"""Every model trains: gathered, stepped, evaluated, saved, continued to the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from gradformer.model.base import MODELS, model_class
from gradformer.training.checkpoint import load_checkpoint, save_checkpoint
from gradformer.training.loop import Stop, train_epoch
from gradformer.training.recipe import Recipe
from gradformer.training.trial import Trial
from tests.training import toy

model_class("gradformer")  # registers all


@pytest.mark.parametrize("name", sorted(MODELS))
def test_trains_and_continues(name: str, tmp_path: Path) -> None:
    train = {"epochs": 4, "batch_size": 7, "lr": 3e-3}
    recipe = Recipe.from_dict(
        {"dataset": "toy", "model": {"name": name, "layers": 2}, "train": train}
    )
    data = toy.data(recipe)
    collator = data.collator("cpu")
    trial = Trial(0, recipe, data, collator)
    first = train_once(trial)
    assert first["val"]["accuracy"] >= 0
    save_checkpoint(tmp_path, trial)
    again = Trial(0, recipe, data, collator)
    load_checkpoint(tmp_path, again)
    last = [[train_once(each)["loss"] for _ in range(3)][-1] for each in (trial, again)]
    assert last[0] == last[1] < first["loss"]
    assert trial.progress.status == "finished"
    assert torch.equal(trial.weights.vector, again.weights.vector)


def train_once(trial: Trial) -> dict[str, Any]:
    """One epoch; its record."""
    train_epoch([trial], Stop())
    return trial.close_epoch()
