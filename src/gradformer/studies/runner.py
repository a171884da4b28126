"""Carrying out a study: cell after cell, stopped at any time, continued where it was.

A cell is a run, so it continues to the same bits. It is complete with the number of seeds that it
was begun with; more are added, in its own place, when a command asks for them. A recipe that a cell
of any study under the same root has finished is not trained again. Where a study fixes the number
of seeds, a run with another number is another run. Several processes may carry out one study: each
takes the next cell that no other trains.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from shlex import quote
from typing import Any

import torch

from gradformer.errors import ConfigError, GradformerError, InputError
from gradformer.graphs.arrays import tupled
from gradformer.report.history import History
from gradformer.studies.rivals import RIVALS
from gradformer.studies.study import Cell, Measured, Plan, Study
from gradformer.training.distributed import find_device
from gradformer.training.files import read_json, reading, replace_json
from gradformer.training.fit import fit, resume
from gradformer.training.folder import BusyError
from gradformer.training.loop import Stop, StoppedError
from gradformer.training.recipe import Recipe
from gradformer.training.records import environment, read_results
from gradformer.training.run import Run
from gradformer.training.trials import summary


def begin(study: Study, plan: Plan, root: Path, goes_on: bool) -> Plan:
    """Keep the plan beside the cells; gives all that was ever asked for there."""
    path = root / study.name / "plan.json"
    before = kept_plan(study, root)
    if before is not None:
        if not goes_on:
            raise InputError(
                f"{path.parent}: was begun before; continue it with --resume, or choose another "
                "--out"
            )
        if before.settings != plan.settings:
            raise InputError(
                f"{path.parent}: was begun with other settings ({_said(before)}, not "
                f"{_said(plan)}); choose another --out"
            )
        plan = before.with_more(plan)
    replace_json(path, asdict(plan))
    return plan


def _said(plan: Plan) -> str:
    return " ".join(f"--set {text}" for text in plan.settings) or "no --set"


def kept_plan(study: Study, root: Path) -> Plan | None:
    """The plan of a study that was begun."""
    path = root / study.name / "plan.json"
    if not os.path.isfile(path):
        return None
    with reading(path):
        return Plan(**tupled(read_json(path)))


def carry_out(
    study: Study,
    cells: Sequence[Cell],
    plan: Plan,
    root: Path,
    failed: dict[Cell, str],
    *,
    until: float | None = None,
    device: str = "auto",
    quiet: bool = False,
    tell: Callable[[str], None] = lambda text: None,
    only: Sequence[str] = (),
    seeds: int | None = None,
) -> None:
    """Train what is missing of ``cells``, in order.

    Those that end without a score are put into ``failed``, and why: known also where it stops.
    A cell that is not begun gets the seeds of the plan; one that is, its own number, or ``seeds``
    if these are more. ``only`` are the words of a command that chose the cells, said where it
    stops. Raises :class:`StoppedError` after saving if a signal asks to stop, or at ``until`` (on
    the monotonic clock; then its signal is SIGALRM).
    """
    words = ["gradformer reproduce", study.name, "--resume", "--out", quote(str(root)), *only]
    again = f"continue: {' '.join(words)}"
    for number, cell in enumerate(cells, 1):
        if cell.without_preset:
            continue
        try:
            recipe = cell.recipe(seeds or plan.trials, plan.settings)
            own = root / study.name / cell.name
            found = find(root, own, cell, recipe, seeds)
            if found is not None:
                recipe = replace(recipe, trials=_wanted(found, cell, seeds))
                if _ended(found) >= recipe.trials:
                    _require_score(found)
                    continue
            place = found or own
            if until is not None and time.monotonic() >= until:
                raise StoppedError("the time is spent", signal.SIGALRM)
            tell(f"cell {number} of {len(cells)}: {cell.row} on {cell.column}")
            if cell.model in RIVALS:
                _compute(cell, recipe, place, until)
            else:
                _train(cell, recipe, place, until, device, quiet)
            if lost := _require_score(place)["diverged"]:
                tell(f"{len(lost)} of {_ended(place)} seeds diverged: they count nowhere")
        except StoppedError as stopped:
            raise StoppedError(f"stopped and saved; {again}", stopped.signal) from None
        except BusyError:
            tell("another process is training it")
        except (GradformerError, torch.cuda.OutOfMemoryError) as error:
            failed[cell] = str(error)
            tell(f"{cell.row} on {cell.column} is left out: {error}")


def look(
    study: Study, plan: Plan, root: Path, cells: Sequence[Cell] | None = None
) -> list[Measured]:
    """What is known of every cell of a plan, or of some, from the files alone; one that is damaged
    hides no other."""
    found = []
    for cell in study.cells(plan.datasets, plan.models) if cells is None else cells:
        try:
            found.append(_look(study, cell, plan, root))
        except InputError as error:
            found.append(Measured(cell, missing=str(error)))
    return found


def find(
    root: Path, place: Path, cell: Cell, recipe: Recipe, seeds: int | None = None
) -> Path | None:
    """The folder with the run of ``recipe``, finished if there is one.

    Looked for in its own place, in other cells of its study, then, if finished, in other studies.
    A run of one seed, as a cell of cost is, does not stand for another cell that wants more.
    """
    if cell.model in RIVALS:
        return place if (place / "results.json").is_file() else None
    runs = _runs_of(recipe, root, place, exact=cell.trials is not None)

    def is_mine(run: Path) -> bool:
        beside = run.parent == place.parent
        return run == place or (beside and _fits(run / "recipe.yaml", recipe, exact=True))

    def is_complete(run: Path) -> bool:
        least = 1 if run == place else min(2, recipe.trials)
        return _ended(run) >= max(_wanted(mine or run, cell, seeds), least)

    mine = next(filter(is_mine, runs), None)
    return max(filter(is_complete, runs), key=_ended, default=mine)


def _runs_of(recipe: Recipe, root: Path, place: Path, exact: bool) -> list[Path]:
    """The runs under ``root`` that have the recipe, that in ``place`` first."""
    runs = []
    for path in dict.fromkeys([place / "recipe.yaml", *sorted(root.glob("*/*/recipe.yaml"))]):
        try:
            if path.is_file() and _fits(path, recipe, exact):
                runs.append(path.parent)
        except ConfigError as error:
            if path.parent == place:  # of another cell it is said there
                raise InputError(
                    f"{error}; the run is damaged: restore this file, or move {place} away and "
                    "train again"
                ) from None
    return runs


def _ended(folder: Path) -> int:
    """How many seeds have a result."""
    path = folder / "results.json"
    return len(read_results(path)["trials"]) if path.is_file() else 0


def _wanted(folder: Path, cell: Cell, seeds: int | None = None) -> int:
    """How many seeds complete what was begun: its own number, or ``seeds`` if these are more."""
    if cell.model in RIVALS:
        own: int = read_results(folder / "results.json").get("wanted", _ended(folder))
    else:
        own = _known(folder / "recipe.yaml").trials
    return own if cell.trials is not None else max(own, seeds or 0)


def _look(study: Study, cell: Cell, plan: Plan, root: Path) -> Measured:
    if reason := cell.misfit(plan):
        return Measured(cell, missing=reason)
    recipe = cell.recipe(plan.trials, plan.settings)
    found = find(root, root / study.name / cell.name, cell, recipe)
    if found is None:
        return Measured(cell, missing="not begun")
    if cell.model in RIVALS:
        outcome = read_results(found / "results.json")
        return Measured(cell, outcome, missing=_missing(outcome, _wanted(found, cell)))
    history, memory = History(Run.load(found), cell.row), found / "memory.json"
    outcome = history.outcome
    return Measured(
        cell,
        outcome if outcome["test"]["values"] else None,
        history,
        _missing(outcome, _wanted(found, cell)),
        _peak(memory) if memory.is_file() else None,
    )


def _peak(path: Path) -> int:
    remedy = "restore this file, or delete it: then only the memory is not known"
    return int(read_json(path, ("peak_bytes",), remedy)["peak_bytes"])


def _missing(outcome: dict[str, Any], wanted: int) -> str:
    ended, good = len(outcome["trials"]), len(outcome["test"]["values"])
    if ended < wanted:
        return f"{ended} of {wanted} seeds are done"
    return "" if good == ended else f"{ended - good} of {ended} seeds diverged"


def _require_score(folder: Path) -> dict[str, Any]:
    """The results of a cell whose seeds have ended; raises if none of them has a score."""
    outcome = read_results(folder / "results.json")
    if not outcome["test"]["values"]:
        raise InputError(_missing(outcome, len(outcome["trials"])))
    return outcome


def _train(
    cell: Cell, recipe: Recipe, place: Path, until: float | None, device: str, quiet: bool
) -> None:
    options: dict[str, Any] = {"device": device, "tensorboard": False, "quiet": quiet}
    where = find_device(device)
    on_gpu = where.type == "cuda"
    if on_gpu:
        torch.cuda.init()  # there are no statistics before
        torch.cuda.reset_peak_memory_stats(where)
    else:
        _forget_peak()
    kept = place / "recipe.yaml"
    if not kept.is_file():
        fit(cell.dataset, recipe=recipe, out=place, until=until, **options)
    elif _fits(kept, recipe):
        seeds = max(recipe.trials, _known(kept).trials)
        resume(place, trials=seeds, until=until, **options)
    else:
        raise InputError(f"{place}: holds a run of another recipe; choose another --out")
    peak = torch.cuda.max_memory_allocated(where) if on_gpu else _process_peak()
    replace_json(place / "memory.json", {"of": "GPU" if on_gpu else "process", "peak_bytes": peak})


def _compute(cell: Cell, recipe: Recipe, place: Path, until: float | None) -> None:
    """Seed by seed, each written when it is there."""
    path = place / "results.json"
    results = read_results(path)["trials"] if path.is_file() else []
    with Stop(until).listening() as stop:
        for number in range(len(results), recipe.trials):
            if stop.agreed():
                assert stop.signal is not None
                raise StoppedError("stopped", stop.signal)
            results.append(RIVALS[cell.model](recipe, number))
            outcome = summary(results, results[0]["metric"])
            around = environment(torch.device("cpu"))
            replace_json(path, {**outcome, "wanted": recipe.trials, "environment": around})


def _forget_peak() -> None:
    """Let the peak of the process be what it holds now, where the system can."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _process_peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _fits(path: Path, recipe: Recipe, exact: bool = False) -> bool:
    """Whether a run has this recipe; unless ``exact``, whatever its number of seeds."""
    found = _known(path)
    return (found if exact else replace(found, trials=recipe.trials)) == recipe


def _known(path: Path) -> Recipe:
    return _recipe(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=4096)
def _recipe(path: Path, changed: int) -> Recipe:
    return Recipe.load(path)
