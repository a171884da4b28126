"""Molecules and their targets from a table (``table_files``) with a column of SMILES."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from gradformer.errors import InputError, counted, warn
from gradformer.graphs.assemble import assemble
from gradformer.graphs.labels import present
from gradformer.graphs.molecules import ATOM_VOCABULARY, BOND_VOCABULARY, from_smiles, smiles_reader
from gradformer.graphs.processes import each
from gradformer.graphs.raw_graphs import RawGraph
from gradformer.graphs.table_files import Table, open_table
from gradformer.graphs.user_data import Inputs, Reading, RowChecks, UserData
from gradformer.graphs.user_splits import names_parts, part_number


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
    if like is not None:
        like.expect("smiles", str(table.path))
        if smiles is None and like.smiles is not None:
            smiles = _column_like(table, like.smiles)
        names = like.labels.targets
        target = names if labelled and set(names) <= set(table.header) else ()
    smiles_at, targets_at, split_at = _positions(table, smiles, target, split_column)
    targets = [table.header[at] for at in targets_at]
    if like is None and not targets:
        raise InputError(f"{table.path}: no target column was named; {table.columns()}")
    if like is None and split_at is None:
        _tell_parts(table, {smiles_at, *targets_at})

    to_graph = from_smiles if like is None else smiles_reader(like.node, like.edge) or from_smiles
    words = {row: "".join(cells[smiles_at : smiles_at + 1]).strip() for row, cells in table.rows}

    def molecule(row: int, cells: list[str]) -> RawGraph:
        found = next(molecules)
        if len(cells) != len(table.header):
            raise InputError(f"{counted(len(cells), 'field')}, the header has {len(table.header)}")
        if present(words[row]) is None:
            raise InputError(f"column {table.header[smiles_at]!r} is empty")
        if isinstance(found, InputError):
            raise InputError(f"column {table.header[smiles_at]!r}: {found}")
        x, edge_index, edge_attr = found
        y = [present(table.number(cells[at])) for at in targets_at] if targets else None
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
                inputs=Inputs(ATOM_VOCABULARY, BOND_VOCABULARY),
                smiles=table.header[smiles_at],
                like=like,
            )
            yield replace(data, smiles=tuple(words[row] for row in data.rows.tolist()))


def _positions(
    table: Table, smiles: str | None, target: str | Sequence[str] | None, split_column: str | None
) -> tuple[int, list[int], int | None]:
    """Where the molecules, the targets and the parts of a split stand, by name or as found."""
    smiles_at = table.position(_smiles_column(table) if smiles is None else str(smiles))
    split_at = None if split_column is None else table.position(str(split_column))
    if target is None:
        target = _only_other_column(table, smiles_at, split_at)
    targets = column_names(target)
    targets_at = [table.position(name) for name in targets]
    if len(set(targets_at)) < len(targets):
        raise InputError(f"{table.path}: a target column is named twice: {', '.join(targets)}")
    return smiles_at, targets_at, split_at


def column_names(given: Any) -> list[str]:
    """One name or several as text; a DataFrame may have numbers for names.

    >>> column_names("y"), column_names(1), column_names(("a", 2))
    (['y'], ['1'], ['a', '2'])
    """
    several = isinstance(given, Iterable) and not isinstance(given, str)
    return [str(name) for name in given] if several else [str(given)]


def _tell_parts(table: Table, used: set[int]) -> None:
    """Warn of a column that holds nothing but the names of parts and is not used."""
    for at, name in enumerate(table.header):
        words = (cells[at] for _, cells in table.rows if len(cells) > at)
        if at not in used and names_parts(words):
            warn(
                f"{table.path}: column {name!r} names the parts of a split and is not used; "
                f"--split-column {name} (split_column={name!r}) takes it"
            )


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
