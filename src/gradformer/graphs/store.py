"""A dataset ready for training: contiguous arrays in one folder, memory-mapped, free of pickle.

``<folder>/<name>.npy`` for each array and ``meta.json``. N nodes, E edges, P = Σn² pairs:

=============  ===============  ================================================================
array          shape, type      meaning
=============  ===============  ================================================================
node_ptr       [graphs+1] int64 graph g owns nodes node_ptr[g]:node_ptr[g+1]
edge_ptr       [graphs+1] int64 ... and edges
pair_ptr       [graphs+1] int64 ... and pairs; pair (i, j) is at pair_ptr[g] + i·n + j
source         [E] int32        first end of an edge, numbered inside its graph
target         [E] int32        second end; edges are sorted by it inside each graph
by_source      [E] int32        order, inside each graph's edges, that sorts them by source (stable)
distance       [P] uint8        the pair index ψ as a byte of ``codebook``, unless index is None
x, edge_attr   [N|E, ·]         int64 categories or float32, where the dataset has them
y              [graphs|N(, ·)]  int64 classes or float32 targets, where the dataset has them
split          [graphs|N, ways] int8 published splits: 0 training, 1 validation, 2 test, -1 none
rwse, lap, …   [N, k] float32   encodings and registered structures that were asked for
=============  ===============  ================================================================
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import ConfigError, GradformerError, InputError, counted
from gradformer.graphs.arrays import GraphArrays, Schema, split_over
from gradformer.graphs.atomic import appearing, locked
from gradformer.graphs.ordering import local_order, sort_by_target
from gradformer.graphs.structures import Array, Kind, Structure, compute
from gradformer.structure.codebook import Codebook
from gradformer.structure.pointers import pair_pointer

FORMAT = 1
PAIR_LIMIT = 2**30
"""Most bytes that the pair index of one graph may take, unless the caller raises it."""


@dataclass(frozen=True, repr=False)
class Store:
    """Packed graphs; ``arrays`` and ``kinds`` (what the rows of each array belong to) by name."""

    arrays: dict[str, Array]
    kinds: dict[str, Kind | str]
    schema: Schema
    structure: Structure
    codebook: Codebook
    content: str
    about: dict[str, Any]
    folder: Path | None = None

    def __repr__(self) -> str:
        where = "memory" if self.folder is None else self.folder
        size = f"{counted(self.num_graphs, 'graph')}, {counted(self.sizes.sum(), 'node')}"
        return f"<Store of {size} in {where}: {', '.join(self.arrays)}>"

    @classmethod
    def open(cls, folder: Path) -> Store:
        """Map the store in ``folder``; nothing but pointers is read until it is used."""
        try:
            meta = json.loads((folder / "meta.json").read_text())
            if meta["format"] != FORMAT:
                raise InputError(
                    f"{folder} has store format {meta['format']}, this version reads {FORMAT}; "
                    "delete the folder and it is built again"
                )
            arrays = {
                name: _map(folder / f"{name}.npy", spec) for name, spec in meta["arrays"].items()
            }
            return cls(
                arrays,
                {name: spec["kind"] for name, spec in meta["arrays"].items()},
                Schema.from_dict(meta["schema"]),
                Structure.from_dict(meta["structure"]),
                Codebook.from_dict(meta["codebook"]),
                meta["content"],
                meta["about"],
                folder,
            )
        except GradformerError:
            raise
        except (OSError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise InputError(
                f"{folder} is not a store or is damaged ({error}); delete it and it is built again"
            ) from error

    def save(self, folder: Path) -> None:
        """Write into the existing, empty ``folder``."""
        for name, value in self.arrays.items():
            np.save(folder / f"{name}.npy", value, allow_pickle=False)
        specs = {
            name: {"kind": self.kinds[name], "dtype": value.dtype.str, "shape": list(value.shape)}
            for name, value in self.arrays.items()
        }
        meta = {
            "format": FORMAT,
            "content": self.content,
            "schema": asdict(self.schema),
            "structure": self.structure.to_dict(),
            "codebook": self.codebook.to_dict(),
            "about": self.about,
            "arrays": specs,
        }
        (folder / "meta.json").write_text(json.dumps(meta, indent=1))

    @property
    def num_graphs(self) -> int:
        return len(self.arrays["node_ptr"]) - 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Nodes of each graph, [graphs]."""
        return np.diff(self.arrays["node_ptr"])

    @property
    def num_pairs(self) -> int:
        return int(self.arrays["pair_ptr"][-1])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays: what the store takes on disk, and on a device if put there whole."""
        return sum(value.nbytes for value in self.arrays.values())


def pack(
    arrays: GraphArrays,
    structure: Structure | None = None,
    *,
    codebook: Codebook | None = None,
    content: str | None = None,
    about: dict[str, Any] | None = None,
    limit: int = PAIR_LIMIT,
    called: Callable[[int], str] = "graph {}".format,
) -> Store:
    """A store in memory.

    Args:
        arrays: the graphs.
        structure: what to compute from them.
        codebook: that of the store a model was trained on, where new graphs are packed for it.
        content: names the content, where a hash of the arrays need not be taken.
        about: plain values kept beside the arrays (card, checksums of the sources).
        limit: most bytes of the pair index of one graph.
        called: what the user calls a graph, by its number.
    """
    structure = structure or Structure()
    if not arrays.num_graphs:
        raise InputError("there is no graph to pack")
    if structure.index is not None:
        _refuse_large(arrays, limit, called)
    content = content or content_hash(arrays)
    arrays = sort_by_target(arrays)
    source, target = arrays.edge_index
    pointers: dict[str, tuple[Kind | str, Array]] = {
        "node_ptr": ("pointer", arrays.node_ptr),
        "edge_ptr": ("pointer", arrays.edge_ptr),
        "pair_ptr": ("pointer", pair_pointer(arrays.node_ptr)),
        "source": ("edge", source),
        "target": ("edge", target),
        "by_source": ("edge", local_order(source, arrays.node_ptr, arrays.edge_ptr)),
    }
    over = split_over(arrays.schema.level, arrays.num_graphs)
    given = {
        "x": ("node", arrays.x),
        "edge_attr": ("edge", arrays.edge_attr),
        "y": (arrays.schema.level, arrays.y),
        "split": ("node" if over == "nodes" else "graph", arrays.split),
    }
    present = {name: (kind, value) for name, (kind, value) in given.items() if value is not None}
    computed, codebook = compute(arrays, structure, codebook)
    for name in computed.keys() & {*pointers, *given}:
        raise ConfigError(f"structure array {name!r}: the name is taken by the store")
    everything = {**pointers, **present, **computed}
    return Store(
        {name: np.ascontiguousarray(value) for name, (_, value) in everything.items()},
        {name: kind for name, (kind, _) in everything.items()},
        arrays.schema,
        structure,
        codebook,
        content,
        about or {},
    )


def build_store(
    read: Callable[[], GraphArrays],
    structure: Structure,
    folder: Path,
    *,
    content: str | None = None,
    about: dict[str, Any] | None = None,
) -> Store:
    """Open the store in ``folder``, or build it there from what ``read`` gives.

    Processes that want the same folder wait for each other. The folder appears once it is whole: a
    builder that is killed leaves a hidden folder behind, which the next one clears.
    """
    if folder.exists():
        return Store.open(folder)
    try:
        with locked(folder):
            if not folder.exists():
                store = pack(read(), structure, content=content, about=about)
                _save_new(store, folder)
    except OSError as error:
        raise InputError(
            f"{folder} cannot be written ({error.strerror or error}); "
            "make room or name another folder with GRADFORMER_CACHE"
        ) from None
    return Store.open(folder)


def _save_new(store: Store, folder: Path) -> None:
    free = shutil.disk_usage(folder.parent).free
    if store.nbytes > free:
        raise InputError(
            f"{folder}: the store takes {_size(store.nbytes)} but only {_size(free)} are free; "
            "make room or name another folder with GRADFORMER_CACHE"
        )
    with appearing(folder) as unfinished:
        store.save(unfinished)


def store_key(content: str, structure: Structure) -> str:
    """What tells two stores apart: content, structure options and format, as 64 hex digits."""
    parts = json.dumps([FORMAT, content, structure.to_dict()], sort_keys=True)
    return hashlib.sha256(parts.encode()).hexdigest()


def content_hash(arrays: GraphArrays) -> str:
    """A hash of everything in ``arrays``, as 64 hex digits."""
    digest = hashlib.sha256(json.dumps(asdict(arrays.schema)).encode())
    for name in ("node_ptr", "edge_ptr", "edge_index", "x", "edge_attr", "y", "split"):
        value = getattr(arrays, name)
        if value is not None:
            digest.update(f"{name} {value.dtype.str} {value.shape}".encode())
            digest.update(np.ascontiguousarray(value).data.cast("B") if value.size else b"")
    return digest.hexdigest()


def _refuse_large(arrays: GraphArrays, limit: int, called: Callable[[int], str]) -> None:
    largest = int(arrays.sizes.argmax())
    nodes = int(arrays.sizes[largest])
    if nodes**2 > limit:
        raise InputError(
            f"{called(largest)} has {nodes:,} nodes, so its pairs take {_size(nodes**2)} "
            f"(limit {_size(limit)}); cut it into neighbourhoods, leave it out, or use a model "
            "that needs no pairs, as --model gatedgcn"
        )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if arrays.num_pairs > memory:
        raise InputError(
            f"the pairs of all {arrays.num_graphs:,} graphs take {_size(arrays.num_pairs)}, this "
            f"machine has {_size(memory)} of memory; take fewer or smaller graphs, or use a model "
            "that needs no pairs"
        )


def _map(path: Path, spec: dict[str, Any]) -> Array:
    try:
        value = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, TypeError, SyntaxError, TokenError) as error:  # a bad header
        raise OSError(f"{path.name}: {error}") from error
    if value.dtype.str != spec["dtype"] or list(value.shape) != spec["shape"]:
        raise OSError(f"{path.name} has {value.dtype} {value.shape}, expected {spec}")
    return np.asarray(value)


def _size(count: int) -> str:
    """
    >>> _size(15), _size(40_000**2), _size(10**13)
    ('15 bytes', '1.6 GB', '10,000 GB')
    """
    size, unit = float(count), "bytes"
    for larger in ("KB", "MB", "GB"):
        if size >= 1000:
            size, unit = size / 1000, larger
    return f"{size:,.{1 if size < 10 and unit != 'bytes' else 0}f} {unit}"
