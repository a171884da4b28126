"""A training step on the CPU: ours beside a stack of PyG's GPSConv of the same widths, in one run.

    python benchmarks/cpu.py [--json results/benchmarks/cpu.json] [--threads 2] [--steps 15]

Both sides have the same graphs, batches, widths, depths, heads and dropout. Ours has as many
threads as training takes, PyG one or all, whichever is faster. Steps alternate, and medians are
told. Ours gathers each batch from the store inside the step; PyG's batches are collated beforehand.
Then as many of our trials as training has at once take steps side by side, told for each of them.

PyG has no GatedGCN with edge states, which ours has: GPSConv is given one that is written with
PyG's scatter and, on a row of its own, PyG's nearest, ResGatedGraphConv, which has no edge states
and so spares all work on them. Freed memory is kept, for both sides, as the program ``gradformer``
does it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from authors_way import ScatterGatedGCN, pyg_graph
from common import graphs, parameters, training_data, write_record
from torch import Tensor, nn
from torch_geometric.data import Batch
from torch_geometric.nn import GINConv, GINEConv, GPSConv, ResGatedGraphConv, global_add_pool

from gradformer.graphs.arrays import Schema
from gradformer.training.data import TrainingData
from gradformer.training.memory import keep_freed_memory
from gradformer.training.recipe import Recipe, load_recipe
from gradformer.training.threads import pool, worthwhile_threads
from gradformer.training.trial import Trial


@dataclass(frozen=True)
class Case:
    name: str
    dataset: str
    layers: int
    local: str
    peer: str


CASES = {
    case.name: case
    for case in (
        Case("zinc", "zinc", 10, "gine", "GINEConv"),
        Case("nci1", "nci1", 4, "gin", "GINConv"),
        Case("pattern-gin", "pattern", 4, "gin", "GINConv"),
        Case("pattern", "pattern", 4, "gatedgcn", "GatedGCN"),
        Case("pattern-no-edges", "pattern", 4, "gatedgcn", "ResGatedGraphConv"),
    )
}


class EdgeCarrier(nn.Module):
    """GatedGCN inside GPSConv, which hands on nodes only: edge states travel in a list of one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = ScatterGatedGCN(width)

    def forward(self, x: Tensor, index: Tensor, states: list[Tensor]) -> Tensor:
        x, states[0] = self.conv(x, index, states[0])
        return x


class PygModel(nn.Module):
    """Embedding [+ walk encoding], GPSConv layers, [sum pooling and] a head, as ours has them."""

    def __init__(self, schema: Schema, config: object, local: str) -> None:
        super().__init__()
        width = config.width
        self.node = nn.Embedding(schema.node[0], width)
        self.walk = nn.Linear(config.pe_steps, width) if config.pe == "rwse" else None
        self.layers = nn.ModuleList(
            GPSConv(
                width,
                conv(local, width),
                heads=config.heads,
                dropout=config.dropout,
                attn_kwargs={"dropout": config.attention_dropout},
            )
            for _ in range(config.layers)
        )
        kinds = {"GatedGCN": 1, "GINEConv": schema.edge[0] if schema.edge else 0}.get(local)
        self.edge = None if kinds is None else nn.Embedding(kinds, width)
        self.carries_edges = local == "GatedGCN"
        self.graph_level = schema.level == "graph"
        self.head = nn.Linear(width, schema.outputs)

    def forward(self, data: Batch) -> Tensor:
        x = self.node(data.x[:, 0])
        if self.walk is not None:
            x = x + self.walk(data.rwse)
        more = {}
        if self.carries_edges:
            more["states"] = [self.edge.weight.expand(data.num_edges, -1)]
        elif self.edge is not None:
            more["edge_attr"] = self.edge(data.edge_attr[:, 0])
        for layer in self.layers:
            x = layer(x, data.edge_index, data.batch, **more)
        return self.head(global_add_pool(x, data.batch, data.num_graphs) if self.graph_level else x)


def conv(local: str, width: int) -> nn.Module:
    if local == "GatedGCN":
        return EdgeCarrier(width)
    if local == "ResGatedGraphConv":
        return ResGatedGraphConv(width, width)
    kind = GINEConv if local == "GINEConv" else GINConv
    return kind(nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)))


def pyg_batch(data: TrainingData, ids: np.ndarray) -> Batch:
    """Graphs of the store as PyG's own mini-batch."""
    return Batch.from_data_list([pyg_graph(data, g) for g in ids])


def pyg_step(
    data: TrainingData, recipe: Recipe, local: str
) -> tuple[nn.Module, Callable[[Batch], Tensor]]:
    model = PygModel(data.schema, recipe.model.config, local).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.train.lr)
    objective = F.l1_loss if data.schema.task == "regression" else F.cross_entropy

    def step(batch: Batch) -> Tensor:
        optimizer.zero_grad()
        loss = objective(model(batch), batch.y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def measure(case: Case, steps: int) -> dict[str, object]:
    """Milliseconds of a step of both sides, medians and quartiles of ``steps`` after two."""
    settings = [f"model.layers={case.layers}", f"model.local={case.local}"]
    recipe = load_recipe(case.dataset, settings=settings)
    data = training_data(graphs(case.dataset, 4 * recipe.train.batch_size), recipe)
    collator, cores = data.collator("cpu"), torch.get_num_threads()
    trials = [Trial(number, recipe, data, collator) for number in range(cores)]
    model, peer = pyg_step(data, recipe, case.peer)
    batches = [ids for ids in trials[0].order(0) if len(ids) == recipe.train.batch_size]
    ours = [torch.from_numpy(ids) for ids in batches]
    ready = [pyg_batch(data, ids) for ids in batches]
    work = trials[0].model, collator, trials[0].graphs, recipe.train.batch_size
    with worthwhile_threads(*work) as room:
        threads = torch.get_num_threads()
    ways = [("ours", threads, trials[0].step, ours)]
    ways += [(f"pyg {count}", count, peer, ready) for count in sorted({1, cores})]
    times: dict[str, list[float]] = {who: [] for who, *_ in ways}
    for number in range(steps + 2):
        for who, count, step, given in ways:
            torch.set_num_threads(count)
            start = time.perf_counter()
            loss = step(given[number % len(batches)])
            times[who].append((time.perf_counter() - start) * 1e3)
            assert torch.isfinite(loss), f"{who}: the loss is not finite"
    torch.set_num_threads(threads)
    beside = side_by_side(trials[:room], ours, steps) if room > 1 else None
    torch.set_num_threads(cores)
    quarters = {
        who: np.quantile(found[2:], (0.25, 0.5, 0.75)).tolist() for who, found in times.items()
    }
    theirs = min((who for who in times if who != "ours"), key=lambda who: quarters[who][1])
    return {
        "case": case.name,
        "local": case.local,
        "pyg_conv": case.peer,
        "batch_size": recipe.train.batch_size,
        "threads": threads,
        "pyg_threads": int(theirs.split()[1]),
        "layers": case.layers,
        "width": recipe.model.config.width,
        "parameters": parameters(trials[0]),
        "pyg_parameters": sum(p.numel() for p in model.parameters()),
        "ours_ms": quarters["ours"][1],
        "pyg_ms": quarters[theirs][1],
        "ratio": quarters[theirs][1] / quarters["ours"][1],
        "side_by_side": room,
        "side_by_side_ms": beside,
        "ours_quartiles_ms": quarters["ours"],
        "pyg_quartiles_ms": quarters[theirs],
    }


def side_by_side(trials: list[Trial], batches: list[Tensor], steps: int) -> float:
    """Milliseconds of a step of each of ``trials``, each in a thread, after two."""

    def some(trial: Trial, count: int) -> None:
        for number in range(count):
            trial.step(batches[number % len(batches)])

    with pool(len(trials)) as lanes:
        list(lanes.map(some, trials, [2] * len(trials)))
        start = time.perf_counter()
        list(lanes.map(some, trials, [steps] * len(trials)))
        return (time.perf_counter() - start) * 1e3 / (steps * len(trials))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="write the record here")
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=15)
    options = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(options.threads)
    rows = []
    head = "case | GPSConv with | batch | layers | width | PyG, ms a step | ours | ratio"
    print(f"| {head} | ours, side by side |")
    print("|---" * 9 + "|")
    for name in options.cases:
        row = measure(CASES[name], options.steps)
        rows.append(row)
        cells = [row[name] for name in ("case", "pyg_conv", "batch_size", "layers", "width")]
        cells += [f"{row['pyg_ms']:.0f}", f"{row['ours_ms']:.0f}", f"{row['ratio']:.2f}×"]
        beside = row["side_by_side_ms"]
        cells.append("–" if beside is None else f"{beside:.0f} ({row['side_by_side']} trials)")
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    write_record(options.json, rows)


if __name__ == "__main__":
    main()
