"""Training steps on one GPU: ours beside the authors' way, in one run.

    python benchmarks/training.py [--json results/training.json] [--cases zinc …]
    python benchmarks/training.py --cold [--json results/cold_start.json] [--cases cluster …]

The authors' way is the model of ``authors_way``, with PyG mini-batches, eager kernels, and a host
read of the loss in every step. Both sides use the same graphs, widths, depths and batch size.
With --cold: how long a new process takes, with no kernel compiled, until all trials are ready.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from authors_way import AuthorsModel, pyg_graph
from common import forget, graphs, parameters, replay, training_data, write_record
from torch import Tensor
from torch_geometric.data import Batch as PygBatch

from gradformer.grouping import grouped
from gradformer.training.capture import capture
from gradformer.training.data import TrainingData
from gradformer.training.recipe import Recipe, load_recipe
from gradformer.training.trial import Trial

DEVICE = "cuda"


@dataclass(frozen=True)
class Case:
    name: str
    recipe: str
    layers: int
    trials: tuple[int, ...] = (1, 10)
    graphs: int = 512
    peer: bool = True


CASES = {
    case.name: case
    for case in (
        Case("zinc", "zinc", 10, graphs=1792),
        Case("cluster-16", "cluster-16", 16, (1,)),
        Case("cluster", "cluster", 48),
        Case("pattern", "pattern", 48, peer=False),
    )
}


def prepared(case: Case) -> tuple[TrainingData, Recipe]:
    recipe = load_recipe(case.recipe, settings=[f"model.layers={case.layers}"])
    return training_data(graphs(case.name, case.graphs), recipe), recipe


def captured(case: Case, trials: int) -> list[Trial]:
    """Trials that are ready to train side by side."""
    data, recipe = prepared(case)
    collator = data.collator(DEVICE)
    made = [
        Trial(number, replace(recipe, trials=trials), data, collator) for number in range(trials)
    ]
    reason = capture(made)
    if reason is not None:
        raise RuntimeError(reason)
    return made


def cold_start(case: Case, trials: int, precision: str) -> float:
    """Seconds of a process that has to import and compile everything, and captures the trials.

    It compiles into the folder of TRITON_CACHE_DIR if that is empty, else into one of its own.
    """
    with tempfile.TemporaryDirectory() as own:
        named = os.environ.get("TRITON_CACHE_DIR")
        cache = named if named and os.path.isdir(named) and not os.listdir(named) else own
        command = [sys.executable, __file__, "--only-start", case.name, str(trials)]
        command += ["--precision", precision]
        begin = time.perf_counter()
        subprocess.run(command, env=os.environ | {"TRITON_CACHE_DIR": cache}, check=True)
        return time.perf_counter() - begin


def cold_starts(options: argparse.Namespace) -> None:
    """A row for each case and number of trials, by default the largest."""
    rows = []
    for case in (CASES[name] for name in options.cases):
        for trials in options.trials or [max(case.trials)]:
            seconds = cold_start(case, trials, options.precision)
            rows.append({"case": case.name, "trials": trials, "seconds": seconds})
            print(f"{case.name}, {trials} trials: ready {seconds:.1f} s after a cold start")
            sys.stdout.flush()
            write_record(options.json, rows, precision=options.precision)


def ours(case: Case, trials: int) -> dict[str, Any]:
    """Milliseconds of a model-step when ``trials`` train side by side."""
    forget()
    began = time.perf_counter()
    made = captured(case, trials)
    ready = time.perf_counter() - began
    ms = replay(made)
    # What is recorded, steps and validations, keeps what counts as reserved only: of one trial the
    # peak is known more exactly.
    peak = torch.cuda.max_memory_allocated() if trials == 1 else torch.cuda.max_memory_reserved()
    return {
        "ms": ms,
        "memory_gib": peak / 2**30 / trials,
        "start_s": ready,
        "parameters": parameters(made[0]),
        **(kernels(made[0]) if trials == 1 else {}),
    }


def kernels(trial: Trial) -> dict[str, Any]:
    """Kernels of one captured step, the share of its time in which the GPU works, and what takes
    it: count and microseconds of each kernel, the longest first."""
    trial.losses = []
    assert trial.captured.begin(), "no memory to record a step"
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        trial.captured.advance()
        torch.cuda.synchronize()
    events = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    if not events:
        return {}
    spans = [e.time_range for e in events]
    whole = max(span.end for span in spans) - min(span.start for span in spans)
    times = grouped((e.name[:70], e.time_range.elapsed_us()) for e in events)
    table = [{"kernel": name, "count": len(us), "us": sum(us)} for name, us in times.items()]
    table = sorted(table, key=lambda row: -row["us"])[:25]
    for row in table:
        name, count, total = row.values()
        print(f"   {count:5.0f} × {total / count:7.2f} us = {total:8.1f}  {name}")
    busy = sum(span.elapsed_us() for span in spans) / max(whole, 1e-9)
    return {"kernels": len(events), "busy": busy, "profile": table}


def authors(case: Case, steps: int = 12) -> dict[str, float]:
    """Milliseconds of a step, alone and with its loader (collate, pad the distances, copy)."""
    forget()
    data, recipe = prepared(case)
    arrays, schema, size = data.store.arrays, data.schema, recipe.train.batch_size
    items, distances = [], []
    for g in np.arange(steps * size) % data.store.num_graphs:
        item = pyg_graph(data, g)
        if "edge_attr" not in item:
            item.edge_attr = torch.zeros(item.num_edges, 1, dtype=torch.long)
        items.append(item)
        n, first = item.num_nodes, arrays["pair_ptr"][g]
        square = arrays["distance"][first : first + n * n].reshape(n, n)
        distances.append(torch.from_numpy(square).long())

    def load(number: int) -> tuple[PygBatch, Tensor]:
        part = slice(number * size, (number + 1) * size)
        widest = max(len(d) for d in distances[part])
        dense = torch.full((size, widest, widest), 510)
        for slot, d in enumerate(distances[part]):
            dense[slot, : len(d), : len(d)] = d
        return PygBatch.from_data_list(items[part]).to(DEVICE), dense.to(DEVICE)

    model = AuthorsModel(schema, recipe.model.config).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-5)
    ready = [load(number) for number in range(steps)]

    def step(batch: PygBatch, dense: Tensor) -> float:
        optimizer.zero_grad()
        out = model(batch, dense)
        y = batch.y
        loss = (out - y).abs().mean() if schema.level == "graph" else F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        return loss.item()

    for batch in ready[:2]:
        step(*batch)
    times, loaded = [], []
    for number in range(steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        batch = load(number)
        torch.cuda.synchronize()
        middle = time.perf_counter()
        step(*batch)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - middle) * 1e3)
        loaded.append((time.perf_counter() - begin) * 1e3)
    return {
        "ms": statistics.median(times),
        "with_loader_ms": statistics.median(loaded),
        "memory_gib": torch.cuda.max_memory_allocated() / 2**30,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the record here")
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--trials", nargs="*", type=int, help="numbers of trials side by side")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--cold", action="store_true", help="time cold processes only")
    parser.add_argument("--only-start", nargs=2, metavar=("CASE", "TRIALS"), help="make them ready")
    parser.add_argument("--precision", default="highest", help="highest, or high for tf32")
    options = parser.parse_args()
    torch.set_float32_matmul_precision(options.precision)
    if options.only_start:
        captured(CASES[options.only_start[0]], int(options.only_start[1]))
        return
    if options.cold:
        cold_starts(options)
        return
    rows = []
    print(f"{'case':12}{'who':22}{'ms/model-step':>14}{'×':>8}{'GiB':>7}  notes")
    for case in (CASES[name] for name in options.cases):
        peer = None
        if case.peer and not options.no_peer:
            peer = authors(case)
            rows.append({"case": case.name, "who": "authors' way", **peer})
            print(
                f"{case.name:12}{'authors way':22}{peer['ms']:14.3f}{1.0:8.1f}"
                f"{peer['memory_gib']:7.2f}  {peer['with_loader_ms']:.1f} ms with its loader"
            )
            sys.stdout.flush()
        for trials in options.trials or case.trials:
            found = ours(case, trials)
            ratio = peer["ms"] / found["ms"] if peer else float("nan")
            rows.append({"case": case.name, "who": f"ours, {trials} trials", **found})
            print(
                f"{case.name:12}{f'ours, {trials} trials':22}{found['ms']:14.3f}{ratio:8.1f}"
                f"{found['memory_gib']:7.2f}  ready in {found['start_s']:.0f} s, "
                f"{found['parameters']} parameters, {found.get('kernels', 0)} kernels, "
                f"GPU busy {found.get('busy', 0):.0%}"
            )
            sys.stdout.flush()
            write_record(options.json, rows, precision=options.precision)


if __name__ == "__main__":
    main()
