"""What padding costs: steps at a trial's one capacity, and at that of the very batch, in one run.

    python benchmarks/padding.py [--json results/benchmarks/padding.json] [--data collab proteins …]

All batches of a trial are padded to one capacity, that of the largest. Where sizes have a long
tail, as on COLLAB, this is far above the mean; steps recorded for several capacities ("buckets")
could gain at most what is shown here: batches at quantiles of an epoch, timed both ways.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from common import forget, gpu_ms, write_record

from gradformer.graphs.collate import Capacity
from gradformer.training.capture import CapturedTrial, recorded
from gradformer.training.data import benchmark
from gradformer.training.recipe import load_recipe
from gradformer.training.trial import Trial

QUANTILES = (0.125, 0.375, 0.625, 0.875)
REPLAYS = 20


def step_ms(captured: CapturedTrial, ids: torch.Tensor, capacity: Capacity) -> float:
    step = captured.trial.step

    def body() -> None:
        step(ids, capacity)

    graph = recorded(captured.stream, body, list(step.state))
    with torch.cuda.stream(captured.stream):
        return statistics.median(gpu_ms(graph.replay) for _ in range(REPLAYS))


def compare(name: str) -> dict[str, Any]:
    forget()
    recipe = load_recipe(name)
    data = benchmark(recipe)
    trial = Trial(0, recipe, data, data.collator("cuda"))
    captured = CapturedTrial(trial)
    assert captured.begin(), "no memory to record a step"
    common = captured.capacity(0)
    pointers = (data.store.arrays[key] for key in ("node_ptr", "edge_ptr"))
    nodes, edges = (np.diff(pointer)[captured.ids.cpu().numpy()] for pointer in pointers)
    nodes, edges = nodes.sum(1)[:-1], edges.sum(1)[:-1]  # the last batch may be short
    order = np.argsort(edges)
    ours = own = 0.0
    for number in (order[int(q * len(order))] for q in QUANTILES):
        ids = captured.ids[number].clone()
        tight = replace(captured.room_for([ids.cpu().numpy()]), largest=common.largest, pairs=None)
        ours += step_ms(captured, ids, common) / len(QUANTILES)
        own += step_ms(captured, ids, tight) / len(QUANTILES)
    return {
        "data": name,
        "nodes": float(common.nodes / nodes.mean()),
        "edges": float(common.edges / edges.mean()),
        "ms": ours,
        "ms_own_capacity": own,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the record here")
    parser.add_argument("--data", nargs="*", default=["collab", "proteins"])
    options = parser.parse_args()
    rows = []
    print(f"{'data':14}{'capacity/mean':>22}{'ms/step':>10}{'own capacity':>14}{'gain':>7}")
    for name in options.data:
        row = compare(name)
        rows.append(row)
        shares = f"{row['nodes']:.2f} nodes {row['edges']:.2f} edges"
        gain = row["ms"] / row["ms_own_capacity"]
        print(f"{name:14}{shares:>22}{row['ms']:10.3f}{row['ms_own_capacity']:14.3f}{gain:7.3f}")
        write_record(options.json, rows)


if __name__ == "__main__":
    main()
