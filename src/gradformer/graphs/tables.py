"""Tables of molecules: CSV, TSV or parquet with a column of SMILES."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from gradformer.errors import InputError, warn
from gradformer.graphs.assemble import assemble
from gradformer.graphs.labels import MISSING
from gradformer.graphs.molecules import (
    ATOM_VOCABULARY,
    BOND_VOCABULARY,
    from_smiles,
    smiles_reader,
)
from gradformer.graphs.processes import each
from gradformer.graphs.raw_graphs import RawGraph
from gradformer.graphs.user_data import Reading, RowChecks, UserData, read_text
from gradformer.graphs.user_splits import names_parts, part_number

if TYPE_CHECKING:
    from pandas import DataFrame

TABLE_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet")
_QUOTED = re.compile(r'(?<![^,;\t\n])"[^"]*(?:""[^"]*)*"')  # a cell, from its beginning
_WITH_POINT = re.compile(r"\s*[+-]?\d+\.\d+([eE][+-]?\d+)?\s*")


def read_table(
    source: str | Path | Table,
    smiles: str | None = None,
    target: str | Sequence[str] | None = None,
    task: str | None = None,
    skip_invalid: bool = False,
    split_column: str | None = None,
    like: Reading | None = None,
    labelled: bool = True,
) -> UserData:
    """Read molecules and their targets from a file, or from a table that is open.

    ``smiles`` names the column of molecules (found by its name if not given), ``target`` the column
    or columns to learn (the only other column if not given), ``split_column`` one that holds train,
    val or test. ``task`` is found from the targets if not stated, see
    :func:`~gradformer.graphs.labels.find_labels`; a missing target is kept as missing. ``like`` is
    the reading of the training data: its columns and classes are used, and targets may be absent,
    or anything unless ``labelled``.

    Rows are counted as an editor does: the header of a text file is line 1, the first record of a
    parquet file is row 1.
    """
    table = source if isinstance(source, Table) else open_table(Path(source))
    rows = RowChecks(str(table.path), table.unit, skip_invalid)
    (data,) = read_parts(table, rows, None, smiles, target, task, split_column, like, labelled)
    return data


def read_parts(
    table: Table,
    rows: RowChecks,
    size: int | None,
    smiles: str | None = None,
    target: str | Sequence[str] | None = None,
    task: str | None = None,
    split_column: str | None = None,
    like: Reading | None = None,
    labelled: bool = True,
) -> Iterator[UserData]:
    """As :func:`read_table`, ``size`` molecules at a time; for training (without ``like``) all.

    Of a table that is long, the graphs of one part are in memory. ``rows`` has all that was skipped
    when the last part is there.
    """
    path = table.path
    if like is not None:
        like.expect("smiles", str(path))
        if smiles is None and like.smiles is not None:
            smiles = _column_like(table, like.smiles)
        names = like.labels.targets
        target = names if labelled and set(names) <= set(table.header) else ()
    smiles_at = table.position(smiles or _smiles_column(table))
    split_at = None if split_column is None else table.position(split_column)
    if target is None:
        target = _only_other_column(table, smiles_at, split_at)
    targets = [target] if isinstance(target, str) else list(target)
    if not targets and like is None:
        raise InputError(f"{path}: no target column was named; {table.columns()}")
    targets_at = [table.position(name) for name in targets]
    if len(set(targets_at)) < len(targets):
        raise InputError(f"{path}: a target column is named twice: {', '.join(targets)}")
    if like is None and split_at is None:
        _tell_parts(table, {smiles_at, *targets_at})

    to_graph = from_smiles if like is None else smiles_reader(like.node, like.edge) or from_smiles
    words = {row: "".join(cells[smiles_at : smiles_at + 1]).strip() for row, cells in table.rows}

    def molecule(row: int, cells: list[str]) -> RawGraph:
        found = next(molecules)
        if len(cells) != len(table.header):
            raise InputError(f"{len(cells)} fields, the header has {len(table.header)}")
        if _present(words[row]) is None:
            raise InputError(f"column {table.header[smiles_at]!r} is empty")
        if isinstance(found, InputError):
            raise InputError(f"column {table.header[smiles_at]!r}: {found}")
        x, edge_index, edge_attr = found
        y = [_present(table.number(cells[at])) for at in targets_at] if targets else None
        split = None if split_at is None else [part_number(cells[split_at])]
        return RawGraph(row, len(x), edge_index, x, edge_attr, y, split)

    with (
        closing(each(to_graph, list(words.values()))) as molecules,
        closing(rows.graphs(table.rows, molecule, "molecules")) as graphs,  # and its bar
    ):
        parts = iter(lambda: list(islice(graphs, size)), [])
        for part in chain([next(parts, [])], parts):
            data = assemble(
                part,
                rows,
                kind="smiles",
                task=task,
                targets=targets,
                vocabularies=(ATOM_VOCABULARY, BOND_VOCABULARY),
                smiles=table.header[smiles_at],
                like=like,
            )
            yield replace(data, smiles=tuple(words[row] for row in data.rows.tolist()))


def _tell_parts(table: Table, used: set[int]) -> None:
    """Warn of a column that holds nothing but the names of parts and is not used."""
    for at, name in enumerate(table.header):
        words = (cells[at] for _, cells in table.rows if len(cells) > at)
        if at not in used and names_parts(words):
            warn(
                f"{table.path}: column {name!r} names the parts of a split and is not used; "
                f"--split-column {name} (split_column={name!r}) takes it"
            )


def _present(cell: str) -> str | None:
    cell = cell.strip()
    return None if cell in MISSING else cell


@dataclass(frozen=True)
class Table:
    """Column names and numbered rows of text, as they stand in the file; between semicolons numbers
    may have a decimal comma. ``stated``: a line above the names tells a spreadsheet the separator;
    ``marked``: a mark before all tells it UTF-8.
    """

    path: Path
    unit: str
    header: list[str]
    rows: list[tuple[int, list[str]]]
    separator: str = ","
    stated: bool = False
    marked: bool = False

    def columns(self) -> str:
        names = [name if name and "," not in name else repr(name) for name in self.header]
        text = f"the columns are: {', '.join(names)}"
        alone = len(names) == 1 and self.unit == "line"
        return text + " (commas, semicolons or tabs separate them)" * alone

    def number(self, cell: str) -> str:
        """A number as Python writes it; any other text as it is."""
        return _decimal_point(cell) if self.separator == ";" else cell

    def has_commas(self) -> bool:
        """Whether it is of a spreadsheet whose decimal mark is a comma: semicolons separate, and no
        number has a point."""
        cells = (cell for _, cells in self.rows for cell in cells)
        return self.separator == ";" and not any(map(_WITH_POINT.fullmatch, cells))

    def position(self, name: str) -> int:
        """Where the column ``name`` stands."""
        if name not in self.header:
            raise InputError(f"{self.path} has no column {name!r}; {self.columns()}")
        if self.header.count(name) > 1:
            raise InputError(f"{self.path} has more than one column {name!r}; rename one")
        return self.header.index(name)


def _column_like(table: Table, name: str) -> str:
    """The column that had this name in the training data; other capitals will do."""
    found = [given for given in table.header if given.lower() == name.lower()]
    if not found:
        raise InputError(
            f"{table.path} has no column {name!r}, as the training data had; say which holds the "
            f"SMILES (--smiles NAME, smiles=...); {table.columns()}"
        )
    return name if name in found else found[0]


def _smiles_column(table: Table) -> str:
    """The column whose name says that it holds SMILES."""
    for fits in (
        lambda name: name.lower() == "smiles",
        lambda name: "smiles" in name.lower(),
        lambda name: name.lower() in ("smi", "smile"),
    ):
        found = [name for name in table.header if fits(name)]
        if len(found) == 1:
            return found[0]
        if found:
            break
    raise InputError(
        f"{table.path}: say which column holds the SMILES (--smiles NAME, smiles=...); "
        f"{table.columns()}"
    )


def _only_other_column(table: Table, smiles_at: int, split_at: int | None) -> str:
    """What is left but for columns without a name, which number the rows or are empty."""
    used = (smiles_at, split_at)
    others = [name for at, name in enumerate(table.header) if name and at not in used]
    if len(others) == 1:
        return others[0]
    raise InputError(
        f"{table.path}: say which column is to be learned (--target NAME, target=...); "
        f"{table.columns()}"
    )


def open_table(path: Path) -> Table:
    """The cells of a table as text, with the number of each row."""
    name = path.name.lower()
    if not name.endswith(TABLE_SUFFIXES):
        raise InputError(f"{path} is not a table: its name must end in {', '.join(TABLE_SUFFIXES)}")
    return _parquet(path) if name.endswith(".parquet") else _separated(path)


def _separated(path: Path) -> Table:
    text = read_text(path)
    stated = re.match(r"sep=([,;\t])\s*\n", text, re.IGNORECASE)  # a line for a spreadsheet
    named = "\t" if ".tsv" in path.suffixes[-2:] else None
    delimiter = stated[1] if stated else named or _delimiter(text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    records = []
    line = 1  # on which a record begins: a quoted cell may go over several
    try:
        for cells in reader:
            if cells and not (len(cells) == 1 and cells[0].isspace()):  # else the line is blank
                records.append((line, cells))
            line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"{path}, line {line}: not a well-formed table: {error}; quotes stand around a whole "
            "cell, and one inside of it is doubled"
        ) from None
    records = records[1:] if stated else records
    if not records:
        raise InputError(f"{path} is empty: its first line must name the columns")
    header = [name.strip() for name in records[0][1]]
    with path.open("rb") as file:
        marked = file.read(3) == codecs.BOM_UTF8
    return Table(path, "line", header, records[1:], delimiter, stated is not None, marked)


def _delimiter(text: str) -> str:
    """What separates the columns, in the header as in the first row; a quoted cell may hold any.

    A spreadsheet writes semicolons where the comma is the decimal mark, tabs into a clipboard. If
    they agree in nothing, the row is wrong.
    """
    bare = _QUOTED.sub("", text[:100_000])
    first = list(islice((line for line in bare.split("\n") if line.strip()), 2)) or [""]
    return max(",;\t", key=lambda mark: (min(line.count(mark) for line in first), mark in first[0]))


def _decimal_point(cell: str) -> str:
    """A number with a decimal comma as Python writes it; any other text as it is.

    >>> _decimal_point("-1,5"), _decimal_point("1,2-dichlorobenzene")
    ('-1.5', '1,2-dichlorobenzene')
    """
    return re.sub(r"^(\s*[+-]?\d+),(\d+([eE][+-]?\d+)?\s*)$", r"\1.\2", cell)


def _parquet(path: Path) -> Table:
    import pandas as pd  # importing it takes long, and other tables need none

    try:
        frame = pd.read_parquet(path)
        was_column = [name for name in frame.index.names if name and name not in frame.columns]
        if was_column:
            frame = frame.reset_index(level=was_column)
    except ImportError:
        raise InputError(
            f"{path}: reading parquet needs pyarrow: pip install 'gradformer[parquet]'"
        ) from None
    except Exception as error:  # pyarrow has many ways to fail on a damaged file
        raise InputError(
            f"{path} cannot be read as parquet ({str(error).rstrip('.')}); write it again, or let "
            "its name end in .csv or .tsv if it is text"
        ) from None
    return frame_table(frame, path, "row", first=1)


def frame_table(frame: DataFrame, path: Path, unit: str, first: int) -> Table:
    """A table of pandas, which is called ``path``; ``first`` is the number of its first row."""
    text = frame.astype(object).map(str).mask(frame.isna(), "")
    records = enumerate(text.itertuples(index=False, name=None), start=first)
    rows = [(row, list(record)) for row, record in records]
    return Table(path, unit, [str(name) for name in frame.columns], rows)
