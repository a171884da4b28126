"""``gradformer evaluate``: the scores of a run, on its own data or on others."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from gradformer.cli.options import BatchSize, Device, Mirror, RunFolder, SkipInvalid


def evaluate(
    folder: RunFolder,
    on: Annotated[
        str | None,
        typer.Option(metavar="DATASET|FILE", help="Other data (default: the run's own)."),
    ] = None,
    part: Annotated[str, typer.Option(help="train, val or test; a file is scored whole.")] = "test",
    skip_invalid: SkipInvalid = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, a list of trials.")] = False,
    batch_size: BatchSize = 64,
    mirror: Mirror = None,
    device: Device = "auto",
) -> None:
    """Score a run: every metric of its task, mean ± standard deviation over its trials.

    Example: [bold]gradformer evaluate runs/mine[/bold]

    Example: [bold]gradformer evaluate runs/mine --on new.csv[/bold]
    """
    from rich.console import Console
    from rich.table import Table

    from gradformer.cli.tables import metric_name, spread
    from gradformer.errors import choice
    from gradformer.training.distributed import find_device
    from gradformer.training.metrics import LOWER_IS_BETTER
    from gradformer.training.run import Run

    choice("--part", part, ("train", "val", "test"))
    run = Run.load(folder)
    found = run.evaluate(
        on,
        part=part,
        mirror=mirror,
        device=find_device(device),
        batch_size=batch_size,
        **({"skip_invalid": True} if skip_invalid else {}),
    )
    if as_json:
        typer.echo(json.dumps(found))
        return
    where = f"{part} part of {run.recipe.dataset}" if on is None else on
    table = Table()
    table.add_column("metric")
    table.add_column(f"{len(found)} trial" + ("" if len(found) == 1 else "s"), justify="right")
    for name in found[0]:
        values = [trial[name] for trial in found]
        table.add_row(metric_name(name, name in LOWER_IS_BETTER), spread(list(values)))
    console = Console()
    console.print(f"[bold]{folder}[/] on [bold]{where}[/]", highlight=False)
    console.print(table)
