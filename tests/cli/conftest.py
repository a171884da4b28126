"""Small data, runs trained on them once, and the program as a function."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gradformer.cli.app import app

Program = Callable[..., Result]
QUIET = ("--quiet", "--no-report", "--no-tensorboard")
BRIEF = (*QUIET, "--set", "train.epochs=1", "--set", "model.layers=1")
"""Words of a training that shows nothing, and of one that is as short as can be."""


def csv_rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(scope="session")
def program() -> Program:
    """Run the program with some words; a number is the exit code it must end with (0)."""

    def run(*words: str | Path, code: int = 0) -> Result:
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
        return result

    return run


def write_molecules(folder: Path) -> None:
    """molecules.csv: a number and a class; new.csv: two good rows, two bad ones."""
    words = ["C" * n + tail for tail in ("", "O", "N") for n in range(1, 15)]
    words += ["c1ccccc1" + "C" * n for n in range(18)]
    lines = [
        f"m{k},{word},{0.5 * len(word)},{'ring' if '1' in word else 'chain'}"
        for k, word in enumerate(words)
    ]
    (folder / "molecules.csv").write_text("\n".join(["id,smiles,y,kind", *lines]) + "\n")
    (folder / "new.csv").write_text('id,smiles\na,CCO\nb,CC(\n"c,d",c1ccccc1\ne,\n')


def write_graphs(folder: Path) -> None:
    """graphs.jsonl: rings, chains and stars of 4 to 13 nodes, a word for each graph."""
    lines = []
    for n in range(4, 14):
        shapes = {
            "ring": [[i, (i + 1) % n] for i in range(n)],
            "chain": [[i, i + 1] for i in range(n - 1)],
            "star": [[0, i] for i in range(1, n)],
        }
        lines += [
            json.dumps({"num_nodes": n, "edges": edges, "y": word})
            for word, edges in shapes.items()
        ]
    (folder / "graphs.jsonl").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    write_molecules(folder)
    write_graphs(folder)
    return folder


@pytest.fixture(scope="session")
def molecule_run(program: Program, files: Path) -> Path:
    """Two trials of a regression on molecules.csv."""
    out = files / "molecule-run"
    program(
        *("train", files / "molecules.csv", "--target", "y", "--trials", "2", "--out", out),
        *("--set", "train.epochs=2", "--set", "model.layers=1", "--quiet", "--no-tensorboard"),
    )
    return out


@pytest.fixture(scope="session")
def graph_run(program: Program, files: Path) -> Path:
    """One trial of three classes on graphs.jsonl."""
    out = files / "graph-run"
    program(
        *("train", files / "graphs.jsonl", "--out", out, *QUIET),
        *("--set", "train.epochs=2", "--set", "model.layers=1"),
    )
    return out
