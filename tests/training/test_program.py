"""Exported programs give what the model gives, on graphs of any size."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch

from gradformer import ConfigError, Run, fit
from gradformer.training.program import export_program, graph_inputs

GRAPHS = [nx.cycle_graph(n) for n in range(4, 14)] + [nx.star_graph(n) for n in range(3, 13)]
NEW = [nx.cycle_graph(3), nx.path_graph(30), nx.disjoint_union(nx.path_graph(4), nx.cycle_graph(5))]
SHORT = ["train.epochs=1", "model.layers=1", "model.width=32", "model.pe_width=8"]


def _run(folder: Path, *settings: str, y: object = None, model: str | None = None) -> Run:
    targets = [0.5 * len(graph) for graph in GRAPHS] if y is None else y
    options = {"out": folder / "run", "quiet": True, "tensorboard": False}
    return fit(GRAPHS, y=targets, model=model, settings=settings, **options)


@pytest.mark.slow
@pytest.mark.parametrize("local", ["gine", "gatedgcn", "gcn"])
def test_a_program_gives_what_the_run_predicts(tmp_path: Path, local: str) -> None:
    run = _run(tmp_path, *SHORT, f"model.local={local}")
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
