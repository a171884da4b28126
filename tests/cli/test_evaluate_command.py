"""``gradformer evaluate``: scores on the own data, on a file, of every target."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from gradformer import Run
from tests.cli.conftest import BRIEF, Program, csv_rows


def test_evaluate_finds_the_recorded_test_scores(program: Program, molecule_run: Path) -> None:
    found = json.loads(program("evaluate", molecule_run, "--json").stdout)
    kept = json.loads((molecule_run / "results.json").read_text())["test"]["values"]
    assert [trial["mae"] for trial in found] == pytest.approx(kept, rel=1e-5)


def test_evaluate_on_a_file_scores_all_of_it(
    program: Program, graph_run: Path, files: Path
) -> None:
    (found,) = json.loads(
        program("evaluate", graph_run, "--on", files / "graphs.jsonl", "--json").stdout
    )
    rows = csv_rows(program("predict", graph_run, files / "graphs.jsonl").stdout)
    (name,) = [column for column in rows[0] if column.endswith("_predicted")]
    right = [row[name] == word for row, word in zip(rows, ["ring", "chain", "star"] * 10)]
    assert found["accuracy"] == pytest.approx(np.mean(right))
    words = ("evaluate", graph_run, "--on", files / "graphs.jsonl", "--by-target", "--json")
    assert json.loads(program(*words).stdout) == {"y": [found]}
    assert "accuracy" in program("evaluate", graph_run, "--on", files / "graphs.jsonl").stdout


def test_a_file_has_no_parts_and_a_benchmark_has(
    program: Program, molecule_run: Path, files: Path
) -> None:
    words = ("evaluate", molecule_run, "--on", files / "molecules.csv")
    assert "scored whole, there is no val;" in program(*words, "--part", "val", code=1).stderr
    said, table = program(*words).stdout, files / "molecules.csv"
    assert said.splitlines()[0] == f"{molecule_run} on {table}"
    assert "│ 2 trials │" in re.sub(" +", " ", said.replace("┃", "│"))
    said = program("evaluate", molecule_run, "--part", "val").stdout
    assert said.splitlines()[0] == f"{molecule_run} on val part of {table}"
    for verb in (("evaluate", molecule_run, "--on"), ("predict", molecule_run)):
        said = program(*verb, "pattern-sample", code=1).stderr
        assert "pattern-sample: node and edge features are (3,) and ()" in said


def test_a_score_that_is_not_defined_is_left_open(
    program: Program, files: Path, tmp_path: Path
) -> None:
    """One class has no ROC curve."""
    lines = (files / "graphs.jsonl").read_text().splitlines()
    two, one = tmp_path / "two.jsonl", tmp_path / "one.jsonl"
    two.write_text("\n".join(line for line in lines if '"star"' not in line))
    one.write_text(next(line for line in lines if '"ring"' in line))
    program("train", two, "-o", tmp_path / "run", *BRIEF)
    text = program("evaluate", tmp_path / "run", "--on", one).stdout
    assert re.search(r"AUROC ↑ +│ +– ", text)
    assert re.search(r"accuracy ↑ +│ +[\d.]+ ", text)
    (found,) = json.loads(program("evaluate", tmp_path / "run", "--on", one, "--json").stdout)
    assert found["auroc"] is None


def test_every_target_is_scored_by_itself(program: Program, files: Path, tmp_path: Path) -> None:
    lines = (files / "molecules.csv").read_text().splitlines()
    values = [line.split(",")[2] for line in lines[1:]]
    table, name = tmp_path / "several.csv", f"[z]:o: {'as long as it is wide ' * 3}"[:-1]
    table.write_text("\n".join([f"{lines[0]},{name}", *map(",".join, zip(lines[1:], values))]))
    targets = ("--target", "y", "--target", name)
    said = program("train", table, *targets, "-o", tmp_path / "run:o:", *BRIEF)
    assert re.search(r"MAE/std ↓ .*\n.* MAE ↓ ", said.stdout)
    assert "2 targets together (std: of each target in the training part); each:" in said.stdout
    assert f"{tmp_path}/run:o: --by-target" in said.stdout
    run = Run.load(tmp_path / "run:o:")
    assert run.results["metric"] == "scaled_mae"
    scale = run.scale(0)
    assert scale is not None
    new = tmp_path / "new.csv"
    new.write_text(f"smiles,y,{name}\nCCO,1.5,\nCCC,2.5,\n")
    words = ("evaluate", tmp_path / "run:o:", "--on", new)
    (whole,) = json.loads(program(*words, "--json").stdout)
    assert whole.pop("scaled_mae") == pytest.approx(whole["mae"] / scale.std[0])
    found = json.loads(program(*words, "--by-target", "--json").stdout)
    assert found == {"y": [whole], name: [{"mae": None, "rmse": None, "r2": None}]}
    said = program(*words, "--by-target").stdout
    assert re.search(rf"{re.escape(name)} +│ +– │ +– │ +– │", said), "a line for each target"


def test_a_file_without_targets_cannot_be_scored(
    program: Program, molecule_run: Path, files: Path, tmp_path: Path
) -> None:
    table = tmp_path / "bare.csv"
    table.write_text("mol\nCCO\n")
    said = program("evaluate", molecule_run, "--on", table, "--smiles", "mol", code=1).stderr
    assert f"{table}: does not hold every target to score against" in said
    assert "which the run calls y; add them" in said
    table.write_text("mol,y\nCCO,\n")
    said = program("evaluate", molecule_run, "--on", table, "--smiles", "mol", code=1).stderr
    assert f"{table}: no row has a value of y to score against; add them" in said


@pytest.mark.filterwarnings("default::gradformer.errors.GradformerWarning")
def test_rows_that_a_score_leaves_out_are_listed(
    program: Program, molecule_run: Path, tmp_path: Path
) -> None:
    table = tmp_path / "some.csv"
    table.write_text("smiles,y\nCCO,1.0\nCC(,1.0\nCCN,much\n")
    said = program("evaluate", molecule_run, "--on", table, "--skip-invalid")
    assert "2 of 3 lines are left out: line 3: column 'smiles'" in said.stderr
    assert "; line 4: column 'y'" in said.stderr
    assert "left out" not in said.stdout
