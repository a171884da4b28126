"""What the program says of itself: its models, and what works on this machine."""

from __future__ import annotations

import contextlib
import os
import platform
import pty
import re
import subprocess
import sys
from importlib.metadata import version
from types import SimpleNamespace

import pytest
import torch

from gradformer import Run
from gradformer.cli.doctor import ENGINES, _describe
from gradformer.model.base import MODELS, create_model
from gradformer.weights import published
from tests.cli.conftest import Program


def test_models_lists_all_with_parameters(program: Program) -> None:
    """Into a pipe each model is one line."""
    listed, trained = map(_rows, program("models").stdout.split("\n\n"))
    assert listed[0] == ["model", "parameters", "layers", "width", "about; proven against"]
    others = sorted(MODELS.keys() - {"gradformer"})
    assert [row[0] for row in listed[1:]] == ["gradformer", *others]
    assert all(re.fullmatch(r"\d+,\d+ \d+ \d+", " ".join(row[1:4])) for row in listed[1:])
    assert trained[0] == ["trained model", "data", "model", "test, one seed"]
    assert [row[:3] for row in trained[1:]] == [[name, name, "gradformer"] for name in published()]
    assert all(re.fullmatch(r"[\w ]+ [↑↓] 0\.\d{4}", row[3]) for row in trained[1:])
    facts, options = map(_rows, program("models", "gin").stdout.split("\n\n"))
    size, (about, proof) = next((row[1], row[4].split("; ")) for row in listed if row[0] == "gin")
    made = create_model("gin", Run.load("zinc").schema)
    assert size == f"{sum(p.numel() for p in made.parameters()):,}"
    size = f"{size} by default on ZINC"
    assert facts == [["gin", about], ["parameters", size], ["proven against", proof]]
    assert options[:2] == [
        ["--set model.…=", "default", "meaning"],
        ["layers", "16", "number of layers"],
    ]


def _rows(table: str) -> list[list[str]]:
    return [re.split("  +", line.strip()) for line in table.splitlines()]


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
    gpu = SimpleNamespace(name="H200", total_memory=2**37)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda device: gpu)
    where = "gradformer.training.distributed.find_device"
    monkeypatch.setattr(where, lambda: torch.device("cuda"))
    monkeypatch.setattr("gradformer.cli.doctor.LIBRARIES", {"torch": "the [models]", "tortch": ""})
    monkeypatch.setenv("GRADFORMER_DATA", "/raw [bold]")
    monkeypatch.setenv("GRADFORMER_CACHE", "/cache [bold]")
    assert _rows(program("doctor").stdout) == [
        ["python", platform.python_version()],
        ["gradformer", version("gradformer")],
        ["torch", torch.__version__, "the [models]"],
        ["tortch", "not installed"],
        ["device", "H200, 128 GiB"],
        ["threads", f"{torch.get_num_threads()} of {os.cpu_count()} cores"],
        ["engine reference", "works"],
        ["engine fused", "no", "no compiler [at all]"],
        ["engine auto", "works", ENGINES["auto"]],
        ["raw data", "/raw [bold]", "GRADFORMER_DATA"],
        ["cache", "/cache [bold]", "GRADFORMER_CACHE"],
    ]
    assert _describe(torch.device("cpu")) == "cpu (no CUDA device is visible to torch)"
