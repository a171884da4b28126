"""``gradformer train``: from data to a run, or from a stopped run to its end."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradformer.cli.options import (
    Machine,
    Quiet,
    Training,
    TrainingFile,
    data_argument,
    out_option,
    trials_option,
)
from gradformer.cli.training import (
    end_of,
    refuse_others,
    smoke_trials,
    stopping_in_time,
)
from gradformer.errors import ConfigError, InputError

if TYPE_CHECKING:
    from gradformer.training.run import Run

SAMPLE = "pattern-sample"


def train(
    ctx: typer.Context,
    data: Annotated[
        str | None,
        data_argument(
            help=f"Benchmark (see `gradformer data list`), or your own file (default: {SAMPLE})."
        ),
    ] = None,
    *,
    chosen: Training,
    trials: Annotated[
        int | None, trials_option(help="Seeds, trained side by side (default: the recipe's).")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="First seed (default: the recipe's).")
    ] = None,
    out: Annotated[
        Path | None, out_option(help="Folder to make (default: runs/DATA-MODEL-TIME).")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a run that is there.")
    ] = False,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Continue a run that was stopped; with more --trials, add seeds. If its data have "
            "moved, name them too.",
        ),
    ] = None,
    read: TrainingFile,
    machine: Machine,
    tensorboard: Annotated[
        bool, typer.Option(help="Write curves for TensorBoard too.", rich_help_panel="Machine")
    ] = True,
    report: Annotated[bool, typer.Option(help="Write report.html at the end.")] = True,
    quiet: Quiet = False,
) -> None:
    """Train a model; print the result and where the report is.

    Without arguments it trains on a generated sample of PATTERN, in under a minute on two cores.
    Ctrl-C saves the run and says how to continue it.

    Example: [bold]gradformer train zinc --trials 10[/bold]

    Example: [bold]gradformer train molecules.csv --smiles smiles --target y --split scaffold[/bold]

    Example: [bold]gradformer train mutag --model gin --set model.layers=3 --out runs/gin[/bold]

    Example: [bold]gradformer train molecules.csv --target y --weights molhiv[/bold]

    Example: [bold]gradformer train --resume runs/gin --trials 20[/bold]
    """
    from gradformer.graphs.cards import is_card
    from gradformer.training.fit import fit
    from gradformer.training.fit import resume as continue_run
    from gradformer.training.recipe import load_recipe

    common: dict[str, Any] = {**vars(machine), "tensorboard": tensorboard, "quiet": quiet}
    until = end_of(chosen.budget)
    if resume is not None:
        refuse_others(ctx, "a run", {"data", "resume", "trials", "report", "budget", *common})
        with stopping_in_time():
            _finish(continue_run(resume, data, trials=trials, until=until, **common), report)
        return
    if data is None and chosen.recipe is not None:
        data = load_recipe(str(chosen.recipe)).dataset
        if not is_card(data):
            raise ConfigError(
                f"--recipe {chosen.recipe}: is for data of your own; name them too: gradformer "
                f"train FILE --recipe {quote(str(chosen.recipe))} (and --target, as when it was "
                "made)"
            )
    with stopping_in_time():
        run = fit(
            data or SAMPLE,
            recipe=chosen.recipe,
            model=chosen.model,
            preset=chosen.preset,
            settings=chosen.changes(seed),
            trials=smoke_trials(trials),
            out=out,
            overwrite=overwrite,
            until=until,
            **common,
            **read.options(),
        )
        _finish(run, report)


def _finish(run: Run, report: bool) -> None:
    """Result first, then the page: a report that fails costs nothing."""
    from gradformer.cli.tables import print_results
    from gradformer.training.distributed import is_first

    if not is_first():
        return
    print_results(run)
    typer.echo(f"run      {run.folder}")
    if report:
        from gradformer.report import write_report

        typer.echo(f"report   {write_report([run], run.folder / 'report.html')}")
    if all(trial["test"] is None for trial in run.results["trials"]):
        raise InputError(
            f"{run.folder}: no trial has a test score, so there is no model; where all diverged, "
            "train anew with a lower train.lr"
        )
