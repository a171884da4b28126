"""ogbg-molhiv from the raw tables of the Open Graph Benchmark (csv.gz, without a header)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import InputError
from gradformer.graphs.arrays import GraphArrays, Schema
from gradformer.graphs.molecules import ATOM_VOCABULARY, BOND_VOCABULARY
from gradformer.graphs.sources.text import integers
from gradformer.structure.pointers import pointer

SPLITS = ("train", "valid", "test")


def read_molhiv(read: Callable[[str], bytes]) -> GraphArrays:
    """All molecules; ``read("raw/edge.csv.gz")`` is the unpacked content of that file.

    Each bond stands once in edge.csv; here it is two edges, one after the other.
    """

    def table(path: str, columns: int) -> NDArray[np.int64]:
        return integers(read(path), columns, path)

    nodes, bonds = (table(f"raw/num-{kind}-list.csv.gz", 1)[:, 0] for kind in ("node", "edge"))
    pairs = table("raw/edge.csv.gz", 2)
    x = table("raw/node-feat.csv.gz", len(ATOM_VOCABULARY))
    bond_attr = table("raw/edge-feat.csv.gz", len(BOND_VOCABULARY))
    y = table("raw/graph-label.csv.gz", 1)
    if not len(nodes) == len(bonds) == len(y):
        raise InputError(
            f"molhiv: {len(nodes)} node counts, {len(bonds)} edge counts, {len(y)} labels"
        )
    both = np.stack([pairs, pairs[:, ::-1]], axis=1).reshape(-1, 2)
    split = np.full((len(y), 1), -1, np.int8)
    for number, name in enumerate(SPLITS):
        path = f"split/scaffold/{name}.csv.gz"
        rows = table(path, 1)[:, 0]
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(y):
            raise InputError(f"{path} names a molecule beyond the {len(y)} there are")
        split[rows] = number
    return GraphArrays(
        pointer(nodes),
        pointer(2 * bonds),
        np.ascontiguousarray(both.T.astype(np.int32)),
        Schema(ATOM_VOCABULARY, BOND_VOCABULARY, "graph", "binary", 1),
        x,
        np.repeat(bond_attr, 2, axis=0),
        y.astype(np.float32),
        split,
    ).check("ogbg-molhiv")
