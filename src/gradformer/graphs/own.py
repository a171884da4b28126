"""A user's own data from a file of any kind: one function for all readers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gradformer.errors import InputError
from gradformer.graphs.jsonl import JSONL_SUFFIXES, read_jsonl
from gradformer.graphs.table_files import TABLE_SUFFIXES
from gradformer.graphs.tables import read_table
from gradformer.graphs.tu_folder import read_tu_folder
from gradformer.graphs.user_data import Inputs, Kind, Reading, UserData, check_options

_READERS: dict[Kind, Callable[..., UserData]] = {
    "smiles": read_table,
    "graphs": read_jsonl,
    "tu": read_tu_folder,
}
_WANTED = (
    f"give a table with SMILES ({', '.join(TABLE_SUFFIXES)}), graphs as JSON lines "
    f"({', '.join(JSONL_SUFFIXES)}) or a folder in TU format"
)


def read(
    path: str | Path,
    like: Reading | None = None,
    labelled: bool = True,
    inputs: Inputs | None = None,
    **options: Any,
) -> UserData:
    """Read a table of SMILES, a JSON-lines file of graphs, or a folder in TU format.

    ``options`` are those of :func:`read_table`, :func:`read_jsonl` or :func:`read_tu_folder`. Give
    ``like``, the reading of the training data, for new data that a trained model is to predict:
    then columns, features and classes are checked against it and targets may be absent; unless
    ``labelled``, they may be anything. ``inputs`` are what a model was trained on that is to be
    trained further on these data: features are checked against them, targets may be others. For
    molecules they are always the same.
    """
    path = Path(path)
    kind = kind_of(path)
    reader = _READERS[kind]
    check_options(reader, options, str(path))
    options |= {} if kind == "smiles" else {"inputs": inputs}
    return reader(path, like=like, labelled=labelled, **options)


def kind_of(path: Path) -> Kind:
    """What the file or folder holds, by its name."""
    name = path.name.lower()
    if not os.path.exists(path):  # unlike Path, it takes any name
        raise InputError(
            f"{path} does not exist; {_WANTED} (SMILES by themselves: as a list, in Python)"
        )
    if path.is_dir():
        return "tu"
    if name.endswith(TABLE_SUFFIXES):
        return "smiles"
    if name.endswith(JSONL_SUFFIXES):
        return "graphs"
    raise InputError(f"{path} is of an unknown kind; {_WANTED}")
