"""What the program says of itself: its models, and what works on this machine."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys

import pytest
import torch

from tests.cli.conftest import Program


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
