"""``gradformer reproduce``: a table or figure of the paper, measured here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradformer.cli.complete import choices, model_names, preset_names
from gradformer.cli.options import Machine, Quiet, Settings, out_option, trials_option
from gradformer.cli.training import (
    end_of,
    smoke_settings,
    smoke_trials,
    stopping_in_time,
    tell,
    use_mirror,
)
from gradformer.recipes import recipe_names

if TYPE_CHECKING:
    from gradformer.studies.study import Cell, Plan, Study

ROOT = Path("results/studies")
NAMES = (
    *("table1", "baselines", "deep", "low-resource", "ablation", "index"),
    *("decay", "efficiency", "nodes", "attention", "starts"),
)


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help=f"{', '.join(NAMES[:-1])} or {NAMES[-1]}.",
            autocompletion=choices(*NAMES),
        ),
    ],
    *,
    trials: Annotated[
        int | None, trials_option(help="Seeds of each cell (default: the recipe's).")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            metavar="MINUTES",
            help="Stop and save after so long; 0 only writes the pages anew.",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue; options left out are as before.")
    ] = False,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A recipe in place of the study's own; repeat it.",
            autocompletion=recipe_names,
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            metavar="NAME",
            help="A model, majority or fingerprints, in place of the study's; repeat it.",
            autocompletion=model_names,
        ),
    ] = None,
    preset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Train only cells of this preset; repeat it; none: cells without one.",
            autocompletion=preset_names,
        ),
    ] = None,
    settings: Settings = None,
    out: Annotated[Path, out_option(help="Folder of the studies: cells are in OUT/NAME.")] = ROOT,
    machine: Machine,
    quiet: Quiet = False,
) -> None:
    """Measure a table or figure of the paper, cell after cell, and write its page.

    It can stop at any time (budget, Ctrl-C, a lost machine) and goes on with --resume to the same
    bits. The page has the paper's numbers beside ours, differences, the protocol, and what is
    missing.

    Example: [bold]gradformer reproduce table1 --dataset nci1 --trials 10[/bold]

    Example: [bold]gradformer reproduce table1 --resume --budget 25[/bold]
    """
    from gradformer.errors import InputError
    from gradformer.studies import find_study
    from gradformer.studies.looking import kept_plan
    from gradformer.studies.runner import begin, carry_out
    from gradformer.studies.study import Plan, chosen_cells

    until = end_of(budget)
    use_mirror(machine.mirror)
    study = find_study(name)
    begun = kept_plan(study, out) if resume else None
    kept = begun or Plan(study.datasets, study.models)
    chosen = {"--dataset": dataset, "-m": model, "--preset": preset}
    if resume and begun is None and not (any(chosen.values()) or settings or trials):
        raise InputError(
            f"{out / study.name}: nothing was begun there, so options left out cannot be as "
            "before; name another --out, or leave --resume out to measure the whole study"
        )
    seeds = smoke_trials(trials)
    of_some = begun is not None and any(chosen.values())
    asked = Plan(
        tuple(dataset or kept.datasets),
        tuple(model or kept.models),
        None if of_some else seeds,  # for a part of the cells, seeds are not those of the plan
        (*settings, *smoke_settings()) if settings else tuple(smoke_settings()) or kept.settings,
        tuple(preset or kept.presets),
    )
    cells = chosen_cells(study, asked, model or (), preset or (), settings or ())
    whole = begin(study, asked, out, resume)
    words = [f"{option} {value}" for option, values in chosen.items() for value in values or ()]
    failed: dict[Cell, str] = {}
    try:
        with stopping_in_time():
            carry_out(
                study,
                cells,
                whole,
                out,
                failed,
                until=until,
                device=machine.device,
                quiet=quiet,
                tell=tell,
                only=[*words, f"--trials {trials}"] if trials else words,
                seeds=seeds,
            )
    finally:
        _write(study, whole, out, failed)
    if failed:
        raise typer.Exit(1)


def _write(study: Study, plan: Plan, root: Path, failed: dict[Cell, str]) -> None:
    """The pages, of whatever there is; the table is printed too."""
    from gradformer.cli.tables import show_rows
    from gradformer.studies.looking import kept_plan, look
    from gradformer.studies.page import write_pages
    from gradformer.studies.tables import results

    plan = kept_plan(study, root) or plan  # another process may have asked for more
    measured = look(study, plan, root)
    page = write_pages(study, plan, measured, root, failed)
    head, rows = results(study, measured, sizes=False)  # a terminal is narrow
    if rows:
        show_rows(head, rows, words=3)
    done = sum(one.outcome is not None and not one.missing for one in measured)
    typer.echo(f"measured {done} of {len(measured)} cells")
    typer.echo(f"page     {page}")
