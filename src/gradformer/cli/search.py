"""``gradformer search``: find settings by their validation score."""

from __future__ import annotations

import math
import os
import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradformer.cli.complete import choices
from gradformer.cli.options import (
    Machine,
    Training,
    TrainingFile,
    data_argument,
    out_option,
    trials_option,
)
from gradformer.cli.tables import as_it_is, plain_table, show
from gradformer.cli.training import (
    end_of,
    reading_words,
    refuse_others,
    smoke_trials,
    stopping_in_time,
    use_mirror,
)
from gradformer.errors import ConfigError, counted

if TYPE_CHECKING:
    from gradformer.training.attempts import Attempt
    from gradformer.training.plan import Plan

AS_IT_IS = "the recipe as it is"


def search(
    ctx: typer.Context,
    data: Annotated[str | None, data_argument(help="Benchmark or your own file.")] = None,
    *,
    samples: Annotated[int, typer.Option(metavar="N", min=1, help="Candidates to begin with.")] = 9,
    method: Annotated[
        str,
        typer.Option(
            help="halving, or random: all candidates in full.",
            autocompletion=choices("halving", "random"),
        ),
    ] = "halving",
    finalists: Annotated[
        int, typer.Option(metavar="N", min=1, help="Candidates that halving trains in full.")
    ] = 1,
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            metavar="NAME=V1,V2",
            help="Values of one setting; repeat it (default: the ranges of the recipe).",
        ),
    ] = None,
    chosen: Training,
    trials: Annotated[int | None, trials_option(help="Seeds each (default: 1).")] = None,
    out: Annotated[
        Path | None, out_option(help="Folder to make (default: runs/search-DATA-TIME).")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Continue a search that was stopped. If its data have moved, name them too.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed of the draw.")] = 0,
    read: TrainingFile,
    machine: Machine,
) -> None:
    """Search the ranges of a recipe by validation score; the test part stays closed.

    Halving trains many candidates for few epochs, and the best third for three times as many, until
    one is trained in full, and beside it the recipe as it is. They are compared by their best mean
    over five epochs in a row: on a small validation part the best single epoch is mostly luck. The
    winner is a recipe, best.yaml in the folder.

    Example: [bold]gradformer search mutag --samples 9 --out runs/search-mutag[/bold]

    Example: [bold]gradformer search zinc --range model.decay=0.4,0.6 --range train.lr=5e-4,1e-3
    [/bold]

    Example: [bold]gradformer train mutag --recipe runs/search-mutag/best.yaml --trials 10[/bold]
    """
    from gradformer.training.plan import load_plan
    from gradformer.training.search import search as carry_out

    until = end_of(chosen.budget)
    use_mirror(machine.mirror)
    if resume is not None:
        refuse_others(ctx, "a search", {"data", "resume", "budget", "mirror", "device"})
        folder, plan = resume, load_plan(resume)
        plan = replace(plan, data=data or plan.data)
    elif data is None:
        raise ConfigError("DATASET|FILE: say what to search on, as in gradformer search mutag")
    else:
        changes = ["trials=1", *chosen.changes()]
        changes += [] if trials is None else [f"trials={smoke_trials(trials)}"]
        options = {"samples": samples, "method": method, "finalists": finalists, "seed": seed}
        plan = _plan(data, chosen, changes, ranges, reading=read.options(), **options)
        stamp = time.strftime("%Y%m%d-%H%M%S")
        name = os.path.basename(os.path.abspath(data)).split(".")[0]  # also of the folder "."
        folder = out or Path("runs") / f"search-{name}-{stamp}"
    with stopping_in_time():
        tell = partial(_tell, plan)
        found = carry_out(plan, folder, device=machine.device, until=until, tell=tell)
        _show_levers(found.attempts)
        best = str(found.folder / "best.yaml")
        reading = reading_words(plan.reading or {})
        words = ["gradformer", "train", plan.data, *reading, "--recipe", best]
        typer.echo(f"best     {' '.join(found.settings) or AS_IT_IS}")
        typer.echo(f"recipe   {best}")
        typer.echo(f"train    {shlex.join(words)}")


def _tell(plan: Plan, attempt: Attempt) -> None:
    """An attempt that has ended, with the settings in which candidates differ, if they do: one
    line, which a terminal shows as far as it is wide; the record has it whole."""
    from gradformer.training.metrics import metric_label, score_text
    from gradformer.training.progress import telling

    name = metric_label(attempt.metric)
    value = "diverged" if attempt.val is None else f"{name} {score_text(attempt.val)}"
    drawn = [s for s in attempt.settings if len(plan.space[s.partition("=")[0]]) > 1]
    console = as_it_is(stderr=True)
    with telling():
        console.print(
            f"rung {attempt.rung}  {counted(attempt.epochs, 'epoch')}  validation {value}  "
            f"{' '.join(drawn or attempt.settings) or AS_IT_IS}",
            highlight=False,
            no_wrap=True,
            overflow="ellipsis" if console.is_terminal else "ignore",
            crop=console.is_terminal,
        )


def _show_levers(attempts: Sequence[Attempt]) -> None:
    """How much the best value of each setting gained over the others, and how clearly."""
    from gradformer.report.levers import levers
    from gradformer.training.metrics import metric_label, score_text

    if found := levers(attempts):
        metric, epochs = metric_label(attempts[0].metric), counted(attempts[0].epochs, "epoch")
        gain = f"gain in median {metric} over the others after {epochs}"
        table = plain_table(
            "setting", "best value", gain, "ranks apart", right=(gain, "ranks apart")
        )
        for one in found:
            better = score_text(one.gain).replace("-", "−")
            apart = f"{one.strength:.1f} σ"
            if one.strength == math.inf:  # ranks on either side have no spread to measure by
                apart = "wholly: each side has one score"
            table.add_row(one.name, one.value, better, apart)
        show(table)


def _plan(
    data: str, chosen: Training, changes: list[str], ranges: list[str] | None, **options: Any
) -> Plan:
    from gradformer.training.origins import recipe_name, refuse_dataset
    from gradformer.training.plan import Plan
    from gradformer.training.recipe import load_recipe, search_space

    refuse_dataset(changes)
    name = str(chosen.recipe) if chosen.recipe is not None else recipe_name(data)
    space: dict[str, Any] = dict([_range(text) for text in ranges or ()])
    if not space:  # what the user has set is not searched
        fixed = {text.partition("=")[0].strip() for text in changes}
        stated = search_space(name, chosen.model)
        space = {key: values for key, values in stated.items() if key not in fixed}
    recipe = load_recipe(name, model=chosen.model, preset=chosen.preset, settings=changes)
    return Plan(data, recipe, space, **options)


def _range(text: str) -> tuple[str, list[str]]:
    name, _, values = text.partition("=")
    if not name.strip() or not values.strip():
        raise ConfigError(f"--range {text!r}: expected NAME=V1,V2, as in model.decay=0.4,0.6")
    return name.strip(), [value.strip() for value in values.split(",")]
