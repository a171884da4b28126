"""Peptides-func (Long Range Graph Benchmark): a table of SMILES with ten labels, and its split."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import InputError
from gradformer.graphs.arrays import GraphArrays, Schema
from gradformer.graphs.molecules import ATOM_VOCABULARY, BOND_VOCABULARY, from_smiles
from gradformer.graphs.sources import pickles
from gradformer.progress import bar
from gradformer.structure.pointers import pointer

LABELS = 10
TABLE = "raw/peptide_multi_class_dataset.csv.gz"
SPLIT = "splits_random_stratified_peptide.pickle"


def read_peptides(read: Callable[[str], bytes]) -> GraphArrays:
    """All peptides; ``read(TABLE)`` is the unpacked content of that file. Needs RDKit."""
    rows = list(csv.DictReader(io.StringIO(read(TABLE).decode())))
    graphs, labels = [], []
    with bar("peptides", len(rows)) as advance:
        for number, row in enumerate(rows):
            try:
                graphs.append(from_smiles(row["smiles"]))
                labels.append([float(label) for label in row["labels"].strip("[]").split(",")])
            except (InputError, KeyError, ValueError, AttributeError) as error:
                raise InputError(f"{TABLE}, row {number + 1}: {error}") from None
            advance(1)
    y = np.array(labels, np.float32)
    if y.shape != (len(rows), LABELS):
        raise InputError(f"{TABLE}: labels have shape {y.shape}, expected {(len(rows), LABELS)}")
    x, edge_index, edge_attr = zip(*graphs)
    return GraphArrays(
        pointer([len(part) for part in x]),
        pointer([len(part) for part in edge_attr]),
        np.concatenate(edge_index, axis=1),
        Schema(ATOM_VOCABULARY, BOND_VOCABULARY, "graph", "multilabel", LABELS),
        np.concatenate(x),
        np.concatenate(edge_attr),
        y,
        _split(read(SPLIT), len(rows)),
    ).check("peptides-func")


def _split(content: bytes, graphs: int) -> NDArray[np.int8]:
    parts = pickles.load(content, SPLIT)
    split = np.full((graphs, 1), -1, np.int8)
    try:
        for number, name in enumerate(("train", "val", "test")):
            split[parts[name]] = number
    except (KeyError, IndexError, TypeError) as error:
        raise InputError(f"{SPLIT}: not a split of {graphs} peptides ({error!r})") from None
    return split
