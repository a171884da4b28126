"""``gradformer predict``: what a run says of new graphs, row by row."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from gradformer.cli.options import Inference, NewData, RunFolder, Smiles, out_option
from gradformer.cli.tables import count

if TYPE_CHECKING:
    from gradformer.graphs.tables import Table
    from gradformer.graphs.user_data import UserData


def predict(
    folder: RunFolder,
    data: NewData,
    *,
    out: Annotated[Path | None, out_option(help="CSV to write (default: standard output).")] = None,
    smiles: Smiles = None,
    use: Inference,
) -> None:
    """Predict: one row for each row of the file, in its order, with the file's own columns.

    A table whose columns are separated by semicolons is written so, with its decimal mark. Classes
    come by name with their probabilities, values in your units. With several trials the mean is
    given, and how far they differ. A row that cannot be read is reported and left empty.

    Example: [bold]gradformer predict runs/mine new.csv -o predictions.csv[/bold]

    Example: [bold]gradformer predict molhiv molecules.csv[/bold]
    """
    from gradformer.graphs.cards import is_card
    from gradformer.graphs.tables import Table, open_table
    from gradformer.training.files import replace_file
    from gradformer.training.inference import open_data
    from gradformer.training.run import Run
    from gradformer.training.wording import cell, columns, with_names

    run = Run.load(folder)
    source: Any = data
    reading: dict[str, Any] = {} if smiles is None else {"smiles": smiles}
    if not is_card(data):  # its rows that cannot be read are left empty
        source, reading = run.read(data, skip_invalid=True, **reading), {}
    store, user = open_data(run, source, use.mirror, **reading)
    predictions = run.predict(store, device=use.device, batch_size=use.batch_size)
    by_column = columns(run.labels, predictions.trials)
    rows = user.rows.tolist() if user is not None else list(range(store.num_graphs))
    keys = rows
    if run.schema.level == "node":
        sizes = store.sizes.tolist()
        nodes = [[str(row), str(k)] for row, size in zip(rows, sizes) for k in range(size)]
        keys = list(range(len(nodes)))
        table = Table(Path(data), "node", ["row", "node"], list(enumerate(nodes)))
    elif user is not None and user.smiles is not None:
        table = open_table(Path(data))
    else:
        skipped = [row for row, _ in user.skipped] if user is not None else []
        numbered = [(row, [str(row)]) for row in sorted([*rows, *skipped])]
        table = Table(Path(data), "row", ["row"], numbered)
    head, mark = table.header, "," if table.has_commas() else "."
    answers = list(zip(*([cell(v, mark) for v in values] for values in by_column.values())))
    answer_of = dict(zip(keys, answers))
    empty = ("",) * len(by_column)
    text = io.StringIO(newline="")
    separator = ";" if table.separator == ";" else ","
    if table.stated:
        text.write(f"sep={separator}\n")
    writer = csv.writer(text, delimiter=separator, lineterminator="\n")
    writer.writerow(with_names(head, by_column))
    writer.writerows([*cells, *answer_of.get(key, empty)] for key, cells in _whole_rows(table))
    if out is None:
        typer.echo(text.getvalue().encode(), nl=False)  # as a file is, whatever the terminal
    else:
        replace_file(out, "\ufeff" * table.marked + text.getvalue())
    _tell(user, out, len(answers))


def _whole_rows(table: Table) -> list[tuple[int, list[str]]]:
    """The table as the user has it, each row as long as the header."""
    width = len(table.header)
    return [(row, [*cells, *[""] * width][:width]) for row, cells in table.rows]


def _tell(user: UserData | None, out: Path | None, answers: int) -> None:
    """On standard error: where the predictions are, and every row that has none."""
    lines = [] if out is None else [f"{count(answers, 'prediction')} in {out}"]
    if user is not None:
        lines += [f"left empty, {user.unit} {row}: {reason}" for row, reason in user.skipped]
    for line in lines:
        Console(stderr=True).print(line, highlight=False, soft_wrap=True, markup=False)
