"""Small runs for the report's tests: a tiny model that learns classes, numbers or nodes."""

from __future__ import annotations

from pathlib import Path

from gradformer.training.fit import fit
from gradformer.training.recipe import Recipe
from gradformer.training.run import Run
from tests.training import toy

SMALL = {"layers": 2, "width": 8, "heads": 2, "local": "gin", "pe": "none", "spread": 1.0}


def recipe(trials: int = 2, epochs: int = 3, name: str = "gradformer", **model: object) -> Recipe:
    options = {**SMALL, **model} if name == "gradformer" else {"layers": 2, "width": 8, **model}
    return Recipe.from_dict(
        {
            "dataset": "toy",
            "model": {"name": name, **options},
            "train": {"epochs": epochs, "batch_size": 8, "lr": 3e-3},
            "trials": trials,
        }
    )


def train(folder: Path, task: str = "multiclass", level: str = "graph", **options: object) -> Run:
    own = recipe(**options)  # type: ignore[arg-type]
    material = toy.data(own, task=task, level=level)
    return fit(material, recipe=own, out=folder, **toy.QUIET)  # type: ignore[arg-type]
