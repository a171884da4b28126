"""Every model trains: gathered, stepped, evaluated, saved, continued to the same weights."""

from __future__ import annotations

from pathlib import Path

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
def test_two_epochs(name: str, tmp_path: Path) -> None:
    layers = {"model": {"name": name, "layers": 2}}
    recipe = Recipe.from_dict({**toy.RECIPE.to_dict(), **layers})
    data = toy.data(recipe)
    collator = data.collator("cpu")
    trial = Trial(0, recipe, data, collator)
    before = trial.weights.vector.clone()
    train_epoch([trial], Stop())
    assert trial.close_epoch()["val"]["accuracy"] >= 0
    assert trial.progress.status == "training"
    assert not torch.equal(trial.weights.vector, before)
    save_checkpoint(tmp_path, trial)
    again = Trial(0, recipe, data, collator)
    load_checkpoint(tmp_path, again)
    for each in (trial, again):
        train_epoch([each], Stop())
    assert torch.equal(trial.weights.vector, again.weights.vector)
