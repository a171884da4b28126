"""What a run keeps of its data, so that its report needs nothing else.

``trials/<k>/test.safetensors``: the answers that gave the test score. ``examples/``: a store with a
few test graphs, on which a model that can show its attention is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from gradformer.errors import InputError, warn
from gradformer.graphs.atomic import appearing
from gradformer.graphs.store import Store
from gradformer.structure.pointers import pointer
from gradformer.training.data import TrainingData
from gradformer.training.files import RESUMABLE, replace_file, writing

EXAMPLES = 2
LARGEST = 80
"""Most nodes of a graph that can still be drawn."""


@dataclass(frozen=True)
class Answers:
    """Predictions [rows, outputs] (logits, or values in the user's units) and targets of the test
    part, as :mod:`gradformer.training.metrics` takes them."""

    prediction: NDArray[np.float32]
    target: NDArray[Any]


def save_answers(folder: Path, answers: Answers) -> None:
    """Write into the folder of a trial."""
    tensors = {name: np.ascontiguousarray(value) for name, value in vars(answers).items()}
    replace_file(folder / "test.safetensors", save(tensors), RESUMABLE)


def load_answers(folder: Path) -> Answers | None:
    """The answers of a trial; None if it kept none, or if they are damaged, which is warned of."""
    path = folder / "test.safetensors"
    if not path.is_file():
        return None
    try:
        return Answers(**load_file(path))
    except (OSError, SafetensorError, TypeError):
        _tell_damaged(path)
        return None


def save_examples(folder: Path, data: TrainingData, seed: int) -> None:
    """Keep a few test graphs in the folder of a run: a smaller and a larger one of those that can
    be drawn, none if all are too large."""
    graphs = np.unique(data.graphs(data.split(seed).test))
    sizes = data.store.sizes[graphs]
    drawable = graphs[(sizes <= LARGEST) & (sizes > 1)]
    drawable = drawable[np.argsort(data.store.sizes[drawable], kind="stable")]
    if not len(drawable):
        return
    place = (np.arange(1, EXAMPLES + 1) * len(drawable)) // (EXAMPLES + 1)
    with writing(folder), appearing(folder / "examples") as unfinished:
        take(data.store, drawable[np.unique(place)]).save(unfinished)


def load_examples(folder: Path) -> Store | None:
    """The example graphs of a run; ``about["graphs"]`` are their numbers in the data.

    None if it kept none, or if they are damaged or of another version, which is warned of.
    """
    found = folder / "examples"
    if not found.is_dir():
        return None
    try:
        return Store.open(found)
    except InputError:
        _tell_damaged(found)
        return None


def _tell_damaged(path: Path) -> None:
    warn(f"{path}: damaged or of another version, so nothing is drawn of it; restore it")


def take(store: Store, graphs: NDArray[np.int64]) -> Store:
    """A store with some of the graphs, in the order given; ``about["graphs"]`` are their numbers in
    the store that graphs were first taken from."""
    pointers = {"node": "node_ptr", "edge": "edge_ptr", "pair": "pair_ptr"}
    arrays: dict[str, NDArray[Any]] = {}
    for kind, name in pointers.items():
        ptr = store.arrays[name]
        arrays[name] = pointer(np.diff(ptr)[graphs])
        rows = [np.arange(ptr[g], ptr[g + 1]) for g in graphs]
        index = np.concatenate(rows)
        arrays |= {n: store.arrays[n][index] for n, of in store.kinds.items() if of == kind}
    arrays |= {n: store.arrays[n][graphs] for n, of in store.kinds.items() if of == "graph"}
    numbers = store.about.get("graphs", range(store.num_graphs))
    return replace(
        store,
        arrays=arrays,
        kinds={name: store.kinds[name] for name in arrays},
        about={**store.about, "graphs": [numbers[int(g)] for g in graphs]},
        folder=None,
    )
