"""``gradformer evaluate``: the scores of a run, on its own data or on others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from gradformer.cli.complete import choices, data_names
from gradformer.cli.options import (
    BatchSize,
    Device,
    Mirror,
    RunFolder,
    SkipInvalid,
    Smiles,
    reading_options,
)
from gradformer.cli.tables import count, metric_label


def evaluate(
    folder: RunFolder,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="DATASET|FILE",
            help="Other data (default: the run's own).",
            autocompletion=data_names,
        ),
    ] = None,
    part: Annotated[
        str,
        typer.Option(
            help="train, val or test; a file is scored whole.",
            autocompletion=choices("train", "val", "test"),
        ),
    ] = "test",
    smiles: Smiles = None,
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

    from gradformer.report.scales import spread
    from gradformer.training.distributed import find_device
    from gradformer.training.files import plain
    from gradformer.training.run import Run

    run = Run.load(folder)
    found = run.evaluate(
        on,
        part=part,
        mirror=mirror,
        device=find_device(device),
        batch_size=batch_size,
        **reading_options(smiles, skip_invalid=skip_invalid),
    )
    if as_json:
        typer.echo(json.dumps(plain(found)))
        return
    whole = on is not None and Path(on).exists()
    where = on if whole else f"{part} part of {on or run.recipe.dataset}"
    table = Table()
    table.add_column("metric")
    table.add_column(count(len(found), "trial"), justify="right")
    for name in found[0]:
        table.add_row(metric_label(name), spread([trial[name] for trial in found]))
    console = Console()
    console.print(f"[bold]{folder}[/] on [bold]{where}[/]", highlight=False, soft_wrap=True)
    console.print(table)
