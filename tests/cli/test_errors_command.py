"""Errors are one line with the remedy, and exit codes are what the help says."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from gradformer.cli.app import app
from gradformer.errors import spent
from tests.cli.conftest import Program


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("train", "zinx"), "did you mean 'zinc'?"),
        (("train", "mutag", "--model", "gradfromer"), "did you mean 'gradformer'?"),
        (("train", "mutag", "--set", "model.layres=3"), "did you mean 'layers'?"),
        (("train", "mutag", "--set", "layers"), "--set model.layers=6"),
        (("train", "mutag", "--set", "train.lr=fast"), "expected a number"),
        (("train", "mutag", "--preset", "papr"), "did you mean 'paper'?"),
        (("train", "mutag", "--smiles", "s"), "smiles: not an option of the benchmark"),
        (("train", "nothing.csv"), "nothing.csv does not exist"),
        (("train", "some/folder"), "some/folder does not exist"),
        (("train", "--recipe", "mine.toml"), "mine.toml: not a recipe, whose name ends in .yaml"),
        (("train", "--recipe", "mine.yaml"), "mine.yaml: not a readable recipe: No such file"),
        (("train", "C" * 300), "unknown dataset 'CCC"),
        (("report", "C" * 300), "CCC: not a run (there is no recipe.yaml)"),
        (("report", "zinc", "--out", "C" * 300 + ".html"), "CCC.html: cannot be written (File"),
        (("search", "--resume", "C" * 300), "CCC: not a search (there is no plan.json)"),
        (("reproduce", "nodes", "--out", "C" * 300), "plan.json: cannot be written (File name too"),
        (("predict", "zinc", "C" * 300), "CCC does not exist; give a table with SMILES"),
        (("train", "qqq"), "known: actor, citeseer, cluster, collab, cora, imdb-binary"),
        (("evaluate", "nowhere"), "name a folder that gradformer train made"),
        (("train", "--device", "gpu"), "use auto, cpu, cuda"),
        (("predict", "nowhere", "x.csv"), "not a run"),
        (("report", "nowhere"), "not a run"),
        (("report", "two  spaces"), "two  spaces: not a run"),
        (("report", "c1:o:c:[cH]"), "c1:o:c:[cH]: not a run"),  # no picture, no word of style
        (("search", "peptides-func"), "--range"),
        (("search",), "DATASET|FILE: say what to search on"),
        (
            ("search", "mutag", "--range", "model.decay="),
            "--range 'model.decay=': expected NAME=V1",
        ),
        (("search", "mutag", "--range", "=1,2"), "'=1,2': expected NAME=V1,V2"),
        (("search", "mutag", "--range", "model.decay"), "'model.decay': expected NAME=V1,V2"),
        (("search", "--resume", "nowhere"), "not a search"),
        (("models", "gni"), "did you mean 'gin'?"),
        (("models", "GIN"), "did you mean 'gin'?"),
        (("train", "--set", "epochs=3"), "epochs: unknown section; did you mean 'train.epochs'?"),
        (("train", "-m", "gcn", "--set", "residual=no"), "did you mean 'model.residual'?"),
        (("data", "info", "zinx"), "did you mean 'zinc'?"),
        (
            ("train", "mutag", "--set", "data.split=random", "--split", "kfold"),
            "--set data.split=random: --split kfold says otherwise; leave one of the two out",
        ),
        (("train", "mutag", "--set", "seed=1", "--seed", "2"), "seed=1: --seed 2 says otherwise"),
        (("train", "-m", "gcn", "--set", "model.name=gin"), "name=gin: --model gcn says otherwise"),
        (("search", "mutag", "--split", "random", "--set", "data.split=fixed"), "says otherwise"),
    ],
)
def test_one_line_with_the_remedy(program: Program, words: tuple[str, ...], says: str) -> None:
    result = program(*words, code=1)
    assert says in result.stderr
    assert len(result.stderr.strip().split("\n")) == 1
    assert "Traceback" not in result.output


def test_an_option_that_does_not_fit_the_file_is_said_in_words_of_the_command_line(
    program: Program, tmp_path: Path
) -> None:
    """A TU folder was said to know edge and node, which are options in Python only."""
    said = program("train", tmp_path, "--split-column", "part", code=1).stderr
    known = "known: --skip-invalid, --task"
    assert said == f"error: --split-column: no option for {tmp_path}; {known}\n"


@pytest.mark.parametrize(
    ("words", "says", "help_of"),
    [
        (("train", "--mdel", "gin"), "--mdel", "train"),
        (("train", "--batch-size", "8"), "--batch-size; say --set train.batch_size=VALUE", "train"),
        (("train", "--epcohs", "3"), "--epcohs; say --set train.epochs=VALUE", "train"),
        (("train", "--weight-decay", "0"), "say --set train.weight_decay=VALUE", "train"),
        (("train", "--learning-rate", "3"), "say --set train.lr=VALUE", "train"),
        (("train", "--trails", "3"), "--trails (Possible options: ", "train"),
        (("train", "--xyzzy"), "No such option: --xyzzy (see", "train"),
        (("evaluate", "run", "--lr", "1"), "No such option: --lr (", "evaluate"),
        (("trian",), "'train'", ""),
        (("--dbug", "models"), "--dbug", ""),
        (("predict",), "RUN", "predict"),
        (("train", "--trials", "0"), "--trials", "train"),
        (("data", "lst"), "'list'", "data"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_ends_with_2(
    words: tuple[str, ...], says: str, help_of: str
) -> None:
    result = CliRunner().invoke(app, words, prog_name="gradformer")
    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stderr.endswith(f"(see: {' '.join(['gradformer', help_of]).strip()} --help)\n")
    assert len(result.stderr.strip().split("\n")) == 1
    assert result.stdout == ""


@pytest.mark.parametrize("words", [(), ("data",)])
def test_a_bare_command_shows_its_help(program: Program, words: tuple[str, ...]) -> None:
    result = program(*words, code=2)
    assert "Usage:" in result.stdout
    assert result.stderr == ""


def test_debug_shows_where_wherever_it_stands() -> None:
    for words in (["--debug", "train", "zinx"], ["train", "zinx", "--debug"]):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 1
        assert type(result.exception).__name__ == "ConfigError"


@pytest.mark.parametrize(
    ("number", "said"),
    [(errno.EACCES, "Permission denied"), (errno.EROFS, "Read-only file system")],
)
def test_what_may_not_be_read_or_written_is_named(
    number: int, said: str, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a mirror of another user, or a home that keeps no completion; it was called a bug."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), "/data/TU/MUTAG.zip")

    monkeypatch.setattr("gradformer.graphs.mirror.raw_files", refuse)
    shown = program("data", "verify", "mutag", code=1).stderr
    assert shown == f"error: /data/TU/MUTAG.zip: {said}; mend the permissions\n"


def test_a_full_gpu_is_no_bug(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 7.79 GiB"

    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError(text)

    monkeypatch.setattr("gradformer.training.run.Run.load", full)
    result = CliRunner().invoke(app, ["evaluate", str(tmp_path)])
    assert result.exit_code == 1
    assert result.stderr == (
        "error: the GPU has no memory left for 2.50 GiB more; end what else runs there, take a "
        "smaller batch or model, or the CPU: --device cpu\n"
    )
    assert "--device cpu" in str(spent(RuntimeError("CUDA error: out of memory")))
    for error in (RuntimeError("DefaultCPUAllocator: can't allocate memory: you …"), MemoryError()):
        assert str(spent(error)) == (
            "this machine has no memory left; end what else runs there, take a smaller batch or "
            "model"
        )
    assert spent(RuntimeError("shapes differ")) is None


def test_a_bug_of_ours_is_called_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("gradformer.training.run.Run.load", broken)
    result = CliRunner().invoke(app, ["evaluate", str(tmp_path)])
    assert result.exit_code == 70
    assert "ZeroDivisionError: oh (a bug of gradformer: --debug shows where" in result.stderr
    assert len(result.stderr.strip().split("\n")) == 1
    monkeypatch.setattr("gradformer.training.run.Run.load", _pipe_that_closes)
    assert CliRunner().invoke(app, ["evaluate", str(tmp_path)]).exit_code == 141
    monkeypatch.setattr("gradformer.training.run.Run.load", lambda _: sys.exit(1))
    assert CliRunner().invoke(app, ["evaluate", str(tmp_path)]).exit_code == 1


def _pipe_that_closes(*_: object) -> None:
    raise BrokenPipeError(errno.EPIPE, "nobody reads on")


def test_a_terminal_that_has_not_all_letters_shows_the_rest(tmp_path: Path) -> None:
    """A result was on the disk, and a bug was what it said."""
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    for words, shown in (
        (["models", "gin"], b"\\u03b5"),
        (["report", "ümlaut"], b"\\xfcmlaut: not a run"),
    ):
        ended = subprocess.run(
            [sys.executable, "-m", "gradformer", *words], env=environment, capture_output=True
        )
        assert ended.returncode == (words[0] == "report")
        assert shown in ended.stdout + ended.stderr


@pytest.mark.parametrize("words", [("--version",), ("--help",), ("models", "gin")])
def test_a_full_standard_output_is_one_line(words: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "gradformer", *words], stdout=full, stderr=subprocess.PIPE
        )
    assert ended.returncode == 1
    assert ended.stderr.startswith(b"error: standard output: cannot be written (No space left")
    assert ended.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ("search", "pattern-sample", "--range", "model.decay=0.3,0.6"),
        ("reproduce", "table1", "--dataset", "pattern-sample", "--model", "gin"),
    ],
    ids=lambda words: words[0],
)
def test_a_log_on_a_full_disk_ends_no_training(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADFORMER_SMOKE", "1")
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "gradformer", *words, "--out", tmp_path / "out"],
            stdout=subprocess.PIPE,
            stderr=full,
        )
    assert ended.returncode == 0, ended.stdout


def test_the_program_tells_its_exit_codes_completion_and_version(program: Program) -> None:
    said = program("--help").stdout
    assert "130" in said
    assert program("--version").stdout == f"gradformer {version('gradformer')}\n"
    assert "--install-completion" in said
