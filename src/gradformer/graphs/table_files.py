"""Files of tables: CSV, TSV or parquet as names of columns and numbered rows of text."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from gradformer.errors import InputError
from gradformer.graphs.user_data import MARK, read_text

if TYPE_CHECKING:
    from pandas import DataFrame

TABLE_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet")
_QUOTED = re.compile(r'(?<![^,;\t\n])"[^"]*(?:""[^"]*)*"')  # a cell, from its beginning
_WITH_POINT = re.compile(r"\s*[+-]?\d+\.\d+([eE][+-]?\d+)?\s*")


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


def open_table(path: Path) -> Table:
    """The cells of a table as text, with the number of each row."""
    name = path.name.lower()
    if not name.endswith(TABLE_SUFFIXES):
        raise InputError(f"{path} is not a table: its name must end in {', '.join(TABLE_SUFFIXES)}")
    return _parquet(path) if name.endswith(".parquet") else _separated(path)


def _separated(path: Path) -> Table:
    text = read_text(path)
    marked, text = text.startswith(MARK), text.removeprefix(MARK)
    stated = re.match(r"sep=([,;\t])\s*\n", text, re.IGNORECASE)  # a line for spreadsheets
    named = "\t" if path.name.lower().endswith((".tsv", ".tsv.gz")) else None
    delimiter = stated[1] if stated else named or _delimiter(text)
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))  # a cell may be as long as that
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
        # Numbers of NumPy would round 2⁵³ + 1 where another row of the column is empty.
        frame = pd.read_parquet(path, dtype_backend="numpy_nullable")
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
