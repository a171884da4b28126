"""Actor (the film co-occurrence network of Geom-GCN): tab-separated tables and ten splits."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import InputError
from gradformer.graphs.arrays import GraphArrays, Schema
from gradformer.graphs.sources.text import integers

WAYS = 10
_PARTS = ("train_mask", "val_mask", "test_mask")


def read_actor(read: Callable[[str], bytes]) -> GraphArrays:
    """The directed graph; ``read("out1_graph_edges.txt")`` is the content of that file.

    A node's features are the words on its page as zeros and ones; edges keep their direction,
    repeated ones are dropped.
    """
    table = "out1_node_feature_label.txt"
    rows = [line.split("\t") for line in read(table).decode().splitlines()[1:] if line.strip()]
    try:
        numbers = np.array([int(row[0]) for row in rows])
        y = np.empty(len(rows), np.int64)
        y[numbers] = [int(row[2]) for row in rows]
        words = [np.array(row[1].split(","), np.int64) for row in rows]
    except (IndexError, ValueError) as error:
        raise InputError(f"{table}: a line is not 'node, words, label' ({error})") from None
    x = np.zeros((len(rows), max(int(listed.max()) for listed in words) + 1), np.float32)
    for node, listed in zip(numbers, words):
        x[node, listed] = 1
    edges = read("out1_graph_edges.txt").partition(b"\n")[2]
    pairs = integers(edges, 2, "out1_graph_edges.txt (after its header)")
    pairs = np.unique(pairs, axis=0)
    return GraphArrays(
        np.array([0, len(rows)]),
        np.array([0, len(pairs)]),
        np.ascontiguousarray(pairs.T.astype(np.int32)),
        Schema(x.shape[1], (), "node", "multiclass", int(y.max()) + 1),
        x,
        y=y,
        split=np.stack([_split(read, way, len(rows)) for way in range(WAYS)], axis=1),
    ).check("Actor")


def _split(read: Callable[[str], bytes], way: int, nodes: int) -> NDArray[np.int8]:
    name = f"film_split_0.6_0.2_{way}.npz"
    try:
        masks = np.load(io.BytesIO(read(name)), allow_pickle=False)
        split = np.full(nodes, -1, np.int8)
        for number, part in enumerate(_PARTS):
            split[masks[part].astype(bool)] = number
    except (KeyError, ValueError, IndexError, OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{name} does not hold the masks of {nodes} nodes ({error})") from None
    return split
