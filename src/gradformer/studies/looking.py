"""What is known of the cells of a study, from the files alone.

A cell is complete with the number of seeds that it was begun with. A recipe that a cell of any
study under the same root has finished stands for all cells that have it. Where a study fixes the
number of seeds, a run with another number is another run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from gradformer.errors import ConfigError, InputError
from gradformer.graphs.arrays import tupled
from gradformer.report.history import History
from gradformer.studies.rivals import RIVALS
from gradformer.studies.study import Cell, Measured, Plan, Study
from gradformer.training.files import read_json, reading
from gradformer.training.recipe import Recipe
from gradformer.training.records import read_results
from gradformer.training.run import Run


def kept_plan(study: Study, root: Path) -> Plan | None:
    """The plan of a study that was begun."""
    path = root / study.name / "plan.json"
    if not os.path.isfile(path):
        return None
    with reading(path):
        return Plan(**tupled(read_json(path)))


def look(
    study: Study, plan: Plan, root: Path, cells: Sequence[Cell] | None = None
) -> list[Measured]:
    """What is known of every cell of a plan, or of some, from the files alone. A damaged cell hides
    no other."""
    found = []
    for cell in study.cells(plan.datasets, plan.models) if cells is None else cells:
        try:
            found.append(_look(study, cell, plan, root))
        except InputError as error:
            found.append(Measured(cell, missing=str(error)))
    return found


def _look(study: Study, cell: Cell, plan: Plan, root: Path) -> Measured:
    if reason := cell.misfit(plan):
        return Measured(cell, missing=reason)
    recipe = cell.recipe(plan.trials, plan.settings)
    found, _ = find(root, root / study.name / cell.name, cell, recipe)
    if found is None:
        return Measured(cell, missing="not begun")
    if cell.model in RIVALS:
        outcome = read_results(found / "results.json")
        return Measured(cell, outcome, missing=what_is_missing(outcome, seeds_wanted(found, cell)))
    history, memory = History(Run.load(found), cell.row), found / "memory.json"
    outcome = history.outcome
    return Measured(
        cell,
        outcome if outcome["test"]["values"] else None,
        history,
        what_is_missing(outcome, seeds_wanted(found, cell)),
        _peak(memory) if memory.is_file() else None,
    )


def _peak(path: Path) -> int:
    remedy = "restore this file, or delete it: then only the memory is not known"
    return int(read_json(path, ("peak_bytes",), remedy)["peak_bytes"])


def what_is_missing(outcome: dict[str, Any], wanted: int) -> str:
    """Seeds that have not ended, or that have ended badly, in words; empty if there are none."""
    ended, good = len(outcome["trials"]), len(outcome["test"]["values"])
    if ended < wanted:
        return f"{ended} of {wanted} seeds are done"
    return "" if good == ended else f"{ended - good} of {ended} seeds diverged"


def find(
    root: Path, place: Path, cell: Cell, recipe: Recipe, seeds: int | None = None
) -> tuple[Path | None, bool]:
    """The folder with the run of ``recipe``, a finished one if there is one, and if it is finished.

    It is looked for in the cell's own place, in other cells of its study, and then, if finished, in
    other studies; a run there that is given more seeds at present counts with those that it had. A
    run of one seed, as a cell of cost is, does not stand for another cell that wants more.
    """
    if cell.model in RIVALS:
        if not (place / "results.json").is_file():
            return None, False
        return place, seeds_ended(place) >= seeds_wanted(place, cell, seeds)
    runs = _runs_of(recipe, root, place, exact=cell.trials is not None)

    def is_mine(run: Path) -> bool:
        beside = run.parent == place.parent
        return run == place or (beside and has_recipe(run, recipe, exact=True))

    mine = next(filter(is_mine, runs), None)
    wanted = seeds_wanted(mine, cell, seeds) if mine else cell.trials or seeds or 0

    def is_complete(run: Path) -> bool:
        least = 1 if run == place else min(2, recipe.trials)
        return seeds_ended(run) >= max(wanted, least)

    complete = max(filter(is_complete, runs), key=seeds_ended, default=None)
    return complete or mine, complete is not None


def _runs_of(recipe: Recipe, root: Path, place: Path, exact: bool) -> list[Path]:
    """The runs under ``root`` that have the recipe, that in ``place`` first."""
    runs = []
    begun = sorted(path.parent for path in root.glob("*/*/recipe.yaml"))
    for run in dict.fromkeys([place, *begun]):
        try:
            if (run / "recipe.yaml").is_file() and has_recipe(run, recipe, exact):
                runs.append(run)
        except ConfigError as error:
            if run == place:  # damage of another cell is said there
                raise InputError(
                    f"{error}; the run is damaged: restore this file, or move {place} away and "
                    "train again"
                ) from None
    return runs


def seeds_ended(folder: Path) -> int:
    """How many seeds have a result."""
    path = folder / "results.json"
    return len(read_results(path)["trials"]) if path.is_file() else 0


def seeds_wanted(folder: Path, cell: Cell, seeds: int | None = None) -> int:
    """How many seeds complete what was begun: its own number, or ``seeds`` if these are more."""
    if cell.model in RIVALS:
        own: int = read_results(folder / "results.json").get("wanted", seeds_ended(folder))
    else:
        own = kept_recipe(folder).trials
    return own if cell.trials is not None else max(own, seeds or 0)


def has_recipe(folder: Path, recipe: Recipe, exact: bool = False) -> bool:
    """Whether a run has this recipe; unless ``exact``, whatever its number of seeds."""
    found = kept_recipe(folder)
    return (found if exact else replace(found, trials=recipe.trials)) == recipe


def kept_recipe(folder: Path) -> Recipe:
    """The recipe of a run."""
    path = folder / "recipe.yaml"
    return _loaded(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=4096)
def _loaded(path: Path, changed: int) -> Recipe:
    return Recipe.load(path)
