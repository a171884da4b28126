"""Ctrl-C in a real process leaves a run that ``--resume`` finishes, bit for bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from gradformer.cli.training import stopping_in_time
from gradformer.training.stop import StoppedError
from tests.cli.conftest import QUIET, Program

PROGRAM = [sys.executable, "-c", "from gradformer.cli import main; main()"]


@pytest.mark.slow
def test_ctrl_c_then_resume(program: Program, files: Path, tmp_path: Path) -> None:
    words = ["train", str(files / "graphs.jsonl"), "--set", "train.epochs=25"]
    words += ["--set", "model.layers=1", "--no-report", "--no-tensorboard"]
    stopped, whole = tmp_path / "stopped", tmp_path / "whole"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*PROGRAM, *words, "--out", str(stopped)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    record = stopped / "record.jsonl"
    limit = time.monotonic() + 90
    while time.monotonic() < limit and process.poll() is None:
        if record.exists() and record.read_text().count('"epoch"') >= 2:
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert said.strip().endswith(
        f"stopped and saved; continue: gradformer train --resume {stopped}"
    )
    assert "error" not in said
    assert "Traceback" not in said
    assert not (stopped / "results.json").exists()
    program("train", "--resume", stopped, *QUIET)
    program(*words, "--out", whole, "--quiet")
    results = [json.loads((run / "results.json").read_text()) for run in (stopped, whole)]
    assert results[0] == results[1]
    weights = [load_file(run / "trials" / "0" / "model.safetensors") for run in (stopped, whole)]
    assert all((weights[0][name] == weights[1][name]).all() for name in weights[1])


def test_a_budget_ends_a_run_that_goes_on(program: Program, files: Path, tmp_path: Path) -> None:
    """Twice: a run that is begun and one that is continued."""
    run = tmp_path / "my run"
    begun = program("train", files / "graphs.jsonl", "--budget", "0", "--out", run, *QUIET)
    again = program("train", "--resume", run, "--budget", "0", *QUIET)
    for stopped in (begun, again):
        assert stopped.stderr == f"stopped and saved; continue: gradformer train --resume '{run}'\n"
        assert not (run / "results.json").exists()
    program("train", "--resume", run, "--budget", "9", *QUIET)
    assert (run / "results.json").exists()


def test_of_several_processes_the_first_says_that_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        with stopping_in_time():
            raise StoppedError("stopped and saved", signal.SIGALRM)
    assert capsys.readouterr().err == "stopped and saved\n"


def test_where_nobody_reads_on_it_stops_and_says_so_by_its_exit_code(
    files: Path, tmp_path: Path
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    words = ["train", str(files / "graphs.jsonl"), "--out", str(tmp_path / "run")]
    words += ["--set", "train.epochs=2", "--set", "model.layers=1", "--no-report"]
    ended = subprocess.run([*PROGRAM, *words], stdout=writing, stderr=writing, check=False)
    os.close(writing)
    assert ended.returncode == 128 + signal.SIGPIPE
    assert (tmp_path / "run" / "trials" / "0" / "checkpoint.safetensors").is_file()


@pytest.mark.parametrize("words", [("--version",), ("--help",), ("data", "list")])
def test_whatever_nobody_reads_ends_with_that_exit_code(words: tuple[str, ...]) -> None:
    """With 1 before, which is something to mend, and not a word of what."""
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run([*PROGRAM, *words], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, b"")


@pytest.mark.parametrize(
    ("loaded", "said"),
    [("typer", "stopped\n"), ("torch", "stopped; if its folder is there, --resume continues it\n")],
)
def test_ctrl_c_while_loading_is_one_line(
    loaded: str, said: str, files: Path, tmp_path: Path
) -> None:
    """The signal comes as ``loaded`` is about to be imported, the first time anyone asks for it."""
    code = f"""
import signal, sys
class Press:
    def find_spec(self, name, *rest):
        if name == {loaded!r}:
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Press())
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
from gradformer.cli import main
main()
"""
    words = ["train", str(files / "graphs.jsonl"), "--out", str(tmp_path / "run")]
    ended = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False
    )
    assert ended.stderr == said
    assert (ended.returncode, ended.stdout) == (130, "")
    assert not (tmp_path / "run").exists()
