"""ZINC as published by Benchmarking GNNs: a pickle for each split, a dict for each molecule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import InputError
from gradformer.graphs.arrays import GraphArrays, Schema
from gradformer.graphs.molecules import ZINC_VOCABULARY
from gradformer.graphs.sources import pickles
from gradformer.graphs.sources.text import integers
from gradformer.structure.pointers import pointer

SPLITS = ("train", "val", "test")


def read_zinc(read: Callable[[str], bytes | None]) -> GraphArrays:
    """The molecules of all splits; ``read("train.pickle")`` is the content of that file.

    A molecule has ``atom_type`` [n], ``bond_type`` [n, n] (0 = no bond) and the penalised logP.
    ``train.index`` lists the molecules of the 12k subset by their position in the pickle.
    """
    molecules: list[dict[str, Any]] = []
    split = []
    for number, name in enumerate(SPLITS):
        content = read(f"{name}.pickle")
        if content is None:
            raise InputError(f"ZINC: {name}.pickle is missing from the archive")
        found = pickles.load(content, f"{name}.pickle")
        index = read(f"{name}.index")
        if index is not None:
            chosen = integers(index, None, f"{name}.index")
            outside = (chosen < 0) | (chosen >= len(found))
            if outside.any():
                raise InputError(
                    f"ZINC: {name}.index names molecule {chosen[outside][0]}, but {name}.pickle "
                    f"has {len(found)}; the two are not of one set"
                )
            found = [found[i] for i in chosen.ravel().tolist()]
        molecules += found
        split += [number] * len(found)
    try:
        return _arrays(molecules, np.array(split, np.int8)[:, None]).check("ZINC")
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"ZINC: a molecule is not as expected ({error!r})") from None


def _arrays(molecules: list[dict[str, Any]], split: NDArray[np.int8]) -> GraphArrays:
    sizes = np.array([len(molecule["atom_type"]) for molecule in molecules])
    # All bond matrices as one long line; a place in it tells graph, row and column. They are
    # symmetric, and with rows as destinations the edges come out sorted as a store wants them.
    bonds = np.concatenate([molecule["bond_type"].ravel() for molecule in molecules])
    pair_ptr = pointer(sizes**2)
    if len(bonds) != pair_ptr[-1]:
        raise InputError("ZINC: a bond matrix does not have as many rows and columns as atoms")
    place = np.flatnonzero(bonds)
    edge_ptr = np.searchsorted(place, pair_ptr)
    counts = np.diff(edge_ptr)
    row, column = np.divmod(place - np.repeat(pair_ptr[:-1], counts), np.repeat(sizes, counts))
    atoms = np.concatenate([molecule["atom_type"] for molecule in molecules])
    target = np.concatenate([m["logP_SA_cycle_normalized"].reshape(1, 1) for m in molecules])
    return GraphArrays(
        pointer(sizes),
        edge_ptr.astype(np.int64),
        np.stack([column, row]).astype(np.int32),
        Schema(*ZINC_VOCABULARY, "graph", "regression", 1),
        atoms.astype(np.int64)[:, None],
        bonds[place].astype(np.int64)[:, None],
        target.astype(np.float32),
        split,
    )
