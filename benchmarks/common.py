"""What the benchmarks share: graphs of the sizes of the datasets, clocks, records."""

from __future__ import annotations

import gc
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gradformer.graphs.arrays import GraphArrays, Schema
from gradformer.graphs.sbm import cluster, pattern
from gradformer.graphs.splits import Split
from gradformer.graphs.store import pack
from gradformer.training.data import TrainingData
from gradformer.training.files import replace_json
from gradformer.training.recipe import Recipe
from gradformer.training.records import environment
from gradformer.training.trial import Trial

ZINC = Schema((28,), (4,), "graph", "regression", 1)
NCI1 = Schema((37,), (), "graph", "multiclass", 2)
EPOCHS = 5  # of replayed steps, whose median counts


def molecules(count: int, schema: Schema, mean: float, spread: float, most: int) -> GraphArrays:
    """Random graphs of a molecule's size: a tree with a few rings, types and bonds at random."""
    draw = np.random.default_rng(0)
    sizes = np.clip(draw.normal(mean, spread, count).round(), 9, most).astype(np.int64)
    edges, counts = [], []
    for n in sizes:
        parent = np.array([draw.integers(max(0, i - 3), i) for i in range(1, n)])
        pairs = {(int(p), i + 1) for i, p in enumerate(parent)}
        for _ in range(3):
            a = int(draw.integers(0, n - 5))
            pairs.add((a, a + 5))
        both = np.array(sorted(pairs | {(b, a) for a, b in pairs})).T
        edges.append(both)
        counts.append(both.shape[1])
    index = np.concatenate(edges, axis=1).astype(np.int32)
    node_ptr, edge_ptr = (np.concatenate([[0], np.cumsum(x)]) for x in (sizes, counts))
    bonds = draw.integers(1, 4, (index.shape[1], 1)) if schema.edge else None
    y = draw.normal(size=(count, 1)).astype(np.float32)
    if schema.task == "multiclass":
        y = draw.integers(0, schema.outputs, count)
    atoms = draw.integers(0, schema.node[0], (node_ptr[-1], 1))
    return GraphArrays(node_ptr, edge_ptr, index, schema, x=atoms, edge_attr=bonds, y=y)


def graphs(name: str, count: int) -> GraphArrays:
    """About ``count`` graphs to train on, of a dataset's size, and a few more."""
    if name == "zinc":
        return molecules(count * 8 // 7, ZINC, 23.2, 4.5, 37)
    if name == "nci1":
        return molecules(count * 8 // 7, NCI1, 29.9, 13.6, 111)
    if name.startswith("cluster"):
        return cluster(splits=(count, count // 8, count // 8))
    return pattern(patterns=16, copies=(count // 16, max(count // 128, 1), max(count // 128, 1)))


def training_data(arrays: GraphArrays, recipe: Recipe) -> TrainingData:
    """Packed as the recipe's model needs it; seven eighths are trained on."""
    store = pack(arrays, recipe.model.config.needs())
    everything = np.arange(store.num_graphs)
    rest = everything[-(len(everything) // 8) :]
    split = Split(everything[: -len(rest)], rest, rest)
    metric = {"regression": "mae", "multiclass": "accuracy"}[store.schema.task]
    return TrainingData(store, lambda seed: split, metric)


def forget() -> None:
    """On the GPU: free what nothing uses any more, and count memory from here."""
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()  # one for every stream that made a product
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def gpu_ms(work: Callable[[], object], times: int = 1) -> float:
    """Milliseconds that the GPU takes for ``work`` on the present stream, mean over ``times``."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(times):
        work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / times


def replay(trials: list[Trial]) -> float:
    """Milliseconds of a model-step of captured trials side by side, median over epochs."""
    steps, times = trials[0].steps_per_epoch, []
    for _ in range(EPOCHS):
        for trial in trials:
            trial.losses = []
            if not trial.captured.begin():
                raise torch.OutOfMemoryError("no memory to record a step")
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            for trial in trials:
                trial.captured.advance()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / steps / len(trials) * 1e3)
        for trial in trials:
            trial.captured.finish(steps)
            assert torch.isfinite(torch.stack(trial.losses)).all(), "the loss is not finite"
    return statistics.median(times)


def parameters(trial: Trial) -> int:
    return sum(p.numel() for p in trial.model.parameters())


def write_record(path: str | None, rows: list[dict[str, Any]], **more: Any) -> None:
    """Keep the rows with all that they depend on; no path, no record."""
    if path is None:
        return
    known = environment(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    words = (f"results/benchmarks/{Path(path).name}" if w == path else w for w in sys.argv[1:])
    command = " ".join(["python", "benchmarks/" + Path(sys.argv[0]).name, *words])
    record = {"command": command, "date": time.strftime("%Y-%m-%d", time.gmtime()), **known}
    machine = {"cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0]}
    replace_json(Path(path), {**record, **machine, **more, "rows": rows})
