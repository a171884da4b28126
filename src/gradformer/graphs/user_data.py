"""What every reader of a user's own data gives back, and how bad rows are dealt with."""

from __future__ import annotations

import gzip
import inspect
import zlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import ConfigError, InputError, OptionError, counted, warn
from gradformer.graphs.arrays import GraphArrays, Level, Schema, Vocabulary, tupled
from gradformer.graphs.labels import Labels
from gradformer.graphs.raw_graphs import RawGraph
from gradformer.progress import bar
from gradformer.structure.codebook import Codebook

Kind = Literal["smiles", "graphs", "tu"]
Item = TypeVar("Item")
Seen = tuple[tuple[int, ...], ...]
"""The categories that occur in each column."""
MARK = "\ufeff"
"""What some write before a text, to tell that it is UTF-8."""

_NO_TEXT = {
    b"\xff\xfe": "UTF-16 text; save it as UTF-8",
    b"\xfe\xff": "UTF-16 text; save it as UTF-8",
    b"PK\x03\x04": "a spreadsheet (.xlsx) or another zip file; save the sheet as CSV in UTF-8",
    b"\xd0\xcf\x11\xe0": "a spreadsheet (.xls); save the sheet as CSV in UTF-8",
    b"PAR1": "a parquet file; let its name end in .parquet",
    b"\x1f\x8b": "packed by gzip; let its name end in .gz",
}
"""How files begin that are sometimes given for text: what they are, and the remedy."""


@dataclass(frozen=True)
class Inputs:
    """What features may hold: ``node`` and ``edge`` as in :class:`Schema`.

    ``seen`` are the categories of each column, of nodes and of edges, that a model has learned;
    none are listed where it knows all. ``run`` names that model, where data are read to train it
    further; ``codebook`` says what bytes of pairs mean to it.
    """

    node: Vocabulary
    edge: Vocabulary
    seen: tuple[Seen, Seen] = ((), ())
    run: str | None = None
    codebook: Codebook | None = None


class Skipped(NamedTuple):
    """A row that was left out."""

    row: int
    reason: str


@dataclass(frozen=True)
class Reading:
    """How data were understood. A run keeps it as a plain dict, to read new data the same way.

    ``node`` and ``edge`` are as in :class:`Schema`; ``smiles`` is the column with the molecules.
    ``seen`` are the categories that occur in each column, of nodes and of edges, where only the
    data tell which there are.
    """

    kind: Kind
    node: Vocabulary
    edge: Vocabulary
    level: Level
    labels: Labels
    smiles: str | None = None
    seen: tuple[Seen, Seen] = ((), ())

    @property
    def schema(self) -> Schema:
        return Schema(self.node, self.edge, self.level, self.labels.task, self.labels.outputs)

    @property
    def inputs(self) -> Inputs:
        return Inputs(self.node, self.edge, self.seen)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Reading:
        """The inverse of :meth:`to_dict`, also after a passage through JSON or YAML."""
        try:
            values = tupled(saved)
            return cls(**{**values, "labels": Labels(**values["labels"])})
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"the saved description of the training data is damaged: {error!r}"
            ) from None

    def expect(self, kind: Kind, where: str) -> None:
        """Raise unless ``where`` holds the kind of data that this reading came from."""
        names = dict(zip(get_args(Kind), ("molecules as SMILES", "graphs", "a TU folder")))
        if kind != self.kind:
            raise InputError(
                f"{where} holds {names[kind]}, but the model was trained on {names[self.kind]}; "
                "give data of the same kind"
            )


@dataclass(frozen=True)
class UserData:
    """Graphs of a user, in file order, and all that leads back to the file.

    ``where`` is the file. ``rows[g]`` is the row of graph g as the reader counts them, which calls
    it a ``unit`` (line, position); ``skipped`` lists the others. ``arrays.y`` is None where the
    file has no targets, which only prediction allows; ``arrays.split`` holds the user's own split,
    if there is one. ``smiles`` is None for other graphs than molecules; ``unused`` names attributes
    of Python objects that no model sees.
    """

    arrays: GraphArrays
    rows: NDArray[np.int64]
    reading: Reading
    where: str
    skipped: tuple[Skipped, ...] = ()
    smiles: tuple[str, ...] | None = None
    unit: str = "row"
    unused: tuple[str, ...] = ()

    def name(self, graph: int) -> str:
        """What a graph is called in its file: ``line 17``."""
        return f"{self.unit} {self.rows[graph]}"

    def place(self, graph: int) -> str:
        """Where a graph came from: ``molecules.csv, line 17``."""
        return f"{self.where}, {self.name(graph)}"

    def tell_unused(self) -> None:
        """Warn of attributes that are not read, and so are not learned from."""
        if self.unused:
            warn(
                f"not used: {', '.join(self.unused)}; a model sees x of nodes and edge_attr of "
                "edges, so put there what it shall learn from"
            )

    def tell_skipped(self) -> None:
        """Warn of the rows that were left out, each with its reason."""
        if not self.skipped:
            return
        total = len(self.rows) + len(self.skipped)
        reasons = "; ".join(f"{self.unit} {row}: {reason}" for row, reason in self.skipped)
        count = f"{len(self.skipped)} of {total} {self.unit}s are left out"
        warn(f"{self.where}: {count}: {reasons}")


@dataclass
class RowChecks:
    """The one place where a bad row either stops the reading or is put on the list.

    ``where`` is the file, ``unit`` what a row is called there.
    """

    where: str
    unit: str
    skip_invalid: bool
    skipped: list[Skipped] = field(default_factory=list)

    def graphs(
        self,
        items: Sequence[tuple[int, Item]],
        convert: Callable[[int, Item], RawGraph],
        label: str = "graphs",
    ) -> Generator[RawGraph, None, None]:
        """The graph that ``convert`` makes of each (row, item); an :class:`InputError` rejects."""
        with bar(label, len(items)) as advance:
            for row, item in items:
                advance(1)
                try:
                    graph = convert(row, item)
                except InputError as error:
                    self.reject(row, str(error))
                else:
                    yield graph

    def fitting(
        self, graphs: Iterable[RawGraph], misfit: Callable[[RawGraph], str | None]
    ) -> list[RawGraph]:
        """The graphs but for those that are a ``misfit``, whose reason it gives."""
        kept = []
        for graph in graphs:
            reason = misfit(graph)
            if reason is None:
                kept.append(graph)
            else:
                self.reject(graph.row, reason)
        return kept

    def reject(self, row: int, reason: str) -> None:
        if not self.skip_invalid:
            raise InputError(
                f"{self.where}, {self.unit} {row}: {reason} "
                "(mend it, or leave such rows out with --skip-invalid, skip_invalid=True)"
            )
        self.skipped.append(Skipped(row, reason))

    def require_some(self, kept: int) -> None:
        """Raise if nothing is left."""
        if kept:
            return
        if not self.skipped:
            raise InputError(f"{self.where} holds no data: at least one {self.unit} is needed")
        row, reason = min(self.skipped)
        raise InputError(
            f"{self.where}: of {counted(len(self.skipped), self.unit)} none is valid; "
            f"the first, {self.unit} {row}: {reason}"
        )


def check_options(reader: Callable[..., UserData], options: Iterable[str], where: str) -> None:
    """Raise unless ``reader`` knows all of ``options``; what it reads, and for whom, are none."""
    known = set([*inspect.signature(reader).parameters][1:]) - {"like", "labelled", "inputs"}
    for name in options:
        if name not in known:
            raise OptionError(name, where, known)


def refuse_options(options: Iterable[str], where: str) -> None:
    """Raise if there is an option of reading, where nothing is read."""
    for name in options:
        raise ConfigError(f"{name}: not an option of {where}; it says how new data are read")


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, unpacked if its name ends in .gz; a :data:`MARK` is left there."""
    try:
        data = path.read_bytes()
        if path.suffix.lower() == ".gz":
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path} cannot be read: {reason}") from None
    wrong = data.find(0)  # a zero byte is UTF-8, but no text has it
    try:
        if wrong < 0:
            return data.decode()
    except UnicodeDecodeError as error:
        wrong = error.start
    for start, what in _NO_TEXT.items():
        if data.startswith(start):
            raise InputError(f"{path} seems to be {what}")
    line = data.count(b"\n", 0, wrong) + 1
    found = f"not UTF-8 text (byte {data[wrong]:#04x})" if data[wrong] else "a zero byte, not text"
    raise InputError(f"{path}, line {line}: {found}; save it as UTF-8 text")
