"""Carrying out the plan of a search: rung after rung, stopped at any time, continued where it was.

Candidates of a rung are trained side by side, on a CPU as many as it has cores. The test part stays
closed: to a candidate it is replaced by the validation part, so that no file of a search knows a
test score.

``<folder>/plan.json`` what is searched · ``record.jsonl`` where, and a line for each attempt ·
``attempts/<rung>-<candidate>/`` its run · ``best.yaml`` the winner, for ``train --recipe``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from shlex import quote
from typing import Any

import torch

from gradformer.errors import InputError
from gradformer.graphs.splits import Split
from gradformer.training.ambient import undisturbed
from gradformer.training.attempts import Attempt, Record, validation_scores
from gradformer.training.data import TrainingData
from gradformer.training.distributed import find_device
from gradformer.training.files import read_json, reading, replace_file, replace_json, writing
from gradformer.training.fine_tuning import inputs_before
from gradformer.training.fit import Job, fit_together
from gradformer.training.origins import is_benchmark, prepare
from gradformer.training.plan import PLAN, Plan, load_plan
from gradformer.training.recipe import Recipe
from gradformer.training.records import environment
from gradformer.training.run import Run
from gradformer.training.stop import StoppedError
from gradformer.training.threads import ABREAST
from gradformer.training.trial import Trial
from gradformer.training.trials import mean_and_std

SIDE_BY_SIDE = 32
"""Most trials that share a GPU."""


@dataclass(frozen=True)
class Found:
    """The end of a search: the best recipe, what it changes, and every attempt in order."""

    folder: Path
    best: Recipe
    settings: tuple[str, ...]
    attempts: list[Attempt]


@undisturbed
def search(
    plan: Plan,
    folder: str | Path,
    *,
    device: str = "auto",
    until: float | None = None,
    tell: Callable[[Attempt], None] = lambda attempt: None,
) -> Found:
    """Carry out ``plan`` in ``folder``; a search that was stopped there goes on where it was.

    Attempts that are recorded but kept without their folders stand. The file with the data may be
    in another place by now.

    Raises :class:`StoppedError` after saving if a signal asks to stop, or at ``until`` (on the
    monotonic clock; then its signal is SIGALRM).
    """
    folder = Path(folder)
    begun = _kept_plan(plan, folder)
    record = Record(folder, environment(find_device(device)))
    trainer = _Trainer(plan, folder, record, device, until)
    candidates, rungs = plan.candidates(), plan.rungs()
    if begun is None or begun.data != plan.data:
        trainer.check([(), *candidates])
        replace_json(folder / PLAN, plan.to_dict())
    alive = list(range(len(candidates)))
    for rung, (count, epochs) in enumerate(rungs):
        alive = alive[:count]
        if plan.against_recipe and rung == len(rungs) - 1:
            alive = [len(candidates), *alive]  # the first of equals wins
            candidates.append(())
        made = {}
        for attempt in trainer.rung(rung, epochs, {c: candidates[c] for c in alive}):
            made[attempt.candidate] = attempt
            record.add(attempt)
            tell(attempt)
        alive.sort(key=lambda candidate: made[candidate].cost)
    winner = made[alive[0]]
    if winner.val is None:
        raise InputError(
            f"{folder}: every candidate of the last rung diverged; try lower rates (train.lr)"
        )
    best = plan.recipe.change(*winner.settings)
    replace_file(folder / "best.yaml", best.to_yaml())
    return Found(folder, best, winner.settings, record.attempts)


def _kept_plan(plan: Plan, folder: Path) -> Plan | None:
    """The plan with which the search in ``folder`` began; None if there is none. It may differ from
    this one only in the place of the file; raises if the folder holds anything else."""
    if os.path.isfile(folder / PLAN):
        kept = load_plan(folder)
        moved = not (is_benchmark(kept.data) or is_benchmark(plan.data))
        same = replace(kept, data=plan.data if moved else kept.data)
        if same.to_dict() != json.loads(json.dumps(plan.to_dict())):
            raise InputError(
                f"{folder}: holds a search with another plan; choose another folder, or continue "
                f"that one: gradformer search --resume {quote(str(folder))}"
            )
        return kept
    with writing(folder):
        if folder.exists() and any(folder.iterdir()):
            raise InputError(f"{folder}: exists already and is no search; choose another folder")
    return None


def _groups(
    recipes: Mapping[int, Recipe], places: Mapping[int, Path], room: int
) -> Iterator[list[int]]:
    """Which candidates are trained together: first those that are done; then as many as there is
    ``room`` for, with their trials, all of one precision (which is set for a whole process)."""
    done = [c for c in recipes if _ended(places[c])]
    if done:
        yield done
    left = sorted((c for c in recipes if c not in done), key=lambda c: recipes[c].train.precision)
    for _, group in groupby(left, lambda c: recipes[c].train.precision):
        same = list(group)
        most = max(room // recipes[same[0]].trials, 1)
        yield from (same[first : first + most] for first in range(0, len(same), most))


def _ended(place: Path) -> bool:
    return (place / "results.json").is_file()


class _Trainer:
    """Trains the candidates of a plan, or finds what was made of them before.

    Data are opened once for each structure that candidates need, with the test part closed. All
    attempts are on the same data, and are compared by one metric: those of the attempts before,
    where there are some.
    """

    def __init__(
        self, plan: Plan, folder: Path, record: Record, device: str, until: float | None
    ) -> None:
        self.plan, self.folder, self.record = plan, folder, record
        self.device, self.until = device, until
        self._metric = next((one.metric for one in record.before.values()), None)
        self._content = _content(folder)
        self._opened: dict[Any, TrainingData] = {}

    def rung(
        self, rung: int, epochs: int, chosen: Mapping[int, tuple[str, ...]]
    ) -> Iterator[Attempt]:
        """An attempt of so many epochs with each of the candidates (number → settings)."""
        places = {c: self.folder / "attempts" / f"{rung}-{c}" for c in chosen}
        before = self.record.before
        kept = [c for c in chosen if (rung, c) in before and not places[c].exists()]
        yield from (before[rung, c] for c in kept)
        recipes = {
            c: _shortened(self.plan.recipe.change(*settings), epochs)
            for c, settings in chosen.items()
            if c not in kept
        }
        on_gpu = find_device(self.device).type == "cuda"
        room = SIDE_BY_SIDE if on_gpu else min(torch.get_num_threads(), ABREAST)
        for group in _groups(recipes, places, room):
            for c, run in zip(group, self._runs({places[c]: recipes[c] for c in group})):
                metric, val = run.results["metric"], validation_scores(run, self.plan.steady)
                score = mean_and_std(val)
                yield Attempt(rung, c, chosen[c], epochs, metric, score["mean"], score["std"])

    def check(self, candidates: Sequence[tuple[str, ...]]) -> None:
        """Raise if data cannot be read or do not go with a candidate. This comes before the search
        is written down, since it then keeps its candidates."""
        for settings in candidates:
            recipe = self.plan.recipe.change(*settings)
            data = self._data(recipe)
            Trial(0, recipe, data, data.collator("cpu"))

    def _data(self, recipe: Recipe) -> TrainingData:
        """What a candidate learns from."""
        key = (recipe.model.config.needs(), recipe.data, recipe.train.weights)
        if key not in self._opened:
            self._require_file()
            reading, inputs = dict(self.plan.reading or {}), inputs_before(recipe, self.plan.data)
            data, _ = prepare(self.plan.data, recipe, None, reading, inputs=inputs)
            if self._content not in (None, data.store.content):
                raise InputError(
                    f"{self.folder}: the data are not those that the search began with; bring "
                    "those back, or begin anew with another --out"
                )
            self._opened[key] = closed(replace(data, metric=self._metric or data.metric))
        return self._opened[key]

    def _require_file(self) -> None:
        """Raise if the file of a search that was begun is gone."""
        data, begun = self.plan.data, (self.folder / PLAN).is_file()
        if begun and not is_benchmark(data) and not os.path.exists(data):
            raise InputError(
                f"{data}: the data of {self.folder} are not there; bring them back to this place, "
                f"or give them: gradformer search FILE --resume {quote(str(self.folder))}"
            )

    def _runs(self, recipes: Mapping[Path, Recipe]) -> list[Run]:
        """The finished runs in these places: as they are there, continued, or trained."""
        if all(map(_ended, recipes)):
            return [Run.load(place) for place in recipes]
        jobs = [Job(place, recipe, self._data(recipe)) for place, recipe in recipes.items()]
        self.record.trained_here()
        try:
            return fit_together(jobs, device=self.device, until=self.until)
        except StoppedError as stopped:
            again = f"gradformer search --resume {quote(str(self.folder))}"
            raise StoppedError(f"stopped and saved; continue: {again}", stopped.signal) from None


def closed(data: TrainingData) -> TrainingData:
    """The same data with the validation part in the place of the test part, as their record says.
    No table of their rows is written, since the names of its parts would be wrong."""

    def split(seed: int) -> Split:
        parts = data.split(seed)
        return parts._replace(test=parts.val)

    return replace(data, split=split, rows=None, about={**data.about, "closed": True})


def _content(folder: Path) -> str | None:
    """What tells the data of the attempts in ``folder`` from others; None if there are none."""
    described = sorted(folder.glob("attempts/*/data.json"))
    if not described:
        return None
    with reading(described[0]):
        return str(read_json(described[0])["origin"]["content"])


def _shortened(recipe: Recipe, epochs: int) -> Recipe:
    """The recipe with fewer epochs, its warm-up as much shorter."""
    warmup = recipe.train.warmup_epochs * epochs / recipe.train.epochs
    return recipe.change(f"train.epochs={epochs}", f"train.warmup_epochs={warmup}")
