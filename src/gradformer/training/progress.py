"""What a user sees while trials run: bars in a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from gradformer.training.metrics import metric_name, score_text
from gradformer.training.trial import Trial

LINE_EVERY = 2.0  # seconds between plain lines
WIDE = 110  # columns of a terminal with room for a bar


@contextmanager
def telling() -> Iterator[None]:
    """Inside, it is no error if a full disk, or a terminal that is gone, refuses a line."""
    try:
        yield
    except BrokenPipeError:  # nobody reads on, which ends the work
        raise
    except OSError:
        pass


class _Console(Console):
    """Raises an error where nobody reads on: rich itself would end the program."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


class Display:
    """One row for each trial: epoch, time, time left, loss, validation, graphs a second.

    In a narrow terminal the bar goes, then the end of the values; never epochs and times. Without a
    ``console`` it is standard error, so that results can be piped.
    """

    def __init__(
        self, trials: list[Trial], quiet: bool = False, console: Console | None = None
    ) -> None:
        self._console = console or _Console(stderr=True, quiet=quiet)
        self._bars: Progress | None = None
        self._last_line = 0.0
        self._began = time.monotonic()
        self._first = {trial: trial.progress.epoch for trial in trials}
        self._rows = {}
        if quiet or not self._console.is_terminal:
            return
        values = Column(ratio=1, no_wrap=True, overflow="ellipsis")
        self._bars = Progress(
            TextColumn("trial {task.fields[trial]}"),
            *([BarColumn(bar_width=20)] if self._console.width >= WIDE else []),
            MofNCompleteColumn(),
            TimeElapsedColumn(),  # the first epoch may take long
            TimeRemainingColumn(),
            TextColumn("{task.fields[text]}", table_column=values),
            console=self._console,
            expand=True,
        )
        for trial in trials:
            self._rows[trial] = self._bars.add_task(
                "",
                total=trial.recipe.train.epochs,
                completed=trial.progress.epoch,
                trial=trial.number,
                text="",
            )

    def __enter__(self) -> Display:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            with suppress(OSError):  # the terminal is gone
                self._bars.stop()

    def epoch(self, trial: Trial, record: Mapping[str, Any]) -> None:
        """Show the epoch that a trial has finished."""
        text = describe(trial, record)
        if self._bars is not None:
            row = self._rows[trial]
            self._bars.update(row, completed=trial.progress.epoch, text=text)
            if trial.progress.status == "finished":
                self._bars.update(row, total=trial.progress.epoch)
            return
        now = time.monotonic()
        ends = trial.progress.status != "training"
        if ends or now - self._last_line >= LINE_EVERY:
            self._last_line = now
            epochs = trial.recipe.train.epochs
            left = "" if ends else f"  {self._left(trial)} left"
            self.say(f"trial {trial.number}  epoch {trial.progress.epoch}/{epochs}  {text}{left}")

    def say(self, text: str) -> None:
        """A line, above the bars if there are any."""
        console = self._bars.console if self._bars is not None else self._console
        with telling():
            console.print(text, markup=False, emoji=False, highlight=False, soft_wrap=True)

    def _left(self, trial: Trial) -> timedelta:
        done = trial.progress.epoch - self._first[trial]
        took = time.monotonic() - self._began
        seconds = took / max(done, 1) * (trial.recipe.train.epochs - trial.progress.epoch)
        return timedelta(seconds=round(seconds))


def describe(trial: Trial, record: Mapping[str, Any]) -> str:
    """The values of an epoch in one line."""
    if "bad_step" in record:
        return f"stopped: step {record['bad_step']} gave numbers that are not finite"
    value, best = record["val"][trial.metric], trial.progress.best.get(trial.metric)
    return (
        f"loss {record['loss']:.4f}  val {metric_name(trial.metric)} {score_text(value)}"
        + ("" if best is None else f" (best {score_text(best)})")
        + f"  {record.get('graphs_per_second', 0.0):.0f} graphs/s"
    )
