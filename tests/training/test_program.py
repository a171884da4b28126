"""Exported programs give what the model gives, on graphs of any size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch

from gradformer import ConfigError, Run, fit
from gradformer.graphs.store import Store
from gradformer.training.program import OneGraph, example_inputs, export_program

GRAPHS = [nx.cycle_graph(n) for n in range(4, 14)] + [nx.star_graph(n) for n in range(3, 13)]
NEW = [nx.cycle_graph(3), nx.path_graph(30), nx.disjoint_union(nx.path_graph(4), nx.cycle_graph(5))]
QUIET: Any = {"quiet": True, "tensorboard": False}
SHORT = ["train.epochs=1", "model.layers=1", "model.width=32", "model.pe_width=8"]


def _run(folder: Path, *settings: str, y: object = None, model: str | None = None) -> Run:
    targets = [0.5 * len(graph) for graph in GRAPHS] if y is None else y
    return fit(GRAPHS, y=targets, model=model, settings=settings, out=folder / "run", **QUIET)


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


def dressed(graphs: list[nx.Graph], node: float, edge: float) -> list[nx.Graph]:
    """The same graphs with features: those of nodes differ, and those of edges."""
    found = [graph.copy() for graph in graphs]
    for graph in found:
        nx.set_node_attributes(graph, {v: [v % 3 * node, node] for v in graph}, "x")
        nx.set_edge_attributes(graph, {e: [sum(e) % 2 * edge] for e in graph.edges}, "edge_attr")
    return found


def test_three_classes_of_graphs_with_features_come_as_probabilities(tmp_path: Path) -> None:
    graphs, new = dressed(GRAPHS, 1, 0.5), dressed(NEW, 1, 0.5)
    settings = [*SHORT, "model.pe=lap", "model.pe_steps=4"]
    words, parts = [*"abc" * 6, "a", "b"], ["val"] * 3 + ["test"] * 3 + ["train"] * 14
    run = fit(graphs, y=words, split=parts, settings=settings, out=tmp_path / "run", **QUIET)
    export_program(run, tmp_path / "program.pt2")
    program = torch.export.load(str(tmp_path / "program.pt2")).module()
    store, _ = run.pack(new)
    found = np.concatenate([program(**graph_inputs(store, g)).numpy() for g in range(len(new))])
    assert found.shape == (3, 3)
    assert found == pytest.approx(run.predict(store).trials[0], rel=1e-4)


@pytest.mark.parametrize(
    ("level", "y"),
    [
        ("graph", [0.5 * len(graph) for graph in GRAPHS]),
        ("graph", ["a", "b"] * 10),
        ("node", [[0.5 * v for v in graph] for graph in GRAPHS]),
    ],
)
def test_one_graph_is_answered_in_the_users_units(level: str, y: object, tmp_path: Path) -> None:
    graphs, new = dressed(GRAPHS, 0.5, 1), dressed(NEW, 0.5, 1)
    run = fit(graphs, y=y, level=level, settings=SHORT, out=tmp_path / "run", **QUIET)
    store, _ = run.pack(new)
    one = OneGraph(run.model(), **(run.result(0)["scale"] or {})).eval()
    assert {name: value.dtype for name, value in graph_inputs(store, 0).items()} == {
        name: value.dtype for name, value in example_inputs(run).items()
    }
    with torch.no_grad():
        found = torch.cat([one(**graph_inputs(store, graph)) for graph in range(len(new))])
    assert found.numpy() == pytest.approx(run.predict(store).trials[0], rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(
    ("model", "reason"),
    [("graphormer", "torch.export cannot trace graphormer"), ("gin", "gin takes no pairs")],
)
def test_a_model_that_cannot_be_a_program_says_so(model: str, reason: str, tmp_path: Path) -> None:
    run = _run(tmp_path, "train.epochs=1", "model.layers=1", model=model)
    with pytest.raises(ConfigError, match=rf"program: {reason}.*; export it without --program"):
        export_program(run, tmp_path / "program.pt2")
    assert not (tmp_path / "program.pt2").exists()
