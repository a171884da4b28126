"""How tables and the numbers of a run look in a terminal, and in a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gradformer.errors import counted, warn

if TYPE_CHECKING:
    from gradformer.training.run import Run

as_it_is = partial(Console, markup=False, emoji=False)
"""For what may hold names of the user: [brackets] are words of style to rich, :o: is a picture."""


def plain_table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """A table without lines, for much text at 80 columns."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for place, title in enumerate(columns):
        table.add_column(title, justify="right" if title in right else "left", no_wrap=place == 0)
    return table


def fact_table(columns: int) -> Table:
    """Names and what there is to say of them."""
    table = plain_table(*[""] * columns)
    table.show_header = False
    return table


def ruled_table(name: str, *numbers: str) -> Table:
    """A table with lines, of one column of words and the others of numbers."""
    table = Table(name)
    for title in numbers:
        table.add_column(title, justify="right")
    return table


def show(table: Table) -> None:
    """Print a table: as wide as the terminal, or, into a pipe or file, a line for each row."""
    console = as_it_is()
    if not console.is_terminal:
        free = console.options.update(max_width=10_000)
        console = as_it_is(width=console.measure(table, options=free).maximum)
    console.print(table)


def show_rows(head: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> None:
    """Print rows of text, the first ``words`` columns of which are not numbers.

    What all of several rows share is said once, above them: a terminal has room for the rest.
    """
    same = [len(rows) > 1 and len(set(column)) == 1 for column in zip(*rows)]
    if any(same):
        said = ", ".join(
            f"{title} {text}" for title, text, once in zip(head, rows[0], same) if once
        )
        as_it_is().print(said, highlight=False, style="dim", soft_wrap=True)
    kept = [place for place, once in enumerate(same) if not once]
    right = tuple(head[place] for place in kept if place >= words)
    table = plain_table(*(head[place] for place in kept), right=right)
    for row in rows:
        table.add_row(*(row[place] for place in kept))
    show(table)


def print_title(what: str, where: str, more: str = "") -> None:
    """What the table below is about, on one line."""
    title = Text.assemble((what, "bold"), " on ", (where, "bold"), more)
    as_it_is().print(title, highlight=False, soft_wrap=True)


def print_results(run: Run) -> None:
    """The result table of a finished run."""
    from gradformer.report.scales import duration, spread
    from gradformer.training.metrics import SCALED, metric_label

    results = run.results
    good = [trial for trial in results["trials"] if trial["test"] is not None]
    table = ruled_table("metric", "validation", "test")
    for name in good[0]["test"] if good else ():
        parts = (spread([trial[part].get(name) for trial in good]) for part in ("val", "test"))
        table.add_row(metric_label(name), *parts, style="bold" if name == results["metric"] else "")
    seconds = sum(line["seconds"] for line in run.record if line["kind"] == "epoch")
    print_title(
        run.recipe.model.name,
        run.recipe.dataset,
        f": {counted(len(good), 'trial')}, {results['trials'][0]['parameters']:,} parameters, "
        f"{duration(seconds)} of training",
    )
    console = as_it_is()
    if good:
        show(table)
        console.print("test at the epoch of the best validation", style="dim")
    if (targets := len(run.labels.targets)) > 1:
        how = f"gradformer evaluate {quote(str(run.folder))} --by-target"
        scaled = results["metric"] == SCALED
        unit = " (std: of each target in the training part)" if scaled else ""
        console.print(
            f"over {targets} targets together{unit}; each: {how}", style="dim", soft_wrap=True
        )
    for trial in results["diverged"]:
        warn(f"trial {trial} diverged: it counts nowhere")
    for trial in good:
        if trial["test"][results["metric"]] is None:
            warn(
                f"trial {trial['trial']} has no test score and counts nowhere: "
                "answers on the test part are not finite, or its labels do not allow the metric; "
                "look there for features that are far too large, or for a single class"
            )
