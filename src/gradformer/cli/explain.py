"""``gradformer explain``: what every head looks at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gradformer.cli.options import Mirror, NewFile, RunFolder, Trial, data_argument, out_option


def explain(
    folder: RunFolder,
    *,
    data: Annotated[
        str | None,
        data_argument(
            metavar="FILE",
            help="Your graphs, or the name of a benchmark (default: the run's example graphs).",
        ),
    ] = None,
    out: Annotated[
        Path | None, out_option(help="HTML file to write (default: RUN/attention.html).")
    ] = None,
    most: Annotated[int, typer.Option(metavar="N", min=1, help="Graphs to show.")] = 5,
    layer: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="One layer (default: the mean over all).")
    ] = None,
    trial: Trial = 0,
    read: NewFile,
    mirror: Mirror = None,
) -> None:
    """Draw the attention of every head on the graph: score, decay, and the weight that results.

    One self-contained HTML page.

    Example: [bold]gradformer explain runs/mine new.csv -o attention.html[/bold]
    """
    from gradformer.errors import InputError
    from gradformer.report import write_explanation
    from gradformer.training.files import expect_place
    from gradformer.training.keepsakes import load_examples
    from gradformer.training.run import Run

    run = Run.load(folder)
    out = out or run.page("attention.html")
    expect_place(out, ".html")
    graphs = load_examples(folder) if data is None else data
    if graphs is None:
        raise InputError(f"{folder}: has no example graph to draw; name a FILE with graphs")
    options = {"trial": trial, "layer": layer, "most": most, "mirror": mirror, **read.options()}
    typer.echo(write_explanation(run, graphs, out, **options))
