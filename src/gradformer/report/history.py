"""What a report needs of a run, read from its folder: results, epochs and start points by trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradformer.grouping import grouped
from gradformer.report.scales import evenly
from gradformer.training.records import header
from gradformer.training.run import Run, ended_trials
from gradformer.training.trials import summary

MOST_POINTS = 240
"""Epochs that a curve shows at most."""


@dataclass(frozen=True)
class History:
    """A run and its record; ``label`` is what the page calls it."""

    run: Run
    label: str

    @cached_property
    def record(self) -> list[dict[str, Any]]:
        return self.run.record

    @cached_property
    def header(self) -> Mapping[str, Any]:
        """The line that began the record: recipe, data, environment, time."""
        return header(self.record)

    @cached_property
    def results(self) -> list[dict[str, Any]]:
        """One for each trial that has ended, in the order of the trials."""
        return [*ended_trials(self.run, self.record).values()]

    @cached_property
    def epochs(self) -> dict[int, list[dict[str, Any]]]:
        """The epochs of every trial that has begun."""
        lines = ((line["trial"], line) for line in self.record if line["kind"] == "epoch")
        return dict(sorted(grouped(lines).items()))

    @property
    def data(self) -> str:
        """The benchmark's name, or the name of the user's file without its folder."""
        return Path(self.run.recipe.dataset).name

    @property
    def metric(self) -> str:
        """The metric that is reported."""
        return str(self.results[0]["metric"]) if self.results else self.run.metric

    @cached_property
    def outcome(self) -> dict[str, Any]:
        """Mean, std and values of validation and test over the trials that ended well."""
        return summary(self.results, self.metric)

    @property
    def finished(self) -> bool:
        return len(self.results) == self.run.recipe.trials

    @property
    def seconds(self) -> float:
        """Time spent in epochs, all trials together."""
        return sum(line.get("seconds") or 0.0 for lines in self.epochs.values() for line in lines)

    def curves(self, *path: str) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Epochs and the values at ``path`` of their lines, of every trial that has some."""
        trials = []
        for lines in self.epochs.values():
            pairs = [(line["epoch"], _at(line, path)) for line in lines]
            known = [(epoch, value) for epoch, value in pairs if value is not None]
            if known:
                epochs, values = np.array(known, dtype=np.float64).T
                trials.append((epochs, values))
        return trials

    def starts(self, trial: int) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Start points of a trial: epochs [e] and values [e, sets, heads]."""
        lines = [line for line in self.epochs.get(trial, []) if "starts" in line]
        if not lines:
            return None
        kept = evenly(len(lines), MOST_POINTS)
        epochs = np.array([lines[k]["epoch"] for k in kept], dtype=np.float64)
        return epochs, np.array([lines[k]["starts"] for k in kept], dtype=np.float64)


def open_histories(runs: Sequence[Run | Path]) -> list[History]:
    """Every run with a name that tells it from the others."""
    opened = [run if isinstance(run, Run) else Run.load(run) for run in runs]
    folders = [run.folder.resolve().name for run in opened]
    models = [run.recipe.model.name for run in opened]
    plain = len({run.recipe.dataset for run in opened}) == 1 and len(set(models)) == len(models)
    names = models if plain else folders
    return [
        History(run, name if names.count(name) == 1 else f"{name} ({place + 1})")
        for place, (run, name) in enumerate(zip(opened, names))
    ]


def _at(line: dict[str, Any], path: Sequence[str]) -> float | None:
    value: Any = line
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return None if value is None else float(value)
