"""``gradformer predict``: what a run says of new graphs, row by row."""

from __future__ import annotations

import codecs
import csv
import io
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from gradformer.cli.options import Inference, NewData, RunFolder, Smiles, out_option
from gradformer.cli.tables import as_it_is
from gradformer.errors import counted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gradformer.graphs.labels import Labels
    from gradformer.graphs.table_files import Table
    from gradformer.graphs.user_data import Skipped
    from gradformer.training.run import Run

    Part = tuple[list[int], NDArray[np.float64]]
    """Rows, and what all trials say of them."""
    Found = tuple[Table, list[Skipped], Iterator[Part]]
    """What is written, rows without an answer (when all parts are there), and the answers."""

NO_ANSWER = (
    "the model's answer is not a finite number; are features of it far larger than those that it "
    "was trained on?"
)
AT_ONCE = 8192
"""Molecules, about, whose graphs are in memory at a time."""


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
    from gradformer.graphs.own import kind_of
    from gradformer.graphs.user_data import Skipped
    from gradformer.training.files import append, expect_place, replace_file
    from gradformer.training.run import Run

    if out is not None:
        expect_place(out, ".csv")
    run = Run.load(folder)
    if is_card(data) or kind_of(Path(data)) != "smiles":
        table, skipped, parts = _of_graphs(run, data, smiles, use)
    else:
        table, skipped, parts = _of_molecules(run, data, smiles, use)
    text, answered, lost = _written(table, parts, run.labels)
    if run.schema.level == "node":
        nodes = Counter(int(table.rows[key][1][0]) for key in lost)
        reasons = {row: f"{counted(count, 'node')}: {NO_ANSWER}" for row, count in nodes.items()}
    else:
        reasons = dict.fromkeys(lost, NO_ANSWER)
    skipped += [Skipped(row, reason) for row, reason in reasons.items()]
    if out is not None:
        replace_file(out, codecs.BOM_UTF8 * table.marked + text)
    elif sys.stdout is not None:  # else closed
        append(sys.stdout.buffer, text)  # as a file is, whatever the terminal
        sys.stdout.flush()
    lines = [] if out is None else [f"{counted(answered, 'prediction')} in {out}"]
    lines += [f"left empty, {table.unit} {row}: {reason}" for row, reason in sorted(skipped)]
    console = as_it_is(stderr=True)
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)


def _of_molecules(run: Run, data: str, smiles: str | None, use: Inference) -> Found:
    """A table of molecules as the user has it, some at a time: it may have millions of rows."""
    from gradformer.graphs.table_files import open_table
    from gradformer.graphs.tables import read_parts
    from gradformer.graphs.user_data import RowChecks

    table = open_table(Path(data))
    rows = RowChecks(data, table.unit, skip_invalid=True)
    size = -(-AT_ONCE // use.batch_size) * use.batch_size  # the same batches as at once
    like = run.like("smiles", data)

    def parts() -> Iterator[Part]:
        for user in read_parts(table, rows, size, smiles, like=like, labelled=False):
            found = run.predict(user, device=use.device, batch_size=use.batch_size)
            yield user.rows.tolist(), found.trials

    return table, rows.skipped, parts()


def _of_graphs(run: Run, data: str, smiles: str | None, use: Inference) -> Found:
    """Graphs by the number of their row, or their nodes if these are what is predicted."""
    from gradformer.graphs.cards import is_card
    from gradformer.graphs.table_files import Table
    from gradformer.training.inference import open_data

    source: Any = data
    reading: dict[str, Any] = {} if smiles is None else {"smiles": smiles}
    if not is_card(data):  # rows that cannot be read are left empty
        source, reading = run.read(data, skip_invalid=True, **reading), {}
    store, user = open_data(run, source, use.mirror, **reading)
    found = run.predict(store, device=use.device, batch_size=use.batch_size)
    rows = user.rows.tolist() if user is not None else list(range(store.num_graphs))
    skipped = [] if user is None else list(user.skipped)
    unit = "row" if user is None else user.unit
    if run.schema.level == "node":
        sizes = store.sizes.tolist()
        nodes = [[str(row), str(k)] for row, size in zip(rows, sizes) for k in range(size)]
        table = Table(Path(data), unit, ["row", "node"], list(enumerate(nodes)))
        return table, skipped, iter([(list(range(len(nodes))), found.trials)])
    numbered = [(row, [str(row)]) for row in sorted([*rows, *(row for row, _ in skipped)])]
    return Table(Path(data), unit, ["row"], numbered), skipped, iter([(rows, found.trials)])


def _written(table: Table, parts: Iterator[Part], labels: Labels) -> tuple[bytes, int, list[int]]:
    """The table with the answers beside its rows, in UTF-8, how many answers there are, and the
    rows whose answer is no finite number: these are left empty."""
    import numpy as np

    from gradformer.training.wording import cell, columns, with_names

    mark, separator = "," if table.has_commas() else ".", ";" if table.separator == ";" else ","
    file = io.BytesIO()
    text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
    text.write(f"sep={separator}\n" * table.stated)
    writer = csv.writer(text, delimiter=separator, lineterminator="\n")
    rows, answered, lost, empty = iter(_whole_rows(table)), 0, list[int](), list[str]()
    for keys, trials in parts:
        sound = np.asarray(np.isfinite(trials).all(axis=(0, 2)))
        by_column = columns(labels, trials[:, sound])
        if not empty:
            writer.writerow(with_names(table.header, by_column))
            empty = [""] * len(by_column)
        answers = zip(*([cell(v, mark) for v in values] for values in by_column.values()))
        answer_of = dict(zip(compress(keys, sound), answers))
        answered += len(answer_of)
        lost += compress(keys, ~sound)
        for key, cells in rows:
            writer.writerow([*cells, *answer_of.get(key, empty)])
            if key == keys[-1]:
                break
    writer.writerows([*cells, *empty] for _, cells in rows)
    return file.getvalue(), answered, lost


def _whole_rows(table: Table) -> Iterator[tuple[int, list[str]]]:
    """The table as the user has it, each row as long as the header."""
    width = len(table.header)
    return ((row, [*cells, *[""] * width][:width]) for row, cells in table.rows)
