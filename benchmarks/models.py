"""Time and memory of a training step of Gradformer and all baselines, in one run.

    python benchmarks/models.py [--json results/benchmarks/models.json] [--models gcn gat …]

Each model has the options of its recipe, but all have Gradformer's batch size, on graphs of ZINC's
and CLUSTER's sizes. On a GPU the step is captured; a model whose step cannot be is run eagerly, and
the table says why. Without a GPU a few eager steps are timed, and no memory is told.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
from common import forget, graphs, parameters, replay, training_data, write_record

from gradformer.graphs.arrays import GraphArrays
from gradformer.model.base import all_models
from gradformer.training.capture import capture
from gradformer.training.recipe import load_recipe
from gradformer.training.trial import Trial

DATASETS = ("zinc", "cluster")
NAMES = ["gradformer", *sorted(all_models().keys() - {"gradformer"})]


def measure(dataset: str, model: str, arrays: GraphArrays, device: str) -> dict[str, Any]:
    """A row of the table. The memory is all that torch held, the graphs included."""
    batch = load_recipe(dataset).train.batch_size
    recipe = load_recipe(dataset, model=model, settings=[f"train.batch_size={batch}"])
    began = time.perf_counter()
    data = training_data(arrays, recipe)
    packed = time.perf_counter() - began
    if device == "cuda":
        forget()
    trial = Trial(0, recipe, data, data.collator(device))
    row = {"dataset": dataset, "model": model, "layers": recipe.model.config.layers}
    row |= {"parameters": parameters(trial), "structure_s": packed}
    row["eager"] = capture([trial])
    try:
        row["ms"] = replay([trial]) if row["eager"] is None else eager(trial, device)
    except torch.OutOfMemoryError:
        return row | {"ms": None, "eager": "out of memory"}
    if device == "cuda":
        row["memory_gib"] = torch.cuda.max_memory_allocated() / 2**30
    return row


def eager(trial: Trial, device: str) -> float:
    """Milliseconds of a step, median over the full batches of an epoch but the first."""
    if device == "cuda":  # what a failed capture took does not count
        forget()
    times = []
    for ids in trial.batches():
        if len(ids) < trial.recipe.train.batch_size:
            continue
        start = time.perf_counter()
        loss = trial.step(ids)
        if device == "cuda":
            torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
        assert torch.isfinite(loss), "the loss is not finite"
    return statistics.median(times[1:])


def show(row: dict[str, Any]) -> None:
    memory = f"{row['memory_gib']:.2f}" if "memory_gib" in row else ""
    how = "captured" if row["eager"] is None else f"eager: {row['eager']}"
    cells = (row["dataset"], row["model"], row["layers"], f"{row['parameters']:,}")
    cells += ("" if row["ms"] is None else f"{row['ms']:.2f}", memory, how)
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="write the record here")
    parser.add_argument("--datasets", nargs="*", default=DATASETS, choices=DATASETS)
    parser.add_argument("--models", nargs="*", default=NAMES, choices=NAMES)
    parser.add_argument("--steps", type=int, help="in an epoch; 16 on a GPU, 3 without one")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    steps = options.steps or (16 if device == "cuda" else 3)
    rows = []
    print("| dataset | model | layers | parameters | ms a step | GiB | how |")
    print("|---" * 7 + "|")
    for dataset in options.datasets:
        arrays = graphs(dataset, steps * load_recipe(dataset).train.batch_size)
        for model in options.models:
            rows.append(measure(dataset, model, arrays, device))
            show(rows[-1])
            write_record(options.json, rows)


if __name__ == "__main__":
    main()
