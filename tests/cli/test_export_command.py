"""``gradformer export``: one model as a folder of its own, all of it or nothing."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gradformer import Run
from gradformer.training import export
from tests.cli.conftest import BRIEF, Program
from tests.training.toy import no_file_above


def test_an_exported_model_predicts_the_same_elsewhere(
    program: Program, molecule_run: Path, files: Path, tmp_path: Path
) -> None:
    smiles = ["CCO", "c1ccccc1"]
    for trial, predicted in enumerate(Run.load(molecule_run).predict(smiles).trials):
        out = tmp_path / f"given-{trial}"
        program("export", molecule_run, "-o", out, "--trial", str(trial))
        assert Run.load(out).predict(smiles).value == pytest.approx(predicted)
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
    out, other = tmp_path / "given", ("--model", "graphormer")
    program("train", files / "graphs.jsonl", *other, "-o", tmp_path / "run", *BRIEF)
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
    run, out = shutil.copytree(molecule_run, tmp_path / "run"), tmp_path / "given"
    (run / "results.json").rename(tmp_path / "results.json")
    said = program("export", run, "-o", out, "--trial", "1", code=1).stderr
    assert said.startswith(f"error: {run}: not finished; continue: gradformer train --resume")
    assert {path.name for path in tmp_path.iterdir()} == {"run", "results.json"}
    (tmp_path / "results.json").rename(run / "results.json")
    program("export", run, "-o", out, "--trial", "1")
    assert Run.load(out).trials == [0]


def test_a_seed_that_was_added_is_exported_once_all_have_ended(
    program: Program, molecule_run: Path, tmp_path: Path
) -> None:
    run, out = shutil.copytree(molecule_run, tmp_path / "run"), tmp_path / "given"
    shutil.copytree(run / "trials" / "1", run / "trials" / "2")
    said = program("export", run, "-o", out, "--trial", "2", code=1).stderr
    assert said.startswith(f"error: {run}: seeds were added that have not all ended, ")
    assert said.endswith(f"; continue: gradformer train --resume {run}\n")
    assert not out.exists()


def test_a_model_is_exported_into_an_empty_folder_that_stays_the_same(
    program: Program, graph_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was replaced by another of its name: not where a link or the present folder is meant."""
    (tmp_path / "here").mkdir()
    (tmp_path / "link").symlink_to("here")
    monkeypatch.chdir(tmp_path / "here")
    for out in (tmp_path / "link", tmp_path / "new"):
        with no_file_above(1000):
            said = program("export", graph_run, "-o", out, code=1).stderr
        assert f"{out.name}: cannot be written (File too large)" in said
    assert not any(Path().iterdir())
    assert not (tmp_path / "new").exists()
    program("export", graph_run, "-o", tmp_path / "link")
    assert Run.load(".").trials == [0]
    shutil.rmtree("trials")
    for path in Path().iterdir():
        path.unlink()
    assert program("export", graph_run, "-o", ".").stdout == ".\n"
    assert "gradformer predict here graphs.jsonl" in Path("README.md").read_text()


def test_a_disk_that_turns_read_only_is_what_is_said(
    program: Program, graph_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That nothing could be tidied either was said in its place, as a bug."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    for name in ("unlink", "replace"):
        monkeypatch.setattr(Path, name, refuse)
    said = program("export", graph_run, "-o", tmp_path / "given", code=1).stderr
    assert "result.json: cannot be written (Read-only file system); make room or mend" in said


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


def test_of_two_exports_to_one_folder_the_second_is_refused(
    program: Program, graph_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It removed what the first had written, which then said that all was well."""
    out, card, said = tmp_path / "given", export.model_card, []

    def meanwhile(*arguments: Any) -> str:
        monkeypatch.setattr(export, "model_card", card)
        said.append(program("export", graph_run, "-o", out, code=1).stderr)
        return card(*arguments)

    monkeypatch.setattr(export, "model_card", meanwhile)
    program("export", graph_run, "-o", out)
    assert said == [
        f"error: {out}: another process is at work there; wait for it, or choose another folder\n"
    ]
    assert Run.load(out).trials == [0]
    assert Run.load(out).model() is not None
    assert not any(path.name.startswith(".") for path in out.iterdir())


def test_the_present_folder_is_exported_beside_itself(
    program: Program, graph_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was called a bug, and from a folder of the run the model was put into that."""
    run, out = shutil.copytree(graph_run, tmp_path / "run"), tmp_path / "run-export"
    for here, there in ((tmp_path, "run"), (run, "."), (run / "trials", "..")):
        monkeypatch.chdir(here)
        assert Path(program("export", there).stdout.strip()).resolve() == out
        shutil.rmtree(out)


def test_a_model_of_a_folder_called_as_a_benchmark_is_not_one_of_the_benchmark(
    program: Program, graph_run: Path, tmp_path: Path
) -> None:
    run, out = shutil.copytree(graph_run, tmp_path / "run"), tmp_path / "run-export"
    recipe = replace(Run.load(run).recipe, dataset="data/MUTAG")
    (run / "recipe.yaml").write_text(recipe.to_yaml())
    assert program("export", run).stdout == f"{out}\n"
    said = program("train", "--recipe", out / "recipe.yaml", code=1).stderr
    assert "is for data of your own; name them too" in said


def test_an_exported_model_says_that_it_has_no_data(
    program: Program, molecule_run: Path, tmp_path: Path
) -> None:
    program("export", molecule_run, "-o", tmp_path / "given")
    assert "--on FILE" in program("evaluate", tmp_path / "given", code=1).stderr
