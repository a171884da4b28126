"""From raw files to a store ready for training, beside the usual way, in one run.

The usual way for ZINC is what PyG's loader gives, a compiled cubic all-pairs routine on 8-byte
integers, and PyG's AddRandomWalkPE, graph after graph (measured on every n-th graph, see --every).
Reading raw files is timed apart. benchmarks/structure.py has the growth with the size of a graph.

    python benchmarks/preprocess.py --data MIRROR [--cores 2] [--every 6] [--large] [--json FILE]

``--large`` adds the stores of CLUSTER, PATTERN and ogbg-molhiv. A time is the best of three; where
disks are slow, a store's time is theirs.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from common import write_record
from torch_geometric.data import Data
from torch_geometric.transforms import AddRandomWalkPE

from gradformer.graphs import sbm
from gradformer.graphs.arrays import GraphArrays
from gradformer.graphs.cards import find_card
from gradformer.graphs.mirror import raw_files
from gradformer.graphs.sources.readers import read_card
from gradformer.graphs.store import Store, Structure, build_store
from gradformer.structure import HOPS, hop_distances
from gradformer.structure.parallel import cores
from structure import cubic_distances

STEPS = 20
T = TypeVar("T")


def timed(work: Callable[[], T], runs: int = 3) -> tuple[float, T]:
    """Seconds of the best run, and the last result."""
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - start)
    return best, result


def graphs_of(arrays: GraphArrays, every: int = 1) -> list[tuple[int, np.ndarray]]:
    """Number of nodes and edges [2, e] of every n-th graph."""
    return [
        (int(arrays.sizes[g]), arrays.edge_index[:, arrays.edge_ptr[g] : arrays.edge_ptr[g + 1]])
        for g in range(0, arrays.num_graphs, every)
    ]


def usual_distances(arrays: GraphArrays, every: int = 1) -> float:
    """Milliseconds a graph of the cubic routine, which must agree with ours."""
    graphs = graphs_of(arrays, every)
    cubic_distances(*graphs[0])  # compile
    seconds, found = timed(lambda: [cubic_distances(*graph) for graph in graphs], 1)
    ours = HOPS.values[hop_distances(arrays.node_ptr, arrays.edge_ptr, arrays.edge_index)]
    pair_ptr = np.concatenate([[0], np.cumsum(arrays.sizes**2)])
    for g, expected in enumerate(found):
        own = slice(pair_ptr[g * every], pair_ptr[g * every + 1])
        assert np.array_equal(ours[own], expected.ravel()), g
    return 1e3 * seconds / len(graphs)


def usual_walk(arrays: GraphArrays, every: int) -> float:
    """Milliseconds a graph of PyG's transform."""
    data = [
        Data(edge_index=torch.tensor(edges).long(), num_nodes=nodes)
        for nodes, edges in graphs_of(arrays, every)
    ]
    transform = AddRandomWalkPE(STEPS, attr_name="pe")
    return 1e3 * timed(lambda: [transform(item) for item in data], 1)[0] / len(data)


def fresh_store(arrays: GraphArrays, structure: Structure, folder: Path) -> Store:
    """Build in a new folder each time."""
    return build_store(arrays, structure, Path(tempfile.mkdtemp(dir=folder)) / "store")


ROWS: list[dict[str, object]] = []


def row(what: str, usual: str, ours: str, ratio: str) -> None:
    """Print a line of the table and keep it for the record."""
    print(f"| {what} | {usual} | {ours} | {ratio} |", flush=True)
    ROWS.append({"what": what, "usual": usual, "ours": ours, "ratio": ratio})


def zinc(data: str | None, folder: Path, every: int) -> None:
    card = find_card("zinc")
    read, arrays = timed(lambda: read_card(card, raw_files(card, data)))
    store, _ = timed(lambda: fresh_store(arrays, Structure(rwse=STEPS), folder))
    hops, walk = usual_distances(arrays, every), usual_walk(arrays, every)
    both = hops + walk
    ours = 1e3 * store / arrays.num_graphs
    row("ZINC: reading raw files", "", f"{read:.2f} s in all", "")
    row("ZINC: distances", f"{hops:.3f} ms", "", "")
    row(f"ZINC: walk of {STEPS} steps", f"{walk:.3f} ms", "", "")
    row("ZINC: to a ready store", f"{both:.3f} ms", f"{ours:.4f} ms", ratio(both, ours))


def cluster_distances() -> None:
    arrays = sbm.cluster(splits=(200, 0, 0))
    usual = usual_distances(arrays)
    graphs = (arrays.node_ptr, arrays.edge_ptr, arrays.edge_index)
    ours = 1e3 * timed(lambda: hop_distances(*graphs))[0] / arrays.num_graphs
    row("CLUSTER: distances, one core", f"{usual:.3f} ms", f"{ours:.4f} ms", ratio(usual, ours))


def large(data: str | None, folder: Path) -> None:
    for name in ("cluster", "pattern", "molhiv"):
        card = find_card(name)
        read, arrays = timed(lambda card=card: read_card(card, raw_files(card, data)), 1)
        build, store = timed(lambda arrays=arrays: fresh_store(arrays, Structure(), folder), 1)
        assert store.folder is not None
        opened, _ = timed(lambda store=store: Store.open(store.folder))
        what = "reading" if card.files else "generating"
        row(f"{name}: {what}", "", f"{read:.1f} s in all", "")
        row(f"{name}: store of {store.nbytes / 1e6:.0f} MB", "", f"{build:.1f} s in all", "")
        row(f"{name}: opening {store.num_graphs:,} graphs", "", f"{1e3 * opened:.1f} ms in all", "")


def ratio(usual: float, ours: float) -> str:
    return f"{usual / ours:.0f}×"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="mirror of raw files [env: GRADFORMER_DATA]")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--every", type=int, default=6)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--json", help="write the record here")
    options = parser.parse_args()
    mine = sorted(os.sched_getaffinity(0))[: options.cores]
    os.sched_setaffinity(0, mine)
    torch.set_num_threads(1)
    print(f"{cores()} core(s) for ours, one for the usual way, which has no other; time a graph")
    print("| | usual | ours | ratio |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        zinc(options.data, Path(folder), options.every)
        os.sched_setaffinity(0, mine[:1])
        cluster_distances()
        os.sched_setaffinity(0, mine)
        if options.large:
            large(options.data, Path(folder))
    write_record(options.json, ROWS)


if __name__ == "__main__":
    main()
