"""``gradformer report``: the page of a run, or of several beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gradformer.cli.options import out_option


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Folders of runs, one or more.")
    ],
    out: Annotated[
        Path | None,
        out_option(help="File to write (default: RUN/report.html, or comparison.html)."),
    ] = None,
) -> None:
    """Write one self-contained HTML page: results, curves, start points, attention, settings.

    Several runs on the same data are compared, seed by seed where each has its own split; the
    tables are printed too. A run that is not finished shows what there is.

    Example: [bold]gradformer report runs/mine[/bold]

    Example: [bold]gradformer report runs/gradformer runs/gin -o gradformer-vs-gin.html[/bold]
    """
    from gradformer.report import write_report
    from gradformer.training.files import expect_place
    from gradformer.training.run import Run

    if out is None:
        alone = len(folders) == 1
        out = Run.load(folders[0]).page("report.html") if alone else Path("comparison.html")
    expect_place(out, ".html")
    page = write_report(folders, out)
    if len(folders) > 1:
        _compare(folders)
    typer.echo(page)


def _compare(folders: list[Path]) -> None:
    """Print the results of the runs, and the differences to the first."""
    from gradformer.cli.tables import show_rows
    from gradformer.report.history import open_histories
    from gradformer.report.outcome import APART, closed, comparison, differences, unequal

    histories = open_histories(folders)
    show_rows(*comparison(histories), words=3)
    for note in filter(None, [*closed(histories), unequal(histories)]):
        typer.echo(note)
    head, found, _ = differences(histories)
    typer.echo()
    if found:
        show_rows(head, found, words=1)
    else:
        typer.echo(APART)
    typer.echo()
