"""Exported programs give what the model gives, on graphs of any size."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch

from gradformer import ConfigError, Run, fit
from gradformer.graphs.store import Store
from gradformer.training.program import export_program

GRAPHS = [nx.cycle_graph(n) for n in range(4, 14)] + [nx.star_graph(n) for n in range(3, 13)]
NEW = [nx.cycle_graph(3), nx.path_graph(30), nx.disjoint_union(nx.path_graph(4), nx.cycle_graph(5))]
SHORT = ["train.epochs=1", "model.layers=1", "model.width=32", "model.pe_width=8"]


def _run(folder: Path, *settings: str, y: object = None, model: str | None = None) -> Run:
    targets = [0.5 * len(graph) for graph in GRAPHS] if y is None else y
    options = {"out": folder / "run", "quiet": True, "tensorboard": False}
    return fit(GRAPHS, y=targets, model=model, settings=settings, **options)


def graph_inputs(store: Store, graph: int) -> dict[str, torch.Tensor]:
    """One graph of a store as the tensors that a program takes."""
    arrays = store.arrays
    rows = {
        kind: slice(*(int(arrays[f"{kind}_ptr"][graph + k]) for k in (0, 1)))
        for kind in ("node", "edge", "pair")
    }
    n = int(store.sizes[graph])
    found = {
        "distance": arrays["distance"][rows["pair"]].reshape(n, n),
        "edge_index": np.stack([arrays[end][rows["edge"]] for end in ("source", "target")]),
    }
    for name, kind in (("x", "node"), ("edge_attr", "edge"), ("rwse", "node"), ("lap", "node")):
        if name in arrays:
            found[name] = arrays[name][rows[kind]]
    tensors = {name: torch.from_numpy(np.array(value)) for name, value in found.items()}
    return {**tensors, "edge_index": tensors["edge_index"].long()}


@pytest.mark.slow
@pytest.mark.parametrize("local", ["gine", "gatedgcn", "gcn"])
def test_a_program_gives_what_the_run_predicts(tmp_path: Path, local: str) -> None:
    run = _run(tmp_path, *SHORT, f"model.local={local}", "model.layers=2")  # edge states go on
    export_program(run, tmp_path / "program.pt2")
    program = torch.export.load(str(tmp_path / "program.pt2")).module()
    store, _ = run.pack(NEW)
    found = torch.cat([program(**graph_inputs(store, graph)) for graph in range(len(NEW))])
    assert found.numpy() == pytest.approx(run.predict(store).trials[0], rel=1e-4, abs=1e-5)


def test_classes_come_as_probabilities(tmp_path: Path) -> None:
    run = _run(tmp_path, *SHORT, "model.pe=lap", "model.pe_steps=4", y=["a", "b"] * 10)
    program = export_program(run, tmp_path / "program.pt2").module()
    store, _ = run.pack(NEW)
    found = np.concatenate([program(**graph_inputs(store, g)).numpy() for g in range(len(NEW))])
    assert found == pytest.approx(run.predict(store).trials[0], rel=1e-4)


def test_a_model_that_cannot_be_traced_says_so(tmp_path: Path) -> None:
    run = _run(tmp_path, "train.epochs=1", "model.layers=1", model="graphormer")
    with pytest.raises(ConfigError, match="without --program"):
        export_program(run, tmp_path / "program.pt2")
    assert not (tmp_path / "program.pt2").exists()
