"""``gradformer reproduce``: a table or figure of the paper, measured here."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from gradformer.cli.complete import choices, model_names, preset_names, recipe_names
from gradformer.cli.options import (
    Device,
    Mirror,
    Settings,
    smoke_settings,
    smoke_trials,
    use_mirror,
)

ROOT = Path("results/studies")
NAMES = (
    *("table1", "deep", "low-resource", "ablation", "index"),
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
    trials: Annotated[
        int | None,
        typer.Option("--trials", "-n", min=1, help="Seeds of each cell (default: the recipe's)."),
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
            help="A recipe in place of the study's own; repeat it.", autocompletion=recipe_names
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            help="A model, majority or fingerprints, in place of the study's.",
            autocompletion=model_names,
        ),
    ] = None,
    preset: Annotated[
        list[str] | None,
        typer.Option(
            help="Train only cells of this preset; repeat it; none: cells without one.",
            autocompletion=preset_names,
        ),
    ] = None,
    settings: Settings = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder of the studies: cells are in OUT/NAME.")
    ] = ROOT,
    mirror: Mirror = None,
    device: Device = "auto",
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show no progress.", rich_help_panel="Machine")
    ] = False,
) -> None:
    """Measure a table or figure of the paper, cell after cell, and write its page.

    It can stop at any time (budget, Ctrl-C, a lost machine) and goes on with --resume to the same
    bits. The page has the paper's numbers beside ours, paired differences, the protocol, and what
    is missing.

    Example: [bold]gradformer reproduce table1 --dataset nci1 --trials 10[/bold]

    Example: [bold]gradformer reproduce table1 --resume --budget 25[/bold]
    """
    import signal

    from gradformer.studies import find_study
    from gradformer.studies.page import write_pages
    from gradformer.studies.runner import begin, carry_out, kept_plan, look
    from gradformer.studies.study import Plan, chosen_cells
    from gradformer.training.loop import StoppedError

    began = time.monotonic()
    use_mirror(mirror)
    study = find_study(name)
    begun = kept_plan(study, out) if resume else None
    kept = begun or Plan(study.datasets, study.models)
    seeds = smoke_trials(trials)
    of_some = begun is not None and bool(dataset or model or preset)
    asked = Plan(
        tuple(dataset or kept.datasets),
        tuple(model or kept.models),
        None if of_some else seeds,  # for a part of the cells, seeds are not those of the plan
        (*settings, *smoke_settings()) if settings else tuple(smoke_settings()) or kept.settings,
        tuple(preset or kept.presets),
    )
    cells = chosen_cells(study, asked, model or (), preset or ())
    whole = begin(study, asked, out, resume)
    failed = {}
    try:
        failed = carry_out(
            study,
            cells,
            whole,
            out,
            until=None if budget is None else began + 60 * budget,
            device=device,
            quiet=quiet,
            tell=lambda text: typer.echo(text, err=True),
            only=[
                f"{option} {value}"
                for option, values in (
                    ("--dataset", dataset),
                    ("-m", model),
                    ("--preset", preset),
                    ("--trials", [trials] if trials else None),
                )
                for value in values or ()
            ],
            seeds=seeds,
        )
    except StoppedError as stopped:
        if stopped.signal != signal.SIGALRM:
            raise
        typer.echo(str(stopped), err=True)
    finally:
        measured = look(study, study.cells(whole.datasets, whole.models), whole, out)
        page = write_pages(study, whole, measured, out, failed)
        done = sum(one.outcome is not None and not one.missing for one in measured)
        typer.echo(f"measured {done} of {len(measured)} cells")
        typer.echo(f"page     {page}")
    if failed:
        raise typer.Exit(1)
