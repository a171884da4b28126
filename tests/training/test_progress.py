"""What is shown and written while trials run, and what asks them to stop."""

from __future__ import annotations

import errno
import io
import re
import signal
from pathlib import Path

import pytest
import torch
from rich.console import Console

from gradformer import progress
from gradformer.training.loop import train
from gradformer.training.progress import Display
from gradformer.training.records import Recorder
from gradformer.training.stop import Stop
from gradformer.training.trial import Trial
from tests.training import toy


def trained(console: Console, epochs: int = 3) -> Trial:
    trial = toy.trial(toy.RECIPE.change(f"train.epochs={epochs}"))
    with Display([trial], console=console) as display:
        train([trial], display.epoch, Stop())
    return trial


def test_a_bar_leaves_nothing_in_a_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", -1.0)
    with progress.bar("work", total=2) as advance:
        advance(1)
        advance(1)
    assert capsys.readouterr().err == ""


def test_of_work_inside_of_other_work_the_outer_one_has_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", -1.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    for _ in range(2):
        with progress.bar("outer", total=2) as advance:
            with progress.bar("inner", total=1) as advance_inner:
                advance_inner(1)
            advance(1)
        shown = capsys.readouterr().err
        assert "outer" in shown
        assert "inner" not in shown


def test_plain_lines_where_there_is_no_terminal() -> None:
    text = io.StringIO()
    trained(Console(file=text, force_terminal=False))
    lines = text.getvalue().splitlines()
    assert lines[0].startswith("trial 0  epoch 1/3  loss ")
    assert "graphs/s" in lines[0]
    assert lines[0].endswith("left")
    assert lines[-1].startswith("trial 0  epoch 3/3")
    assert "\x1b" not in text.getvalue()


def test_lines_are_shown_as_they_are() -> None:
    """An error of a user's model that cannot be captured may hold anything."""
    shown, line = io.StringIO(), "no [Errno 2] in [/tmp/m] :o:, though it is long"
    Display([], console=Console(file=shown, width=20)).say(line)
    assert shown.getvalue() == f"{line}\n"


def test_lines_that_a_full_disk_refuses_end_no_training() -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    assert trained(Console(file=Full())).progress.status == "finished"


def test_a_terminal_that_ends_may_say_so_twice() -> None:
    with Stop().listening() as stop:
        for _ in range(2):
            signal.raise_signal(signal.SIGHUP)
        assert stop.agreed()


def test_under_nohup_the_end_of_a_terminal_is_nothing() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Stop().listening() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop.agreed()
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(("width", "bar"), [(150, True), (80, False)])
def test_bars_in_a_terminal(width: int, bar: bool) -> None:
    text = io.StringIO()
    trained(Console(file=text, force_terminal=True, width=width))
    shown = re.sub(r"\x1b\[[\d;?]*\w", "", text.getvalue())
    values = r"\d:\d\d:\d\d \d:\d\d:\d\d loss [\d.]+  val accuracy [\d.]+ \(best [\d.]+\)"
    assert re.search(rf"3/3 {values}", shown)
    assert ("━" in shown) == bar


def test_curves_for_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    recorder = Recorder(tmp_path / "record.jsonl", tensorboard=True)
    for epoch in (1, 2):
        values = {"epoch": epoch, "loss": 0.5, "val": {"mae": 0.25}, "starts": [[2.0, 3.0]]}
        recorder.epoch(0, values)
    recorder.close()
    events = EventAccumulator(str(tmp_path / "tensorboard" / "trial-0"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("val/mae")] == [(1, 0.25), (2, 0.25)]
    assert [e.value for e in events.Scalars("start/0/1")] == [3.0, 3.0]


def test_bfloat16_trains_too() -> None:
    trial = toy.trial(toy.RECIPE.change("train.precision=bf16"))
    train([trial], lambda *_: None, Stop())
    assert trial.progress.status == "finished"
    assert trial.weights.vector.dtype == torch.float32
