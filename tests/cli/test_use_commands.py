"""What a finished run is good for: scores, predictions, embeddings, pages, an export."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from gradformer import Run
from gradformer.errors import GradformerWarning, InputError
from gradformer.training.keepsakes import load_examples
from gradformer.training.origins import dataset_name, recipe_name
from gradformer.training.recipe import load_recipe
from tests.cli.conftest import Program
from tests.training.test_records import no_file_above

LEFT_OUT = "2 of 4 lines are left out: line 3: column"
"""What is said of the bad rows of new.csv."""


def _renamed(table: Path, folder: Path) -> tuple[Path, str, str]:
    """The table with another name for its SMILES, and the words that say so."""
    (folder / "renamed.csv").write_text(table.read_text().replace("smiles", "mol"))
    return folder / "renamed.csv", "--smiles", "mol"


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_predictions_keep_rows_columns_and_order(
    program: Program, molecule_run: Path, files: Path
) -> None:
    result = program("predict", molecule_run, files / "new.csv")
    rows = _rows(result.stdout)
    assert [row["id"] for row in rows] == ["a", "b", "c,d", "e"]
    assert [row["y_predicted"] == "" for row in rows] == [False, True, False, True]
    assert [row["y_spread"] == "" for row in rows] == [False, True, False, True]
    assert "left empty, line 3: column 'smiles': SMILES 'CC(' cannot be parsed" in result.stderr
    assert "left empty, line 5" in result.stderr


def test_predictions_do_not_take_a_name_that_the_table_has(
    program: Program, molecule_run: Path, tmp_path: Path
) -> None:
    """Predictions of one run may be the table of another."""
    (tmp_path / "new.csv").write_text("smiles,y_predicted\nCCO,low\n")
    (row,) = _rows(program("predict", molecule_run, tmp_path / "new.csv").stdout)
    assert row["y_predicted"] == "low"
    assert float(row["y_predicted_2"])


def test_predictions_need_no_targets_and_look_at_none(
    program: Program, molecule_run: Path, files: Path, tmp_path: Path
) -> None:
    path = tmp_path / "other.csv"
    path.write_text("smiles,y\nCCO,unknown\nCCN,n/k\n")
    assert all(row["y_predicted"] for row in _rows(program("predict", molecule_run, path).stdout))
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
    assert all(row["y_predicted"] for row in _rows(result.stdout))
    assert result.stderr == ""
    assert len(Run.load(graph_run).predict(nx.cycle_graph(5), y=["unknown"]).value) == 1
    said = program("evaluate", graph_run, "--on", path, code=1).stderr
    assert "column 'y': 'unknown' is not one of the classes" in said


def test_a_prediction_is_the_mean_of_the_trials_in_the_users_units(
    program: Program, molecule_run: Path, files: Path
) -> None:
    found = Run.load(molecule_run).predict(["CCO"])
    assert found.trials.shape == (2, 1, 1)
    (first, *_) = _rows(program("predict", molecule_run, files / "new.csv").stdout)
    assert float(first["y_predicted"]) == pytest.approx(found.trials.mean(), rel=1e-4)
    assert float(first["y_spread"]) == pytest.approx(found.trials.std(), rel=1e-4)
    assert 0 < found.value[0, 0] < 20  # y is half the length of a word: 0.5 to 13


def test_classes_come_by_name_with_probabilities(
    program: Program, graph_run: Path, files: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.csv"
    program("predict", graph_run, files / "graphs.jsonl", "-o", out)
    rows = _rows(out.read_text())
    assert len(rows) == 30
    (name,) = [column for column in rows[0] if column.endswith("_predicted")]
    assert {row[name] for row in rows} <= {"ring", "chain", "star"}
    target = name.removesuffix("_predicted")
    for row in rows:
        chances = {word: float(row[f"{target}_p_{word}"]) for word in ("ring", "chain", "star")}
        assert sum(chances.values()) == pytest.approx(1.0, abs=1e-4)
        assert chances[row[name]] == max(chances.values())
        assert f"{target}_spread" not in row  # one trial


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
    rows = _rows(program("predict", graph_run, files / "graphs.jsonl").stdout)
    (name,) = [column for column in rows[0] if column.endswith("_predicted")]
    right = [row[name] == word for row, word in zip(rows, ["ring", "chain", "star"] * 10)]
    assert found["accuracy"] == pytest.approx(np.mean(right))
    assert "accuracy" in program("evaluate", graph_run, "--on", files / "graphs.jsonl").stdout


def test_a_file_has_no_parts_and_a_benchmark_has(
    program: Program, molecule_run: Path, files: Path
) -> None:
    words = ("evaluate", molecule_run, "--on", files / "molecules.csv")
    assert "scored whole" in program(*words, "--part", "val", code=1).stderr
    assert "test part of" not in program(*words).stdout
    assert "val part of" in program("evaluate", molecule_run, "--part", "val").stdout


@pytest.mark.filterwarnings("always::gradformer.errors.GradformerWarning")
def test_a_name_is_a_benchmark_for_every_verb_and_a_path_is_a_folder(
    program: Program, graph_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("MUTAG").mkdir()
    Path("cluster-16").mkdir()
    nowhere = ("--data", tmp_path)
    verbs = (("train",), ("search",), ("predict", graph_run), ("evaluate", graph_run, "--on"))
    for verb in verbs:
        by_name = program(*verb, "MUTAG", *nowhere, code=1).stderr
        assert "MUTAG.zip" in by_name
        assert "of the same name say ./MUTAG" in by_name
        by_path = program(*verb, "./MUTAG", *nowhere, code=1).stderr
        assert "NAME_A.txt" in by_path
        assert "warning" not in by_path
    with pytest.warns(GradformerWarning, match=r"say \./cluster-16"):
        assert recipe_name("cluster-16") == "cluster-16"
    for missing in ("./zinc", Path("zinc")):
        with pytest.raises(InputError, match="zinc does not exist; name a file"):
            recipe_name(missing)
    assert recipe_name(Path("MUTAG")) == "own"
    assert dataset_name(Path("MUTAG"), load_recipe("own")) == "./MUTAG"


def test_a_score_that_is_not_defined_is_left_open(
    program: Program, files: Path, tmp_path: Path
) -> None:
    """One class has no ROC curve."""
    lines = (files / "graphs.jsonl").read_text().splitlines()
    two, one = tmp_path / "two.jsonl", tmp_path / "one.jsonl"
    two.write_text("\n".join(line for line in lines if '"star"' not in line))
    one.write_text(next(line for line in lines if '"ring"' in line))
    program(
        *("train", two, "-o", tmp_path / "run", "-q", "--no-report", "--no-tensorboard"),
        *("--set", "train.epochs=1", "--set", "model.layers=1"),
    )
    text = program("evaluate", tmp_path / "run", "--on", one).stdout
    assert re.search(r"AUROC ↑ +│ +– ", text)
    assert re.search(r"accuracy ↑ +│ +[\d.]+ ", text)
    (found,) = json.loads(program("evaluate", tmp_path / "run", "--on", one, "--json").stdout)
    assert found["auroc"] is None


def test_every_target_is_scored_by_itself(program: Program, files: Path, tmp_path: Path) -> None:
    lines = (files / "molecules.csv").read_text().splitlines()
    values = [line.split(",")[2] for line in lines[1:]]
    table = tmp_path / "several.csv"
    table.write_text("\n".join([lines[0] + ",z", *map(",".join, zip(lines[1:], values))]))
    said = program(
        *("train", table, "--target", "y", "--target", "z", "-o", tmp_path / "run", "-q"),
        *("--set", "train.epochs=1", "--set", "model.layers=1", "--no-report", "--no-tensorboard"),
    )
    assert re.search(r"MAE/std ↓ .*\n.* MAE ↓ ", said.stdout)
    assert "2 targets together (std: of each target in the training part); each:" in said.stdout
    run = Run.load(tmp_path / "run")
    assert run.results["metric"] == "scaled_mae"
    scale = run.scale(0)
    assert scale is not None
    new = tmp_path / "new.csv"
    new.write_text("smiles,y,z\nCCO,1.5,\nCCC,2.5,\n")
    words = ("evaluate", tmp_path / "run", "--on", new)
    (whole,) = json.loads(program(*words, "--json").stdout)
    assert whole.pop("scaled_mae") == pytest.approx(whole["mae"] / scale.std[0])
    found = json.loads(program(*words, "--by-target", "--json").stdout)
    assert found == {"y": [whole], "z": [{"mae": None, "rmse": None}]}
    assert re.search(r"z +│ +– │ +– │", program(*words, "--by-target").stdout)


def test_a_file_without_targets_cannot_be_scored(
    program: Program, molecule_run: Path, files: Path, tmp_path: Path
) -> None:
    table = tmp_path / "bare.csv"
    table.write_text("mol\nCCO\n")
    said = program("evaluate", molecule_run, "--on", table, "--smiles", "mol", code=1).stderr
    assert f"{table}: does not hold every target to score against" in said
    assert "which the run calls y; add them" in said


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


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("evaluate",), "the run's own data"),
        (("evaluate", "--on", "zinc"), "the benchmark zinc"),
        (("predict", "zinc"), "the benchmark zinc"),
        (("explain",), "graphs that have been read"),
    ],
)
def test_what_is_read_already_takes_no_option(
    program: Program, molecule_run: Path, words: tuple[str, ...], what: str
) -> None:
    verb, *rest = words
    said = program(verb, molecule_run, *rest, "--smiles", "mol", code=1).stderr
    assert f"smiles: not an option of {what}; it says how new data are read" in said


@pytest.mark.filterwarnings("default::gradformer.errors.GradformerWarning")
def test_embeddings_have_a_row_for_each_graph_and_node(
    program: Program, molecule_run: Path, files: Path, tmp_path: Path
) -> None:
    words = ("embed", molecule_run, files / "new.csv", "--skip-invalid")
    assert LEFT_OUT in program(*words, "-o", tmp_path / "e.npz").stderr
    with np.load(tmp_path / "e.npz", allow_pickle=False) as found:
        assert found["graphs"].shape == (2, 64)
        assert found["nodes"].shape == (3 + 6, 64)
        assert found["node_ptr"].tolist() == [0, 3, 9]
        assert found["rows"].tolist() == [2, 4]
        # The recipe pools by the mean.
        assert found["graphs"][0] == pytest.approx(found["nodes"][:3].mean(axis=0), abs=1e-5)
    renamed = _renamed(files / "new.csv", tmp_path)
    program("embed", molecule_run, *renamed, "--skip-invalid", "-o", tmp_path / "e.csv")
    assert [row["row"] for row in _rows((tmp_path / "e.csv").read_text())] == ["2", "4"]
    assert ".npz" in program(*words, "-o", tmp_path / "e.txt", code=1).stderr


@pytest.mark.filterwarnings("default::gradformer.errors.GradformerWarning")
def test_explain_writes_a_page_with_every_head(
    program: Program, molecule_run: Path, files: Path, tmp_path: Path
) -> None:
    out = tmp_path / "attention.html"
    renamed = _renamed(files / "new.csv", tmp_path)
    assert (
        LEFT_OUT in program("explain", molecule_run, *renamed, "--skip-invalid", "-o", out).stderr
    )
    page = out.read_text()
    assert all(f"Score of head {head}" in page for head in (1, 2, 3, 4))
    assert "Line 2: CCO" in page
    program("explain", molecule_run)
    names = re.findall(r"<h2>(.*?)</h2>", (molecule_run / "attention.html").read_text())
    kept = load_examples(molecule_run).about["graphs"]
    assert names == [f"Graph {number}" for number in kept] != ["Graph 0", "Graph 1"]


def test_reports_of_one_and_of_several_runs(
    program: Program, molecule_run: Path, graph_run: Path, tmp_path: Path
) -> None:
    program("report", graph_run)
    assert "stratified by seed" in (graph_run / "report.html").read_text()
    out = tmp_path / "both.html"
    said = program("report", molecule_run, graph_run, "-o", out).stdout
    assert molecule_run.name in out.read_text()
    assert "No two runs share data" in said
    lines = said.splitlines()
    shared = not lines[0].startswith("run")  # a line above, where both took as long
    (head, *rows), last = lines[shared : shared + 3], lines[-1]
    assert [word in head for word in ("run", "data", "metric", "test", "parameters")] == [True] * 5
    assert [molecule_run.name in rows[0], graph_run.name in rows[1]] == [True, True]
    assert last == str(out)
    marked = shutil.copytree(molecule_run, tmp_path / "[red]")
    assert "\n[red] " in program("report", marked, graph_run, "-o", out).stdout
    said = program("report", graph_run, graph_run, "-o", out).stdout
    assert said.startswith("data graphs.jsonl, metric")
    name = graph_run.name
    assert re.search(rf"^{name} \(2\) − {name} \(1\) +\+0\.000", said, re.MULTILINE), said


def test_an_exported_model_predicts_the_same_elsewhere(
    program: Program, molecule_run: Path, files: Path, tmp_path: Path
) -> None:
    out = tmp_path / "given"
    program("export", molecule_run, "-o", out, "--trial", "1")
    whole, given = Run.load(molecule_run), Run.load(out)
    smiles = ["CCO", "c1ccccc1"]
    assert given.predict(smiles).value == pytest.approx(whole.predict(smiles).trials[1])
    names = sorted(str(p.relative_to(out)) for p in out.rglob("*") if p.is_file())
    assert names == [
        "README.md",
        "data.json",
        "recipe.yaml",
        "results.json",
        "trials/0/model.safetensors",
        "trials/0/result.json",
    ]
    assert not any(str(files).encode() in (out / name).read_bytes() for name in names)
    assert "MIT" not in (out / "README.md").read_text()  # whose data they are, theirs are the terms
    assert "exists already" in program("export", molecule_run, "-o", out, code=1).stderr


def test_what_cannot_be_a_program_leaves_nothing_behind(
    program: Program, files: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program(
        *("train", files / "graphs.jsonl", "--model", "graphormer", "-o", tmp_path / "run", "-q"),
        *("--set", "train.epochs=1", "--set", "model.layers=1", "--no-report", "--no-tensorboard"),
    )
    out = tmp_path / "given"
    said = program("export", tmp_path / "run", "-o", out, "--program", code=1).stderr
    assert "cannot trace graphormer" in said
    assert len(said.strip().split("\n")) == 1
    assert capfd.readouterr() == ("", "")
    assert not out.exists()
    program("export", tmp_path / "run", "-o", out)


def test_an_export_that_fails_leaves_nothing_behind(
    program: Program, molecule_run: Path, tmp_path: Path
) -> None:
    """A trial of a run that is not finished has weights, but no card; the half stood in the way."""
    run, out = tmp_path / "run", tmp_path / "given"
    shutil.copytree(molecule_run, run)
    (run / "results.json").rename(tmp_path / "results.json")
    said = program("export", run, "-o", out, "--trial", "1", code=1).stderr
    assert said.startswith(f"error: {run}: not finished; continue: gradformer train --resume")
    assert {path.name for path in tmp_path.iterdir()} == {"run", "results.json"}
    (tmp_path / "results.json").rename(run / "results.json")
    program("export", run, "-o", out, "--trial", "1")
    assert Run.load(out).trials == [0]


def test_a_model_is_exported_into_an_empty_folder_that_stays_the_same(
    program: Program, graph_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was replaced by another of its name: not where a link or the present folder is meant."""
    (tmp_path / "here").mkdir()
    (tmp_path / "link").symlink_to("here")
    monkeypatch.chdir(tmp_path / "here")
    with no_file_above(1000):
        program("export", graph_run, "-o", tmp_path / "link", code=1)
    assert not any(Path().iterdir())
    program("export", graph_run, "-o", tmp_path / "link")
    assert Run.load(".").trials == [0]
    shutil.rmtree("trials")
    for path in Path().iterdir():
        path.unlink()
    assert program("export", graph_run, "-o", ".").stdout == ".\n"
    assert "gradformer predict here graphs.jsonl" in Path("README.md").read_text()


def test_an_export_that_was_killed_does_not_stand_in_the_way_of_the_next(
    program: Program, graph_run: Path, tmp_path: Path
) -> None:
    code = (
        "import os, signal, sys\n"
        "from gradformer.training import export, run\n"
        "export.model_card = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "export.export(run.Run.load(sys.argv[1]), sys.argv[2])"
    )
    out = tmp_path / "given"
    killed = subprocess.run([sys.executable, "-c", code, graph_run, out])
    assert killed.returncode == -signal.SIGKILL
    assert "not a run" in program("evaluate", out, code=1).stderr
    program("export", graph_run, "-o", out)
    assert Run.load(out).trials == [0]
    assert not any(path.name.startswith(".") for path in out.iterdir())
    assert "gradformer predict given graphs.jsonl" in (out / "README.md").read_text()


def test_a_model_of_a_folder_called_as_a_benchmark_is_not_one_of_the_benchmark(
    program: Program, graph_run: Path, tmp_path: Path
) -> None:
    run, out = tmp_path / "run", tmp_path / "given"
    shutil.copytree(graph_run, run)
    recipe = replace(Run.load(run).recipe, dataset="data/MUTAG")
    (run / "recipe.yaml").write_text(recipe.to_yaml())
    program("export", run, "-o", out)
    said = program("train", "--recipe", out / "recipe.yaml", code=1).stderr
    assert "is for data of your own; name them too" in said


def test_an_exported_model_says_that_it_has_no_data(
    program: Program, molecule_run: Path, tmp_path: Path
) -> None:
    program("export", molecule_run, "-o", tmp_path / "given")
    assert "--on FILE" in program("evaluate", tmp_path / "given", code=1).stderr


def test_weights_that_do_not_fit_are_named(
    program: Program, graph_run: Path, files: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(graph_run, run)
    weights = run / "trials" / "0" / "model.safetensors"
    kept = load_file(weights)
    save_file({f"old.{name}": tensor for name, tensor in kept.items()}, weights)
    said = program("predict", run, files / "graphs.jsonl", code=1).stderr
    assert f"{weights}: not the weights of this gradformer" in said
    assert "another version" in said
    weights.write_bytes(b"no weights")
    assert "damaged" in program("predict", run, files / "graphs.jsonl", code=1).stderr


@pytest.mark.filterwarnings("always::gradformer.errors.GradformerWarning")
def test_lost_weights_are_told_of_and_made_again(
    program: Program, molecule_run: Path, files: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(molecule_run, run)
    weights = run / "trials" / "1" / "model.safetensors"
    kept = weights.read_bytes()
    weights.unlink()
    words = ("predict", run, files / "new.csv")
    said = "the weights of 1 of its trials are not there (1)"
    assert said in program(*words).stderr
    (run / "trials" / "0" / "model.safetensors").unlink()
    assert "makes lost weights again where checkpoints are kept" in program(*words, code=1).stderr
    program("train", "--resume", run, "--quiet", "--no-report", "--no-tensorboard")
    assert weights.read_bytes() == kept
    assert said not in program(*words).stderr
    results = [line for line in Run.load(run).record if line["kind"] == "result"]
    assert [line["trial"] for line in results] == [0, 1]


def test_links_and_pipes_stay_what_they_are(
    program: Program, graph_run: Path, files: Path, tmp_path: Path
) -> None:
    words = ("predict", graph_run, files / "graphs.jsonl", "-o")
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to("real.csv")
    program(*words, tmp_path / "link.csv")
    assert (tmp_path / "link.csv").is_symlink()
    rows = (tmp_path / "real.csv").read_bytes()
    assert len(_rows(rows.decode())) == 30
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    program(*words, tmp_path / "pipe")
    assert os.read(reading, 1 << 20) == rows
    os.close(reading)
    kept = os.dup(1)
    with open(tmp_path / "all.csv", "wb", buffering=0) as both:
        both.write(b"before\n")
        os.dup2(both.fileno(), 1)
        program(*words, "/dev/stdout")
        os.dup2(kept, 1)
        both.write(b"after\n")
    os.close(kept)
    assert (tmp_path / "all.csv").read_bytes() == b"before\n" + rows + b"after\n"


def test_an_export_that_fails_leaves_nothing_and_full_output_is_one_line(
    program: Program, graph_run: Path, files: Path, tmp_path: Path
) -> None:
    out = tmp_path / "given"
    with no_file_above(1000):
        said = program("export", graph_run, "-o", out, code=1).stderr
    assert "given: cannot be written (File too large)" in said
    assert not out.exists()
    words = ["-m", "gradformer", "predict", graph_run, files / "graphs.jsonl"]
    with open("/dev/full", "w") as full:
        ended = subprocess.run([sys.executable, *words], stdout=full, stderr=subprocess.PIPE)
    assert ended.returncode == 1
    assert b"error: standard output: cannot be written (No space left" in ended.stderr


@pytest.mark.parametrize("verb", ["predict", "embed", "explain", "report"])
def test_folders_on_the_way_are_made_and_a_folder_is_no_file(
    program: Program, graph_run: Path, files: Path, tmp_path: Path, verb: str
) -> None:
    words = (verb, graph_run, *(() if verb == "report" else (files / "graphs.jsonl",)))
    out = tmp_path / "new" / "folder" / "out.csv"
    program(*words, "--out", out)
    assert out.is_file()
    folder = tmp_path / "folder.csv"
    folder.mkdir()
    assert "is a folder" in program(*words, "--out", folder, code=1).stderr
    said = program(*words, "--out", out / "below.csv", code=1).stderr
    assert "choose another place" in said
    assert "--resume" not in said


def test_models_lists_all_with_parameters(program: Program) -> None:
    """Into a pipe each model is one line."""
    from gradformer.model.base import MODELS
    from gradformer.weights import published

    lines = program("models").stdout.splitlines()
    models, (_, *trained) = lines[1 : len(MODELS) + 1], lines[len(MODELS) + 1 :]
    assert {line.split()[0] for line in models} == MODELS.keys()
    assert all(re.match(r"\w+ +\d+,\d+ +\d+ +\d+  \S", line) for line in models)
    assert [line.split()[0] for line in trained] == ["trained", *published()]
    one = program("models", "gin").stdout
    assert "proven against  torch_geometric" in one
    assert re.search(r"^layers +16 +number of layers", one, re.MULTILINE)


@pytest.mark.parametrize("words", [("models", "gradformer"), ("data", "list")])
def test_nothing_is_cut_in_a_terminal_of_80_columns(words: tuple[str, ...]) -> None:
    """A pseudo-terminal: rich asks whether there is one."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "TERM": "dumb"}
    code = "from gradformer.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=theirs, stdin=theirs, env=environment
    )
    os.close(theirs)
    text = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while piece := os.read(ours, 4096):
            text += piece
    os.close(ours)
    assert process.wait() == 0
    lines = text.decode().splitlines()
    assert len(lines) > 10
    assert max(map(len, lines)) <= 80
    assert "…" not in text.decode().replace("model.…", "")


def test_doctor_says_which_engines_work_and_why_not(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons = {"fused": "no compiler [at all]"}
    monkeypatch.setattr(
        "gradformer.attention.selfcheck.why_not", lambda engine, device: reasons.get(engine)
    )
    text = program("doctor").stdout
    assert re.search(r"^engine reference +works *$", text, re.MULTILINE)
    assert re.search(r"^engine fused +no +no compiler \[at all\] *$", text, re.MULTILINE)
    assert re.search(r"^engine auto +works +what is used unless", text, re.MULTILINE)
    assert re.search(rf"^torch +{re.escape(torch.__version__)}", text, re.MULTILINE)
