"""``gradformer train`` from the first word to the report."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from gradformer.cli.tables import print_results
from gradformer.cli.train import _finish
from gradformer.errors import GradformerWarning
from gradformer.training.run import Run
from tests.cli.conftest import BRIEF, QUIET, Program, csv_rows


def test_a_run_of_molecules_has_its_files_and_a_result_of_each_trial(molecule_run: Path) -> None:
    for name in ("recipe.yaml", "record.jsonl", "results.json", "report.html"):
        assert (molecule_run / name).is_file()
    results = json.loads((molecule_run / "results.json").read_text())
    assert results["metric"] == "mae"
    assert len(results["test"]["values"]) == 2
    rows = csv_rows((molecule_run / "trials" / "1" / "rows.csv").read_text())
    assert [int(row["row"]) for row in rows] == list(range(2, 62)), "lines of the file"
    errors = [abs(float(r["y"]) - float(r["y_predicted"])) for r in rows if r["part"] == "test"]
    assert np.mean(errors) == pytest.approx(results["test"]["values"][1], rel=1e-4)


def test_without_arguments_the_sample_is_trained(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADFORMER_SMOKE", "1")
    monkeypatch.chdir(tmp_path)
    result = program("train")
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name.startswith("pattern-sample-gradformer-")
    assert "weighted accuracy" in result.stdout
    assert f"\nrun      runs/{run.name}\nreport   runs/{run.name}/report.html\n" in result.stdout
    assert (run / "report.html").is_file()


@pytest.mark.slow
def test_the_sample_is_learned(program: Program, tmp_path: Path) -> None:
    """Two of its three epochs are enough."""
    program("train", "--out", tmp_path / "run", "--quiet", "--set", "train.epochs=2")
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["test"]["mean"] >= 0.75


def test_options_reach_the_recipe(program: Program, files: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    program(
        *("train", files / "graphs.jsonl", "--model", "gin", "--seed", "8", "--split", "random"),
        *("--set", "model.layers=2", "--set", "train.epochs=1", "--set", "data.split=random"),
        *("-o", out, "-q", "--no-report"),
    )
    recipe = yaml.safe_load((out / "recipe.yaml").read_text())
    assert (recipe["model"]["name"], recipe["model"]["layers"]) == ("gin", 2)
    assert (recipe["seed"], recipe["data"]["split"]) == (8, "random")
    assert not (out / "report.html").exists()


def test_fine_tuning_takes_the_model_of_a_run_and_learns_another_target(
    program: Program, files: Path, molecule_run: Path, tmp_path: Path
) -> None:
    learn = (files / "molecules.csv", "--target", "kind", "--weights", molecule_run)
    program("train", *learn, "--set", "train.epochs=1", *QUIET, "--out", tmp_path / "run")
    assert Run.load(tmp_path / "run").recipe.model == Run.load(molecule_run).recipe.model
    program("search", *learn, "--range", "train.lr=1e-4,1e-3", "--samples", "2", "--set",
            "train.epochs=1", "--out", tmp_path / "search")  # fmt: skip
    best = yaml.safe_load((tmp_path / "search" / "best.yaml").read_text())
    assert best["train"]["weights"] == str(molecule_run)
    assert not list(tmp_path.glob("search/**/rows.csv")), "their test part is the validation part"


def test_trials_that_ended_before_a_metric_was_known_stand_beside_those_that_have_it(
    program: Program, molecule_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(molecule_run, run)
    for path in (run / "results.json", run / "trials" / "1" / "result.json"):
        result = json.loads(path.read_text())
        last = result["trials"][1] if "trials" in result else result
        for part in ("val", "test"):
            del last[part]["r2"]
        path.write_text(json.dumps(result))
    print_results(Run.load(run))
    assert re.search(r"R² ↑ +│ +[−\d.]+ │ +[−\d.]+ │", capsys.readouterr().out)
    program("report", run)


def test_a_recipe_file_takes_the_place_of_the_packages(
    program: Program, files: Path, tmp_path: Path
) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("base: own\nmodel: {layers: 1, width: 32}\ntrain: {epochs: 1}\n")
    out = tmp_path / "run"
    program("train", files / "graphs.jsonl", "--recipe", recipe, "-o", out, "-q", "--no-report")
    kept = yaml.safe_load((out / "recipe.yaml").read_text())
    assert kept["model"]["width"] == 32
    assert kept["dataset"].endswith("graphs.jsonl")


def test_a_file_whose_name_is_not_utf8_is_refused_before_anything_is_trained(
    program: Program, files: Path, tmp_path: Path
) -> None:
    """As archives of old have them; it was called a bug."""
    graphs = shutil.copy(files / "graphs.jsonl", tmp_path / os.fsdecode(b"m\xfcll.jsonl"))
    said = program("train", graphs, "--out", tmp_path / "run", *BRIEF, code=1).stderr
    assert "data.json: cannot be written, since the name of a file or folder in it is not" in said
    assert not (tmp_path / "run" / "data.json").exists()


def test_a_run_is_not_overwritten_unless_asked(
    program: Program, files: Path, tmp_path: Path
) -> None:
    words = ("train", files / "graphs.jsonl", "-o", tmp_path / "run", *BRIEF)
    program(*words)
    before = (tmp_path / "run" / "results.json").read_bytes()
    assert "--overwrite" in program(*words, code=1).stderr
    assert (tmp_path / "run" / "results.json").read_bytes() == before
    program(*words, "--set", "train.epochs=2", "--overwrite")
    assert yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text())["train"]["epochs"] == 2


@pytest.mark.filterwarnings("default::gradformer.errors.GradformerWarning")
def test_a_run_without_a_good_trial_is_a_failure(
    program: Program, files: Path, tmp_path: Path
) -> None:
    huge = ["train.lr=1e38", "train.clip=0", "train.epochs=1", "model.layers=1"]
    settings = [word for setting in huge for word in ("--set", setting)]
    out = tmp_path / "run"
    ended = program("train", files / "graphs.jsonl", "-o", out, "-q", *settings, code=1)
    assert f"error: {out}: no trial has a test score" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_run_with_a_good_trial_is_none(
    molecule_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(molecule_run, tmp_path / "run"))
    results = json.loads((folder / "results.json").read_text())
    results["trials"][1]["test"], results["diverged"] = None, [1]
    (folder / "results.json").write_text(json.dumps(results))
    with pytest.warns(GradformerWarning, match="trial 1 diverged: it counts nowhere"):
        _finish(Run.load(folder), report=False)
    told = capsys.readouterr().out
    size = f"{results['trials'][0]['parameters']:,}"
    assert re.match(
        rf"gradformer on .*molecules\.csv: 1 trial, {size} parameters, .* of training\n", told
    )
    assert told.endswith(f"test at the epoch of the best validation\nrun      {folder}\n")


@pytest.mark.filterwarnings("default::gradformer.errors.GradformerWarning")
def test_bad_rows_stop_or_are_left_out(program: Program, files: Path, tmp_path: Path) -> None:
    table = tmp_path / "some.csv"
    table.write_text((files / "molecules.csv").read_text() + "bad,CC(,1.0,chain\n")
    words = ("train", table, "--target", "y", "-o", tmp_path / "run", *BRIEF)
    stopped = program(*words, code=1)
    assert "line 62" in stopped.stderr
    assert "--skip-invalid" in stopped.stderr
    told = program(*words, "--skip-invalid").stderr
    assert "1 of 61 lines are left out: line 62" in told


def test_a_run_whose_data_have_moved_is_continued_with_them(
    program: Program, files: Path, tmp_path: Path
) -> None:
    table, moved, run = tmp_path / "here.csv", tmp_path / "there.csv", tmp_path / "run"
    shutil.copy(files / "molecules.csv", table)
    begun = ("train", table, "--target", "y", "--set", "train.epochs=1", "-o", run)
    program(*begun, "--budget", "0", *QUIET)
    table.rename(moved)
    said = program("train", "--resume", run, *QUIET, code=1).stderr
    assert f"or give them: gradformer train FILE --resume {run}," in said
    said = program("train", "pattern-sample", "--resume", run, *QUIET, code=1).stderr
    assert "the data are not those that the run began with" in said
    before = json.loads((run / "data.json").read_text())
    program("train", moved, "--resume", run, *QUIET)
    assert Run.load(run).trials == [0]
    assert before["origin"].pop("path") == str(table)
    after = json.loads((run / "data.json").read_text())
    assert after["origin"].pop("path") == str(moved)
    assert after == before
    program("evaluate", run)


@pytest.mark.parametrize("other", ["pattern", "cluster-16"])
def test_a_run_goes_on_with_no_other_benchmark(
    other: str, program: Program, tmp_path: Path
) -> None:
    sample = ("train", "pattern-sample", "--no-report", "--no-tensorboard")
    program(*sample, "--out", tmp_path / "run", "--budget", "0")
    said = program("train", other, "--resume", tmp_path / "run", code=1).stderr
    assert "the data are not those that the run began with" in said
    program(*sample, "--resume", tmp_path / "run", "--budget", "0")


def test_resume_takes_no_other_options(
    program: Program, graph_run: Path, molecule_run: Path
) -> None:
    for option in ("--model=gin", "--set=train.lr=1", "--skip-invalid"):
        said = program("train", "--resume", graph_run, option, code=1).stderr
        name = option.partition("=")[0]
        assert said.startswith(f"error: {name}: cannot go with --resume, which continues a run as ")
    said = program("search", "--resume", graph_run, "--range=train.lr=1,2", code=1).stderr
    assert said.startswith("error: --range: cannot go with --resume, which continues a search as")
    refused = program("train", "--resume", molecule_run, "--trials", "1", code=1)
    assert "molecule-run has 2: seeds can only be added" in refused.stderr


@pytest.mark.filterwarnings("default::gradformer.errors.GradformerWarning")
def test_a_model_that_cannot_be_scored_is_told_of_and_exported(
    program: Program, tmp_path: Path
) -> None:
    """A feature of a test graph is so large that the answer is not finite."""
    lines = [
        {"num_nodes": 2, "edges": [[0, 1]], "x": [[0.5], [k / 8]], "y": 0.5 + k, "split": part}
        for part in ("train", "val", "test")
        for k in range(4)
    ]
    lines[-1]["x"] = [[3e38], [-3e38]]
    file = tmp_path / "graphs.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = tmp_path / "run"
    told = program("train", file, "-o", out, *BRIEF)
    assert json.loads((out / "results.json").read_text())["trials"][0]["test"]["mae"] is None
    assert "trial 0 has no test score and counts nowhere" in " ".join(told.stderr.split())
    program("export", out, "--out", tmp_path / "model")
    assert ", test – |" in (tmp_path / "model" / "README.md").read_text()
