"""The names of the package: all there, imported late, and taking what a user has."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import networkx as nx
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import from_networkx

import gradformer

SHORT = ["train.epochs=1", "model.layers=1"]


def test_every_name_is_there_and_known_to_type_checkers() -> None:
    tree = ast.parse(Path(gradformer.__file__).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    imported = [
        name.asname or name.name
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for name in statement.names
    ]
    assert sorted(imported) == gradformer.__all__ == dir(gradformer)
    for name in gradformer.__all__:
        assert getattr(gradformer, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        _ = gradformer.nothing


@pytest.mark.parametrize(
    ("used", "spared"),
    [
        ("gradformer, gradformer.cli.app", {"torch", "numpy"}),
        ("gradformer.attention", {"torch._dynamo", "scipy.linalg", "scipy.sparse"}),
        ("gradformer.training.fit", {"scipy.linalg", "pandas", "networkx", "torch_geometric"}),
        ("gradformer.report", {"scipy.stats", "pandas", "torch_geometric"}),
    ],
)
def test_nothing_is_imported_that_need_not_be(used: str, spared: set[str]) -> None:
    code = f"import sys, {used}; print(*{spared!r} & sys.modules.keys())"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.split() == []


def test_without_triton_models_are_trained_and_used(tmp_path: Path) -> None:
    """As where torch is for CPUs: pip then installs none, but for developers."""
    code = f"""
import sys
sys.modules["triton"] = None  # cannot be imported
import networkx as nx, gradformer
graphs = [nx.path_graph(n) for n in range(3, 23)]
for model in ("gradformer", "graphormer"):
    run = gradformer.fit(
        graphs, y=[len(g) + 0.5 for g in graphs], model=model, settings={SHORT},
        out={str(tmp_path)!r} + "/" + model, quiet=True, tensorboard=False,
    )
    run.predict(graphs[:2])
    run.report()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_on_windows_the_layer_works_and_the_rest_says_what_to_do() -> None:
    """Which has no ``fcntl``."""
    code = """if True:
    import sys
    sys.modules["fcntl"] = None
    import torch
    from gradformer import GradformerConv
    GradformerConv(8, None, heads=2)(torch.randn(2, 8), torch.tensor([[0, 1], [1, 0]]))
    sys.argv = ["gradformer", "predict", "molhiv", "new.csv"]
    from gradformer.cli import main
    main()
    """
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith("error: Windows: data and runs need Linux or a system like it")


def _pyg(graph: nx.Graph, y: float) -> Data:
    data = from_networkx(graph)
    return Data(edge_index=data.edge_index, num_nodes=len(graph), y=torch.tensor([y]))


@pytest.mark.parametrize("kind", ["networkx", "pyg", "smiles", "frame"])
def test_fit_and_predict_take_what_a_user_has(kind: str, tmp_path: Path) -> None:
    graphs = [nx.path_graph(n) for n in range(3, 23)]
    y = [0.5 * len(graph) for graph in graphs]
    data: Any
    if kind == "pyg":
        data, options = [_pyg(graph, value) for graph, value in zip(graphs, y)], {}
    elif kind == "frame":
        data = pd.DataFrame({"smiles": ["C" * len(g) for g in graphs], "y": y, "id": y})
        options = {"target": "y"}
    else:
        data = ["C" * len(g) for g in graphs] if kind == "smiles" else list(graphs)
        options = {"y": y}
    run = gradformer.fit(
        data, settings=SHORT, out=tmp_path / "run", quiet=True, tensorboard=False, **options
    )
    again = gradformer.Run.load(tmp_path / "run")
    found = again.predict(data[:3])
    assert found.value.shape == (3, 1)
    assert run.report() == tmp_path / "run" / "report.html"
    assert again.embed(data[:2]).graphs.shape == (2, 64)
