"""Small data for the report's tests: graphs, numbers and nodes that a tiny model learns from."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gradformer.graphs.arrays import GraphArrays, Schema
from gradformer.graphs.splits import random_split
from gradformer.graphs.store import pack
from gradformer.training.data import TrainingData
from gradformer.training.fit import fit
from gradformer.training.recipe import Recipe
from gradformer.training.run import Run

SMALL = {"layers": 2, "width": 8, "heads": 2, "local": "gin", "pe": "none", "spread": 1.0}
METRICS = {
    "multiclass": "accuracy",
    "binary": "auroc",
    "regression": "mae",
    "multilabel": "average_precision",
}


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


def data(recipe: Recipe, task: str = "multiclass", level: str = "graph") -> TrainingData:
    """Forty rings with a tail; what is asked for follows from the length of the tail."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(5, 12, 40)
    edges, tails = [], []
    for size in sizes:
        ring = rng.integers(3, size + 1)
        ends = [(k, (k + 1) % ring) for k in range(ring)] + [(k - 1, k) for k in range(ring, size)]
        edges.append(np.array(ends + [(j, i) for i, j in ends]).T)
        tails.append(size - ring)
    value = np.array(tails, dtype=np.float32) / 3
    if level == "node":
        value = np.repeat(value, sizes)
    high = value > np.median(value)
    y = {
        "multiclass": high.astype(np.int64),
        "binary": high[:, None].astype(np.float32),
        "multilabel": np.stack([high, ~high], axis=1).astype(np.float32),
        "regression": value[:, None],
    }[task]
    outputs = 2 if task in ("multiclass", "multilabel") else 1
    arrays = GraphArrays(
        node_ptr=np.concatenate([[0], sizes.cumsum()]),
        edge_ptr=np.concatenate([[0], np.cumsum([e.shape[1] for e in edges])]),
        edge_index=np.concatenate(edges, axis=1).astype(np.int32),
        schema=Schema((3,), (), level, task, outputs),  # type: ignore[arg-type]
        x=rng.integers(0, 3, (int(sizes.sum()), 1)),
        y=y,
    )
    store = pack(arrays, recipe.model.config.needs())
    return TrainingData(
        store,
        lambda seed: random_split(40, seed, (0.6, 0.2, 0.2)),
        METRICS[task],
        scaled=task == "regression",
        about={"name": "toy", "protocol": "a toy"},
    )


def train(folder: Path, task: str = "multiclass", level: str = "graph", **options: object) -> Run:
    own = recipe(**options)  # type: ignore[arg-type]
    material = data(own, task, level)
    return fit(material, recipe=own, out=folder, device="cpu", tensorboard=False, quiet=True)
