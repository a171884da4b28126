"""``gradformer predict``: rows, columns, classes and units of the user's table."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from gradformer import Run
from gradformer.errors import InputError
from tests.cli.conftest import Program, csv_rows


def test_predictions_keep_rows_columns_and_order(
    program: Program, molecule_run: Path, files: Path
) -> None:
    result = program("predict", molecule_run, files / "new.csv")
    rows = csv_rows(result.stdout)
    assert [row["id"] for row in rows] == ["a", "b", "c,d", "e"]
    assert [row["y_predicted"] == "" for row in rows] == [False, True, False, True]
    assert [row["y_spread"] == "" for row in rows] == [False, True, False, True]
    assert "left empty, line 3: column 'smiles': SMILES 'CC(' cannot be parsed" in result.stderr
    assert "left empty, line 5" in result.stderr


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_a_long_table_is_predicted_some_molecules_at_a_time(
    at_once: int,
    program: Program,
    molecule_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows without an answer stand before the first part, between parts and behind the last."""
    new = tmp_path / "new.csv"
    words = ["CC(", "CCO", "CC", "", "CC)", "CCN", "C,more", "c1ccccc1", "CCCC", "x"]
    new.write_text("\n".join(["smiles,id", *(f"{word},{k}" for k, word in enumerate(words))]))
    words = ["predict", molecule_run, new, "--batch-size", "1"]
    whole, sizes = program(*words), []
    pack = Run.pack

    def noted(run: Run, data: Any, *rest: Any, **options: Any) -> Any:
        sizes.append(data.arrays.num_graphs)
        return pack(run, data, *rest, **options)

    monkeypatch.setattr("gradformer.cli.predict.AT_ONCE", at_once)
    monkeypatch.setattr(Run, "pack", noted)
    parts = program(*words)
    assert (parts.stdout, parts.stderr) == (whole.stdout, whole.stderr)
    assert sizes == {1: [1] * 5, 2: [2, 2, 1], 3: [3, 2]}[at_once]
    assert [row["y_predicted"] != "" for row in csv_rows(parts.stdout)] == [
        *(False, True, True, False, False, True, False, True, True, False)
    ]


def test_predictions_are_written_as_the_spreadsheet_writes_its_table(
    program: Program, molecule_run: Path, tmp_path: Path
) -> None:
    """1.5 between commas is a date to a spreadsheet whose decimal mark is a comma."""
    new, out = tmp_path / "neu.csv", tmp_path / "out.csv"
    new.write_bytes("\ufeffNr;smiles;Säure;Ort\r\n007;CCO;1,5;1,2\r\n008;CC;;\r\n".encode())
    program("predict", molecule_run, new, "-o", out)
    text = out.read_bytes().decode()
    assert text.startswith("\ufeffNr;smiles;Säure;Ort;y_predicted;y_spread\n007;CCO;1,5;1,2;")
    assert all(re.fullmatch(r"-?\d+,\d+", cell) for cell in text.splitlines()[2].split(";")[4:])
    new.write_text("sep=;\nNr;smiles\n007;CCO\n")
    stated = program("predict", molecule_run, new).stdout
    assert stated.startswith("sep=;\nNr;smiles;y_predicted;y_spread\n007;CCO;")
    new.write_text("Nr;smiles;Ort\n007;CCO;1.5\n")
    (line,) = program("predict", molecule_run, new).stdout.splitlines()[1:]
    assert line.startswith("007;CCO;1.5;")
    assert "," not in line


def test_predictions_keep_letters_that_the_terminal_has_not(
    molecule_run: Path, tmp_path: Path
) -> None:
    """They are data: what is only shown may have escapes."""
    (tmp_path / "new.csv").write_text("Säure,smiles\nŁódź,CCO\n", encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "-m", "gradformer", "predict", molecule_run, tmp_path / "new.csv"],
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        stdout=subprocess.PIPE,
        check=True,
    )
    assert ended.stdout.decode().startswith("Säure,smiles,y_predicted,y_spread\nŁódź,CCO,")


def test_predictions_do_not_take_a_name_that_the_table_has(
    program: Program, molecule_run: Path, tmp_path: Path
) -> None:
    """Predictions of one run may be the table of another; rows that have none keep their cells."""
    (tmp_path / "new.csv").write_text("mol,y_predicted\nCCO,low\n[na]:o:C(,high\nCC\n")
    said = program("predict", molecule_run, tmp_path / "new.csv", "--smiles", "mol")
    first, *empty = csv_rows(said.stdout)
    assert first["y_predicted"] == "low"
    assert float(first["y_predicted_2"])
    assert [[*row.values()] for row in empty] == [["[na]:o:C(", "high", "", ""], ["CC", "", "", ""]]
    assert "left empty, line 3: column 'mol': SMILES '[na]:o:C(' cannot be" in said.stderr
    assert "left empty, line 4: " in said.stderr


def test_predictions_need_no_targets_and_look_at_none(
    program: Program, molecule_run: Path, files: Path, tmp_path: Path
) -> None:
    path = tmp_path / "other.csv"
    path.write_text("smiles,y\nCCO,unknown\nCCN,n/k\n")
    assert all(
        row["y_predicted"] for row in csv_rows(program("predict", molecule_run, path).stdout)
    )
    run = Run.load(molecule_run)
    assert len(run.predict(path).value) == len(run.embed(path).graphs) == 2
    program("explain", molecule_run, path, "-o", tmp_path / "attention.html")
    assert "Line 3: CCN" in (tmp_path / "attention.html").read_text()
    with pytest.raises(InputError, match="column 'y': 'unknown' is not a number"):
        run.evaluate(path)
    assert len(run.predict(["CCO"], y=["unknown"]).value) == 1


def test_nor_do_predictions_of_other_graphs(
    program: Program, graph_run: Path, files: Path, tmp_path: Path
) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text((files / "graphs.jsonl").read_text().replace('"ring"', '"unknown"'))
    result = program("predict", graph_run, path)
    assert all(row["y_predicted"] for row in csv_rows(result.stdout))
    assert result.stderr == ""
    assert len(Run.load(graph_run).predict(nx.cycle_graph(5), y=["unknown"]).value) == 1
    said = program("evaluate", graph_run, "--on", path, code=1).stderr
    assert "column 'y': 'unknown' is not one of the classes" in said


def test_a_graph_that_cannot_be_read_keeps_its_row(
    program: Program, graph_run: Path, tmp_path: Path
) -> None:
    path, pair = tmp_path / "new.jsonl", {"num_nodes": 2, "edges": [[0, 1]]}
    path.write_text("\n".join(map(json.dumps, (pair, {}, pair))))
    rows = csv_rows(program("predict", graph_run, path).stdout)
    found = [(row["row"], row["y_predicted"] == "") for row in rows]
    assert found == [("1", False), ("2", True), ("3", False)]
    path.write_text("\n".join(map(json.dumps, (pair | {"x": [[0], [1]]}, {}))))
    said = program("predict", graph_run, path, code=1).stderr
    assert "of 2 lines none is valid; the first, line 1: " in said


def test_a_model_of_nodes_gives_each_of_them_a_row(program: Program, tmp_path: Path) -> None:
    path, features = tmp_path / "new.jsonl", ([[0], [2], [1]], [[3]], [[2]])
    graphs = [{"num_nodes": len(x), "edges": [[0, len(x) - 1]], "x": x} for x in features]
    path.write_text("\n".join(map(json.dumps, graphs)))  # the second has an unknown category
    rows = csv_rows(program("predict", "pattern", path).stdout)
    assert [row["row"] + row["node"] for row in rows] == ["10", "11", "12", "30"]
    run = Run.load("pattern")
    chances = run.predict(run.read(path, skip_invalid=True)).value[:, 1]
    assert [float(row["y_p_1"]) for row in rows] == pytest.approx(chances.tolist(), rel=1e-5)


def test_a_prediction_is_the_mean_of_the_trials_in_the_users_units(
    program: Program, molecule_run: Path, files: Path
) -> None:
    found = Run.load(molecule_run).predict(["CCO"])
    assert found.trials.shape == (2, 1, 1)
    (first, *_) = csv_rows(program("predict", molecule_run, files / "new.csv").stdout)
    assert float(first["y_predicted"]) == pytest.approx(found.trials.mean(), rel=1e-4)
    assert float(first["y_spread"]) == pytest.approx(found.trials.std(ddof=1), rel=1e-4)
    assert 0 < found.value[0, 0] < 20  # y is half the length of a word: 0.5 to 13


def test_classes_come_by_name_with_probabilities(
    program: Program, graph_run: Path, files: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.csv"
    said = program("predict", graph_run, files / "graphs.jsonl", "-o", out)
    assert (said.stdout, said.stderr) == ("", f"30 predictions in {out}\n")
    rows = csv_rows(out.read_text())
    assert len(rows) == 30
    (name,) = [column for column in rows[0] if column.endswith("_predicted")]
    assert {row[name] for row in rows} <= {"ring", "chain", "star"}
    target = name.removesuffix("_predicted")
    for row in rows:
        chances = {word: float(row[f"{target}_p_{word}"]) for word in ("ring", "chain", "star")}
        assert sum(chances.values()) == pytest.approx(1.0, abs=1e-4)
        assert chances[row[name]] == max(chances.values())
        assert f"{target}_spread" not in row  # one trial
    tested = [
        (row[target], ["ring", "chain", "star"][(int(row["row"]) - 1) % 3])
        for row in csv_rows((graph_run / "trials" / "0" / "rows.csv").read_text())
        if row["part"] == "test"
    ]
    assert len(tested) == 3
    assert all(kept == right for kept, right in tested)


def test_a_row_without_a_finite_answer_is_left_empty_and_named(
    program: Program, tmp_path: Path
) -> None:
    """A class was stated for it: 0.5 is not less than a number that is none."""
    lines = [
        {"num_nodes": 2, "edges": [[0, 1]], "x": [[k / 40], [0.5]], "y": ["safe", "toxic"][k % 2]}
        for k in range(40)
    ]
    graphs, new, run = tmp_path / "graphs.jsonl", tmp_path / "new.jsonl", tmp_path / "run"
    graphs.write_text("\n".join(map(json.dumps, lines)))
    short = ["--set", "train.epochs=1", "--set", "model.layers=1", "--quiet", "--no-report"]
    program("train", graphs, *short, "--out", run)
    far = {"num_nodes": 2, "edges": [[0, 1]], "x": [[1e30], [0.5]]}
    new.write_text("\n".join(map(json.dumps, [far, *lines[:2], far])))
    result = program("predict", run, new, "-o", tmp_path / "out.csv")
    rows = csv_rows((tmp_path / "out.csv").read_text())
    assert [row["row"] for row in rows] == ["1", "2", "3", "4"]
    assert [row["y_predicted"] == "" for row in rows] == [True, False, False, True]
    assert "2 predictions in" in result.stderr
    for line in (1, 4):
        assert f"left empty, line {line}: the model's answer is not a finite" in result.stderr
    new.write_text(json.dumps(far))
    assert csv_rows(program("predict", run, new).stdout)[0]["y_predicted"] == ""


@pytest.mark.parametrize("name", ["p.csv.gz", "p.parquet", "p.tsv", "p"])
def test_predictions_are_not_written_under_the_name_of_another_format(
    name: str, program: Program, molecule_run: Path, files: Path, tmp_path: Path
) -> None:
    result = program("predict", molecule_run, files / "new.csv", "-o", tmp_path / name, code=1)
    assert f"{name}: expected a name that ends in .csv" in result.stderr
    assert not (tmp_path / name).exists()
