"""Training steps on one GPU: ours beside the authors' way, in one run.

    python benchmarks/training.py [--json results/training.json] [--cases zinc …]
    python benchmarks/training.py --cold [--json results/cold_start.json] [--cases cluster …]

The authors' way is re-created in its essentials: PyG mini-batches, convolutions with scatter, dense
attention padded to the largest graph with a float decay matrix for every head, eager kernels, and a
host read of the loss in every step. Both sides use the same graphs, widths, depths and batch size.
With --cold: how long a new process takes, with no kernel compiled, until all trials are ready.
"""

from __future__ import annotations

import argparse
import math
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
from common import forget, graphs, parameters, replay, training_data, write_record
from torch import Tensor, nn
from torch_geometric.data import Batch as PygBatch
from torch_geometric.data import Data
from torch_geometric.nn import GINEConv, global_add_pool
from torch_geometric.utils import scatter, to_dense_batch

from gradformer.graphs.arrays import Schema
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
    first = min(e.time_range.start for e in events)
    last = max(e.time_range.end for e in events)
    busy = sum(e.time_range.end - e.time_range.start for e in events)
    table: dict[str, list[float]] = {}
    for event in events:
        entry = table.setdefault(event.name[:70], [0, 0.0])
        entry[0] += 1
        entry[1] += event.time_range.end - event.time_range.start
    longest = sorted(table.items(), key=lambda one: -one[1][1])[:25]
    for name, (count, total) in longest:
        print(f"   {count:5.0f} × {total / count:7.2f} us = {total:8.1f}  {name}")
    profile = [{"kernel": name, "count": count, "us": total} for name, (count, total) in longest]
    return {"kernels": len(events), "busy": busy / max(last - first, 1e-9), "profile": profile}


# --- the authors' way ---------------------------------------------------------------------------


class DenseDecayAttention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.linears = nn.ModuleList(nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, batch: Tensor, decay: Tensor) -> Tensor:
        dense, real = to_dense_batch(x, batch)
        graphs, nodes, width = dense.shape
        q, k, v = (
            linear(dense).view(graphs, nodes, self.heads, -1).transpose(1, 2)
            for linear in self.linears[:3]
        )
        score = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads) * decay
        weight = score.masked_fill(~real[:, None, None, :], -math.inf).softmax(-1)
        weight = F.dropout(weight, self.dropout, self.training)
        return self.linears[3]((weight @ v).transpose(1, 2).reshape(graphs, nodes, width)[real])


class ScatterGatedGCN(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.A, self.B, self.C, self.D, self.E = (nn.Linear(width, width) for _ in range(5))
        self.node_norm, self.edge_norm = nn.BatchNorm1d(width), nn.BatchNorm1d(width)

    def forward(self, x: Tensor, index: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
        source, target = index
        u = self.D(x)[target] + self.E(x)[source] + self.C(e)
        gate = u.sigmoid()
        total = scatter(gate * self.B(x)[source], target, dim_size=len(x))
        mean = total / (scatter(gate, target, dim_size=len(x)) + 1e-6)
        return x + self.node_norm(self.A(x) + mean).relu(), e + self.edge_norm(u).relu()


class AuthorsLayer(nn.Module):
    def __init__(self, width: int, heads: int, gated: bool, dropout: float) -> None:
        super().__init__()
        mlp = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        self.conv = ScatterGatedGCN(width) if gated else GINEConv(mlp)
        self.gated = gated
        self.attn = DenseDecayAttention(width, heads, dropout)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)
        )
        self.norm1, self.norm2, self.norm3 = (nn.BatchNorm1d(width) for _ in range(3))

    def forward(self, x: Tensor, index: Tensor, e: Tensor, batch: Tensor, decay: Tensor):
        if self.gated:
            local, e = self.conv(x, index, e)
        else:
            local = self.conv(x, index, e)
        y = self.norm1(local + x) + self.norm2(self.attn(x, batch, decay) + x)
        return self.norm3(y + self.mlp(y)), e


class AuthorsModel(nn.Module):
    def __init__(self, schema: Schema, config: object) -> None:
        super().__init__()
        c = config
        gated = c.local == "gatedgcn"
        pe_width = c.pe_width if c.pe != "none" else 0
        self.node = nn.Embedding(schema.node[0], c.width - pe_width)
        self.edge = nn.Embedding(schema.edge[0] if schema.edge else 1, c.width)
        self.pe = nn.Linear(c.pe_steps, pe_width) if pe_width else None
        self.pe_norm = nn.BatchNorm1d(c.pe_steps) if pe_width else None
        self.start = nn.Parameter(torch.full((c.heads, 1, 1), float(c.start)))
        self.decay, self.slope = c.decay, c.slope
        self.layers = nn.ModuleList(
            AuthorsLayer(c.width, c.heads, gated, c.attention_dropout) for _ in range(c.layers)
        )
        self.graph_level = schema.level == "graph"
        self.head = nn.Sequential(
            nn.Linear(c.width, c.width // 2), nn.ReLU(), nn.Linear(c.width // 2, c.width // 4),
            nn.ReLU(), nn.Linear(c.width // 4, schema.outputs),
        )  # fmt: skip

    def forward(self, data: PygBatch, distance: Tensor) -> Tensor:
        x = self.node(data.x[:, 0])
        if self.pe is not None:
            x = torch.cat([x, self.pe(self.pe_norm(data.pe))], 1)
        e = self.edge(data.edge_attr[:, 0])
        decay = self.decay ** F.leaky_relu(distance[:, None].float() - self.start, self.slope)
        for layer in self.layers:
            x, e = layer(x, data.edge_index, e, data.batch, decay)
        return self.head(global_add_pool(x, data.batch) if self.graph_level else x)


def authors(case: Case, steps: int = 12) -> dict[str, float]:
    """Milliseconds of a step, alone and with its loader (collate, pad the distances, copy)."""
    forget()
    data, recipe = prepared(case)
    arrays, schema, config = data.store.arrays, data.schema, recipe.model.config
    size = recipe.train.batch_size
    name = "rwse" if config.pe == "rwse" else "lap"
    items, distances = [], []
    for g in range(steps * size):
        g = g % data.store.num_graphs
        a, b = arrays["node_ptr"][g : g + 2]
        s, t = arrays["edge_ptr"][g : g + 2]
        index = torch.from_numpy(np.stack([arrays["source"][s:t], arrays["target"][s:t]])).long()
        bonds = (
            torch.from_numpy(np.array(arrays["edge_attr"][s:t]))
            if "edge_attr" in arrays
            else torch.zeros(t - s, 1, dtype=torch.long)
        )
        item = Data(
            x=torch.from_numpy(np.array(arrays["x"][a:b])), edge_index=index, edge_attr=bonds
        )
        item.y = torch.from_numpy(
            np.array(arrays["y"][g : g + 1] if schema.level == "graph" else arrays["y"][a:b])
        )
        if config.pe != "none":
            item.pe = torch.from_numpy(np.array(arrays[name][a:b]))
        items.append(item)
        p = arrays["pair_ptr"][g]
        distances.append(
            torch.from_numpy(arrays["distance"][p : p + (b - a) ** 2].astype(np.int64)).view(
                b - a, -1
            )
        )

    def load(number: int) -> tuple[PygBatch, Tensor]:
        part = slice(number * size, (number + 1) * size)
        widest = max(len(d) for d in distances[part])
        dense = torch.full((size, widest, widest), 510)
        for slot, d in enumerate(distances[part]):
            dense[slot, : len(d), : len(d)] = d
        return PygBatch.from_data_list(items[part]).to(DEVICE), dense.to(DEVICE)

    model = AuthorsModel(schema, config).to(DEVICE)
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
