"""What a search writes down: where candidates were trained, and how each of them did.

The best of many epochs by a small validation part is mostly luck, the more so the more the score
jumps from epoch to epoch: compared by it, the noisiest recipe wins. So a candidate's score is its
best mean over a few epochs in a row.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from gradformer.errors import InputError
from gradformer.grouping import grouped
from gradformer.training.files import replace_file
from gradformer.training.metrics import LOWER_IS_BETTER
from gradformer.training.records import RECORD, read_record
from gradformer.training.run import Run

STEADY = 5
"""Epochs in a row whose mean is a score."""


@dataclass(frozen=True)
class Attempt:
    """A candidate on a rung: its settings and validation scores, None where a seed diverged."""

    rung: int
    candidate: int
    settings: tuple[str, ...]
    epochs: int
    metric: str
    val: float | None
    std: float | None

    @property
    def cost(self) -> float:
        """The lower the better; one that diverged is the last."""
        if self.val is None:
            return math.inf
        return self.val if self.metric in LOWER_IS_BETTER else -self.val


def steady(curve: Sequence[float], epochs: int, lower_is_better: bool) -> float:
    """The best mean of a curve over so many ``epochs`` in a row, or over all if there are fewer.

    >>> steady([0.5, 0.9, 0.5, 0.75, 0.75], 2, lower_is_better=False)
    0.75
    >>> steady([0.5, 0.9], 1, lower_is_better=True), steady([0.5, 0.9], 5, lower_is_better=True)
    (0.5, 0.7)
    """
    epochs = min(epochs, len(curve))
    means = [fmean(curve[end - epochs : end]) for end in range(epochs, len(curve) + 1)]
    return min(means) if lower_is_better else max(means)


def validation_scores(run: Run, epochs: int = STEADY) -> list[float]:
    """The :func:`steady` validation score of each trial of a finished run; none if one diverged.

    With one epoch it is the score of the selected epoch. Raises if the record has lost epochs.
    """
    results, metric = run.results, run.results["metric"]
    selected = list(results["val"]["values"])
    if len(selected) < run.recipe.trials:
        return []
    if epochs == 1:
        return selected
    lines = [(x["trial"], x.get("val")) for x in run.record if x["kind"] == "epoch"]
    curves = grouped((trial, val[metric]) for trial, val in lines if val is not None)
    for trial in results["trials"]:
        if len(curves.get(trial["trial"], ())) < trial["epochs"]:
            raise InputError(
                f"{run.folder / RECORD}: has lost epochs of trial {trial['trial']}, by "
                "which candidates are compared; restore it if there is a copy, or remove "
                f"{run.folder}: it is trained again unless the search has its score"
            )
    falls = metric in LOWER_IS_BETTER
    return [steady(curve, epochs, falls) for _, curve in sorted(curves.items())]


def load_attempts(folder: str | Path) -> list[Attempt]:
    """The attempts that a search has recorded, in order."""
    lines = [x for x in read_record(Path(folder) / RECORD) if x.pop("kind") == "attempt"]
    return [Attempt(**{**line, "settings": tuple(line["settings"])}) for line in lines]


class Record:
    """``record.jsonl`` of a search: every place where candidates were trained, then the attempts.

    The attempts of an earlier command stay (``before``, by rung and candidate). A place is added
    only if something is trained there.
    """

    def __init__(self, folder: Path, here: Mapping[str, Any]) -> None:
        self.path = folder / RECORD
        self.attempts: list[Attempt] = []
        self.before = {(one.rung, one.candidate): one for one in load_attempts(folder)}
        self._here = {"kind": "environment", **here}
        known = read_record(self.path)
        self._places = [line for line in known if line["kind"] == "environment"]

    def trained_here(self) -> None:
        """Written before the training, which may be stopped here and end elsewhere."""
        if self._here not in self._places:
            self._places.append(self._here)
            self._write()

    def add(self, attempt: Attempt) -> None:
        """Written as soon as it is known."""
        self.attempts.append(attempt)
        self._write()

    def _write(self) -> None:
        known = self.before | {(one.rung, one.candidate): one for one in self.attempts}
        lines = [*self._places, *({"kind": "attempt", **vars(one)} for one in known.values())]
        replace_file(self.path, "".join(json.dumps(line) + "\n" for line in lines))
