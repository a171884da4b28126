"""Distances and random-walk encodings beside the usual way, in one run.

The usual way is a compiled cubic all-pairs routine on 8-byte integers and PyG's AddRandomWalkPE.
Every number is the best of several runs, in milliseconds a graph, on one core: the ratios are per
core.

    python benchmarks/structure.py [--graphs 200] [--largest 3000]
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numba
import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import AddRandomWalkPE

from gradformer.structure import FAR, HOPS, hop_distances, random_walk
from gradformer.structure.parallel import cores

STEPS = 20
Graph = tuple[int, np.ndarray]


@numba.njit
def cubic(distance: np.ndarray) -> None:
    """Floyd and Warshall's recursion in place: [n, n] int64, FAR where there is no edge."""
    n = len(distance)
    for k in range(n):
        for i in range(n):
            for j in range(n):
                through = distance[i, k] + distance[k, j]
                if through < distance[i, j]:
                    distance[i, j] = through


def cubic_distances(nodes: int, edges: np.ndarray) -> np.ndarray:
    distance = np.full((nodes, nodes), int(FAR))
    distance[edges[0], edges[1]] = 1
    np.fill_diagonal(distance, 0)
    cubic(distance)
    return distance


def molecule(rng: np.random.Generator, nodes: int) -> Graph:
    """A tree of chain-like growth with a ring for every ten nodes."""
    parent = [int(rng.integers(max(0, v - 3), v)) for v in range(1, nodes)]
    pairs = {(p, v) for v, p in enumerate(parent, start=1)}
    pairs |= {(v, v + 5) for v in range(0, nodes - 5, 10)}
    return both_directions(nodes, np.array(sorted(pairs)).T)


def block_model(rng: np.random.Generator) -> Graph:
    """Six communities of 5 to 34 nodes, edges with probability 0.55 inside and 0.25 across."""
    label = np.repeat(np.arange(6), rng.integers(5, 35, 6))
    chance = np.where(label[:, None] == label, 0.55, 0.25)
    return both_directions(len(label), np.argwhere(np.triu(rng.random(chance.shape) < chance, 1)).T)


def sparse(rng: np.random.Generator, nodes: int) -> Graph:
    """A random graph of mean degree 4."""
    pairs = rng.integers(0, nodes, (2, 2 * nodes))
    return both_directions(nodes, np.unique(np.sort(pairs[:, pairs[0] != pairs[1]], 0), axis=1))


def both_directions(nodes: int, pairs: np.ndarray) -> Graph:
    both = np.concatenate([pairs, pairs[::-1]], axis=1)
    return nodes, both[:, np.lexsort(both[::-1])]


def pack(graphs: list[Graph]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    node_ptr = np.cumsum([0] + [n for n, _ in graphs])
    edge_ptr = np.cumsum([0] + [e.shape[1] for _, e in graphs])
    return node_ptr, edge_ptr, np.concatenate([e for _, e in graphs], axis=1).astype(np.int32)


def best(work: Callable[[], object], graphs: int, runs: int) -> float:
    """Milliseconds a graph, the best of some runs."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times) / graphs


def measure(name: str, graphs: list[Graph], runs: int) -> str:
    """One row of the table, after a check that both ways agree."""
    arrays = pack(graphs)
    ours = HOPS.values[hop_distances(*arrays)]
    first = graphs[0][0] ** 2
    assert np.array_equal(ours[:first], cubic_distances(*graphs[0]).ravel()), name
    random_walk(*arrays, STEPS)
    data = [Data(edge_index=torch.as_tensor(e), num_nodes=n) for n, e in graphs]
    walk = AddRandomWalkPE(STEPS, attr_name="pe")

    count = len(graphs)
    peer_runs = max(1, runs // 3)
    old_hops = best(lambda: [cubic_distances(*graph) for graph in graphs], count, peer_runs)
    new_hops = best(lambda: hop_distances(*arrays), count, runs)
    small = max(n for n, _ in graphs) <= 1000  # a dense power of a larger one takes minutes
    old_walk = best(lambda: [walk(d) for d in data], count, peer_runs) if small else float("nan")
    new_walk = best(lambda: random_walk(*arrays, STEPS), count, runs)
    cells = [
        name,
        f"{np.mean([n for n, _ in graphs]):.0f}",
        f"{np.mean([e.shape[1] for _, e in graphs]):.0f}",
    ]
    for old, new in (
        (old_hops, new_hops),
        (old_walk, new_walk),
        (old_hops + old_walk, new_hops + new_walk),
    ):
        cells += ["–" if np.isnan(x) else f"{x:.4g}" for x in (old, new)]
        cells.append("–" if np.isnan(old) else f"{old / new:.0f}×")
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=200)
    parser.add_argument("--largest", type=int, default=3000)
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    torch.set_num_threads(1)

    rng = np.random.default_rng(0)
    print(f"{cores()} core(s), milliseconds a graph; walk = {STEPS} steps")
    titles = ["graphs", "nodes", "edges"]
    for part in ("hops", "walk", "both"):
        titles += [f"{part}: usual", "ours", "ratio"]
    print("| " + " | ".join(titles) + " |\n|" + "---|" * len(titles))
    sizes = rng.integers(15, 32, 10 * options.graphs).tolist()
    print(measure("ZINC-size", [molecule(rng, n) for n in sizes], 9), flush=True)
    print(measure("CLUSTER-size", [block_model(rng) for _ in range(options.graphs)], 9), flush=True)
    for nodes in (100, 300, 1000, 3000):
        if nodes <= options.largest:
            count = max(1, 20 * 100 // nodes) if nodes < 1000 else 1
            row = measure(f"degree 4, n = {nodes}", [sparse(rng, nodes) for _ in range(count)], 3)
            print(row, flush=True)


if __name__ == "__main__":
    main()
