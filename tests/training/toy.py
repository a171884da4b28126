"""A small problem for the training tests: is a random graph dense? And processes to be killed."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import networkx as nx
import numpy as np
import torch

from gradformer.errors import GradformerError
from gradformer.graphs.arrays import GraphArrays, Schema
from gradformer.graphs.splits import random_split
from gradformer.graphs.store import pack
from gradformer.training import trials as saving
from gradformer.training.data import TrainingData
from gradformer.training.fit import fit, resume
from gradformer.training.recipe import Recipe
from gradformer.training.records import read_record
from gradformer.training.stop import Stop
from gradformer.training.trial import Trial
from tests.structure.random_graphs import pack as end_to_end

FORK = multiprocessing.get_context("fork")
# Beside a GPU torch trains in no fork of a process that has trained; elsewhere a fork is faster.
TRAINING = multiprocessing.get_context("forkserver") if torch.cuda.is_available() else FORK
QUIET = {"quiet": True, "tensorboard": False, "device": "cpu"}
torch.set_num_threads(1)  # sums on the CPU depend on the number of threads
METRICS = {
    "multiclass": "accuracy",
    "binary": "auroc",
    "regression": "mae",
    "multilabel": "average_precision",
}
RECIPE = Recipe.from_dict(
    {
        "dataset": "toy",
        "model": {
            "layers": 2,
            "width": 16,
            "heads": 2,
            "local": "gine",
            "dropout": 0.1,
            "pe_steps": 4,
            "pe_width": 4,
        },
        "train": {"epochs": 4, "batch_size": 7, "lr": 3e-3, "warmup_epochs": 1, "ema": 0.9},
    }
)


def arrays(graphs: int = 40, level: str = "graph", task: str = "multiclass") -> GraphArrays:
    """Random graphs of 3 to 8 nodes; the target follows from how many edges there are."""
    rng = np.random.default_rng(0)
    sizes, edges = rng.integers(3, 9, graphs), []
    for size in sizes:
        upper = np.triu(rng.random((size, size)) < rng.choice([0.25, 0.75]), 1)
        edges.append(np.argwhere(upper | upper.T).T)
    node_ptr, edge_ptr, edge_index = end_to_end(zip(sizes, edges))
    dense = np.diff(edge_ptr) / (sizes * (sizes - 1))
    if level == "node":
        dense = np.repeat(dense, sizes)
    high = dense > 0.5
    y = {
        "multiclass": high.astype(np.int64),
        "binary": high[:, None].astype(np.float32),
        "multilabel": np.stack([high, ~high], axis=1).astype(np.float32),
        "regression": dense[:, None].astype(np.float32) * 3 + 5,
    }[task]
    outputs = 2 if task in ("multiclass", "multilabel") else 1
    return GraphArrays(
        node_ptr,
        edge_ptr,
        edge_index,
        schema=Schema((3,), (2,), level, task, outputs),  # type: ignore[arg-type]
        x=rng.integers(0, 3, (node_ptr[-1], 1)),
        edge_attr=rng.integers(0, 2, (edge_ptr[-1], 1)),
        y=y,
    )


def one_graph(recipe: Recipe = RECIPE) -> TrainingData:
    """All graphs as parts of a single one, whose nodes are split."""
    many = arrays(level="node")
    first = np.repeat(many.node_ptr[:-1], np.diff(many.edge_ptr)).astype(np.int32)
    ends = {"node_ptr": many.node_ptr[[0, -1]], "edge_ptr": many.edge_ptr[[0, -1]]}
    graph = replace(many, edge_index=many.edge_index + first, **ends)
    store = pack(graph, recipe.model.config.needs())
    split = random_split(int(many.node_ptr[-1]), 0)
    return TrainingData(store, lambda seed: split, "accuracy", "nodes", about={"name": "toy"})


def data(recipe: Recipe = RECIPE, **options: object) -> TrainingData:
    """The problem as a trial takes it."""
    graphs = arrays(**options)  # type: ignore[arg-type]
    store = pack(graphs, recipe.model.config.needs())
    task = graphs.schema.task
    return TrainingData(
        store,
        lambda seed: random_split(store.num_graphs, seed, (0.6, 0.2, 0.2)),
        METRICS[task],
        scaled=task == "regression",
        about={"name": "toy", "protocol": "a toy"},
    )


def trial(
    recipe: Recipe = RECIPE, number: int = 0, device: str = "cpu", **options: object
) -> Trial:
    """A trial of the problem that has not begun."""
    material = data(recipe, **options)
    return Trial(number, recipe, material, material.collator(device))


def trials(*numbers: int, recipe: Recipe = RECIPE, device: str = "cpu") -> list[Trial]:
    """Trials of the problem that have not begun, on the same data."""
    material = data(recipe)
    collator = material.collator(device)
    return [Trial(number, recipe, material, collator) for number in numbers]


def digest(trial: Trial) -> str:
    """A hash of everything that a trial has learned and done."""
    parts = [tensor.cpu().numpy().tobytes() for tensor in (*trial.step.state, trial.best)]
    return hashlib.sha256(b"".join(parts) + str(trial.progress).encode()).hexdigest()


class After(Stop):
    """Asks to stop when a trial has done so many steps."""

    def __init__(self, trial: Trial, steps: int) -> None:
        super().__init__()
        self.trial, self.steps = trial, steps

    def agreed(self) -> bool:
        return int(self.trial.step.count) >= self.steps


def some_graphs(count: int = 30) -> list[nx.Graph]:
    """Graphs of 3 to 8 nodes, as a user has them."""
    rng = np.random.default_rng(0)
    return [nx.gnp_random_graph(int(n), 0.5, seed=int(n)) for n in rng.integers(3, 9, count)]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a run that must not depend on how often it was stopped."""
    found = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("record.jsonl", ".lock")
    }
    timeless = [
        {k: v for k, v in entry.items() if k not in ("seconds", "graphs_per_second")}
        for entry in read_record(folder / "record.jsonl")
        if entry["kind"] in ("epoch", "result")
    ]
    lines = sorted(json.dumps(entry) for entry in timeless)
    return {**found, "record": "\n".join(lines).encode()}


def recipe_of(name: str) -> Recipe:
    """A short training of any model."""
    options = {"epochs": 4, "batch_size": 7, "lr": 3e-3}
    return Recipe.from_dict(
        {"dataset": "toy", "model": {"name": name, "layers": 2}, "train": options}
    )


@contextmanager
def no_file_above(size: int) -> Iterator[None]:
    """Inside, a file cannot grow beyond ``size`` bytes, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def start(folder: Path, *settings: str, trials: int = 1) -> BaseProcess:
    """Train, or go on training, in a process of its own; it ends with 0, or 3 after an error."""
    process = TRAINING.Process(target=_train, args=(folder, settings, trials))
    process.start()
    return process


def finish(folder: Path, *settings: str, trials: int = 1) -> Path:
    """Train to the end in a process of its own."""
    process = start(folder, *settings, trials=trials)
    process.join(timeout=300)
    assert process.exitcode == 0
    return folder


def _train(folder: Path, settings: tuple[str, ...], trials: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a file that grows too large is an error
    saving.SAVE_EVERY = 0.0  # here only: this is a process of its own
    recipe = replace(RECIPE.change(*settings), trials=trials)
    try:
        if (folder / "recipe.yaml").exists():
            resume(folder, data(recipe), **QUIET)  # type: ignore[arg-type]
        else:
            fit(data(recipe), recipe=recipe, out=folder, overwrite=True, **QUIET)  # type: ignore[arg-type]
    except GradformerError as error:
        folder.with_suffix(".error").write_text(str(error))
        sys.exit(3)
