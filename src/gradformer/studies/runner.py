"""Carrying out a study: cell after cell, stopped at any time, continued where it was.

A cell is a run, so it continues to the same bits. What is complete (see ``looking``) is not trained
again; seeds are added, in its own place, when a command asks for more. Several processes may carry
out one study: each takes the next cell that no other trains.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from shlex import quote
from typing import Any

import torch

from gradformer.errors import GradformerError, InputError, spent
from gradformer.studies.looking import (
    find,
    has_recipe,
    kept_plan,
    kept_recipe,
    seeds_ended,
    seeds_wanted,
    what_is_missing,
)
from gradformer.studies.rivals import RIVALS
from gradformer.studies.study import Cell, Plan, Study
from gradformer.training.distributed import find_device
from gradformer.training.files import replace_json
from gradformer.training.fit import fit, resume
from gradformer.training.folder import BusyError, held
from gradformer.training.memory import most_held, settle
from gradformer.training.recipe import Recipe
from gradformer.training.records import RECORD, compress, environment, read_results
from gradformer.training.stop import Stop, StoppedError
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

    ``failed`` gets the cells that end without a score, and why; the caller has it even if this
    stops. A new cell gets the seeds of the plan; one that was begun keeps its own number, or gets
    ``seeds`` if these are more. ``only`` are the words of the command that chose the cells, for the
    line that says how to continue. Raises :class:`StoppedError` after saving if a signal asks to
    stop, or at ``until`` (on the monotonic clock; then its signal is SIGALRM).
    """
    words = ["gradformer reproduce", study.name, "--resume", "--out", quote(str(root)), *only]
    again = f"continue: {' '.join(words)}"
    for number, cell in enumerate(cells, 1):
        if cell.without_preset:
            continue
        try:
            recipe = cell.recipe(seeds or plan.trials, plan.settings)
            own = root / study.name / cell.name
            found, is_complete = find(root, own, cell, recipe, seeds)
            if found is not None and is_complete:
                _require_score(found)
                continue
            kept = ""
            if found is not None:
                wanted = seeds_wanted(found, cell, seeds)
                if seeds and wanted > recipe.trials:
                    kept = f", with the {wanted} seeds that it was begun with"
                recipe = replace(recipe, trials=wanted)
            place = found or own
            if until is not None and time.monotonic() >= until:
                raise StoppedError("the time is spent", signal.SIGALRM)
            tell(f"cell {number} of {len(cells)}: {cell.row} on {cell.column}{kept}")
            if cell.model in RIVALS:
                _compute(cell, recipe, place, until)
            else:
                _train(cell, recipe, place, until, device, quiet)
            if lost := _require_score(place)["diverged"]:
                tell(f"{len(lost)} of {seeds_ended(place)} seeds diverged: they count nowhere")
        except StoppedError as stopped:
            raise StoppedError(f"stopped and saved; {again}", stopped.signal) from None
        except BusyError:
            tell("another process is training it")
        except (GradformerError, RuntimeError, MemoryError) as error:
            told = error if isinstance(error, GradformerError) else spent(error)
            if told is None:
                raise
            failed[cell] = str(told)
            tell(f"{cell.row} on {cell.column} is left out: {failed[cell]}")


def _require_score(folder: Path) -> dict[str, Any]:
    """The results of a cell whose seeds have ended; raises if none of them has a score."""
    outcome = read_results(folder / "results.json")
    if not outcome["test"]["values"]:
        raise InputError(what_is_missing(outcome, len(outcome["trials"])))
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
        settle()
    if not (place / "recipe.yaml").is_file():
        fit(cell.dataset, recipe=recipe, out=place, until=until, **options)
    elif has_recipe(place, recipe):
        seeds = max(recipe.trials, kept_recipe(place).trials)
        resume(place, trials=seeds, until=until, **options)
    else:
        raise InputError(f"{place}: holds a run of another recipe; choose another --out")
    peak = torch.cuda.max_memory_allocated(where) if on_gpu else most_held()
    replace_json(place / "memory.json", {"of": "GPU" if on_gpu else "process", "peak_bytes": peak})
    with held(place):
        compress(place / RECORD)


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
