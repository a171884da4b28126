"""Cora and CiteSeer from the pickled ``ind.NAME.*`` files of Planetoid, one graph each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import InputError
from gradformer.graphs.arrays import GraphArrays, Schema
from gradformer.graphs.sources import pickles
from gradformer.graphs.sources.text import integers

VALIDATION = 500


def read_planetoid(name: str, read: Callable[[str], bytes]) -> GraphArrays:
    """The citation graph with its public split; ``read("allx")`` is the content of ind.NAME.allx.

    ``allx``/``ally`` hold the nodes known in training (the labelled ``y`` first), ``tx``/``ty`` the
    test nodes in the order of ``test.index``. Test numbers without a row (CiteSeer has 15) are
    isolated nodes without words, of class 0.
    """

    def part(kind: str) -> Any:
        return pickles.load(read(kind), f"ind.{name}.{kind}")

    try:
        allx, ally, tx, ty = (part(kind) for kind in ("allx", "ally", "tx", "ty"))
        labelled, neighbours = len(part("y")), part("graph")
        test = integers(read("test.index"), 1, f"ind.{name}.test.index")[:, 0]
        nodes = max(int(test.max()) + 1, allx.shape[0])
        words = np.zeros((nodes, allx.shape[1]), np.float32)
        words[: allx.shape[0]], words[test] = allx.toarray(), tx.toarray()
        classes = np.zeros((nodes, ally.shape[1]), np.int64)
        classes[: len(ally)], classes[test] = ally, ty
        edge_index = _undirected(neighbours)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"ind.{name}.*: not as expected ({error!r})") from None
    split = np.full((nodes, 1), -1, np.int8)
    split[:labelled] = 0
    split[labelled : labelled + VALIDATION] = 1
    split[test] = 2
    return GraphArrays(
        np.array([0, nodes]),
        np.array([0, edge_index.shape[1]]),
        edge_index,
        Schema(words.shape[1], (), "node", "multiclass", classes.shape[1]),
        words,
        y=classes.argmax(axis=1),
        split=split,
    ).check(f"ind.{name}")


def _undirected(neighbours: dict[int, list[int]]) -> NDArray[np.int32]:
    """Both directions of every edge once, without self-loops, sorted by target, [2, edges]."""
    source = np.repeat(list(neighbours), [len(listed) for listed in neighbours.values()])
    target = np.concatenate([np.asarray(listed, np.int64) for listed in neighbours.values()])
    pairs = np.concatenate([np.stack([source, target], 1), np.stack([target, source], 1)])
    pairs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    return np.ascontiguousarray(pairs[:, ::-1].T.astype(np.int32))
