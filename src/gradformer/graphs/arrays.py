"""Many graphs laid end to end, in numpy: what every reader makes and every store is built from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import InputError, at_least, choice, counted

Level = Literal["graph", "node"]
Task = Literal["regression", "binary", "multiclass", "multilabel"]
Over = Literal["graphs", "nodes"]
Vocabulary = tuple[int, ...] | int
"""What features may hold, see :class:`Schema`."""


@dataclass(frozen=True)
class Schema:
    """What the inputs and targets of a dataset look like: all that a model must know to be built.

    ``node`` and ``edge`` are either a tuple of vocabulary sizes, one for each categorical column
    (integers), or a number of float channels; an empty tuple means that there are no features.
    """

    node: Vocabulary
    edge: Vocabulary
    level: Level
    task: Task
    outputs: int

    def __post_init__(self) -> None:
        choice("schema.level", self.level, get_args(Level))
        choice("schema.task", self.task, get_args(Task))
        at_least("schema.outputs", self.outputs, 1)

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Schema:
        """The inverse of ``asdict``, also after a passage through JSON."""
        return cls(**tupled(saved))


def tupled(saved: Any) -> Any:
    """``saved`` with tuples for its lists: JSON and YAML know no other sequence.

    >>> tupled({"node": [28], "classes": [["no", "yes"]]})
    {'node': (28,), 'classes': (('no', 'yes'),)}
    """
    if isinstance(saved, Mapping):
        return {name: tupled(value) for name, value in saved.items()}
    return tuple(map(tupled, saved)) if isinstance(saved, list) else saved


def width_of(vocabulary: Vocabulary) -> int:
    """How many columns the features have."""
    return vocabulary if isinstance(vocabulary, int) else len(vocabulary)


def split_over(level: Level, graphs: int) -> Over:
    """What a split numbers: the graphs, or, of a single graph with labelled nodes, its nodes."""
    return "nodes" if level == "node" and graphs == 1 else "graphs"


@dataclass(frozen=True)
class GraphArrays:
    """``graphs`` graphs end to end; graph g owns nodes ``node_ptr[g]:node_ptr[g+1]``.

    Shapes: node_ptr, edge_ptr [graphs+1]; edge_index [2, edges] with row 0 = source, row 1 =
    destination, numbered from 0 **inside each graph**, both directions listed for undirected
    graphs; x [nodes, columns] int64 (categorical) or float32; edge_attr [edges, columns] likewise;
    y [graphs or nodes] int64 (classes) or [graphs or nodes, targets] float32 (NaN = missing).
    Published splits, one in each column: split [graphs (nodes if there is one graph), ways] int8,
    0 = training, 1 = validation, 2 = test, -1 = in none of them.
    """

    node_ptr: NDArray[np.int64]
    edge_ptr: NDArray[np.int64]
    edge_index: NDArray[np.int32]
    schema: Schema
    x: NDArray[np.int64] | NDArray[np.float32] | None = None
    edge_attr: NDArray[np.int64] | NDArray[np.float32] | None = None
    y: NDArray[np.int64] | NDArray[np.float32] | None = None
    split: NDArray[np.int8] | None = None

    @property
    def num_graphs(self) -> int:
        return len(self.node_ptr) - 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Nodes of each graph, [graphs]."""
        return np.diff(self.node_ptr)

    @property
    def num_pairs(self) -> int:
        """Pairs of nodes, Σ n²; a distance takes a byte of each."""
        return int((self.sizes**2).sum())

    def check(self, where: str) -> GraphArrays:
        """Return self if all indices are in range and floats finite; ``where`` names the source."""
        from gradformer.structure.adjacency import check_ends  # loads numba

        nodes, edges = int(self.node_ptr[-1]), int(self.edge_ptr[-1])
        if self.edge_index.shape != (2, edges):
            raise InputError(
                f"{where}: edge_index has shape {self.edge_index.shape}, expected (2, {edges})"
            )
        check_ends(self.node_ptr, self.edge_ptr, self.edge_index, where)
        for name, value, rows in (("x", self.x, nodes), ("edge_attr", self.edge_attr, edges)):
            if value is None:
                continue
            if len(value) != rows:
                raise InputError(
                    f"{where}: {name} has {counted(len(value), 'row')}, expected {rows}"
                )
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                row = int((~np.isfinite(value)).reshape(rows, -1).any(axis=1).argmax())
                raise InputError(f"{where}: {name} is not a finite number in row {row}")
            self._check_vocabulary(where, name, value)
        return self

    def _check_vocabulary(self, where: str, name: str, value: np.ndarray) -> None:
        vocabulary = self.schema.node if name == "x" else self.schema.edge
        width = width_of(vocabulary)
        if value.ndim != 2 or value.shape[1] != width:
            columns = counted(width, "column")
            raise InputError(f"{where}: {name} has shape {value.shape}, expected {columns}")
        if isinstance(vocabulary, int):
            return
        bad = (value < 0) | (value >= np.asarray(vocabulary))
        if bad.any():
            row, column = (int(i) for i in np.argwhere(bad)[0])
            raise InputError(
                f"{where}: {name}[{row}, {column}] = {value[row, column]} is outside its "
                f"vocabulary 0..{vocabulary[column] - 1}"
            )
