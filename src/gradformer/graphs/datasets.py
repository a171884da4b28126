"""A benchmark by name: found, checked, packed once, and split."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from gradformer.errors import ConfigError, InputError, choice
from gradformer.graphs.arrays import GraphArrays, Over, split_over
from gradformer.graphs.cards import Card, SplitKind, find_card
from gradformer.graphs.mirror import RawFiles, cache_folder, raw_files
from gradformer.graphs.sources.readers import READERS_VERSION, read_card
from gradformer.graphs.splits import (
    Split,
    fixed_split,
    kfold_split,
    low_resource,
    per_class_split,
    random_split,
    stratified_split,
)
from gradformer.graphs.store import Store, build_store, store_key
from gradformer.graphs.structures import Structure


@dataclass(frozen=True, repr=False)
class Dataset:
    """A store and the parts of it to train on, choose by, and report.

    ``split`` numbers graphs, or nodes where the dataset is one graph (``over`` says which).
    """

    store: Store
    split: Split
    card: Card
    over: Over

    def __repr__(self) -> str:
        sizes = " / ".join(f"{len(part):,}" for part in self.split)
        return f"<Dataset {self.card.name}: {sizes} {self.over}; {self.store!r}>"


def load_dataset(
    name: str,
    data: str | os.PathLike[str] | None = None,
    structure: Structure | None = None,
    *,
    seed: int = 0,
    split: SplitKind | None = None,
    fold: int = 0,
    fraction: float = 1.0,
) -> Dataset:
    """Load a benchmark.

    Args:
        name: as ``gradformer data list`` shows it; any case, common aliases.
        data: the mirror, else ``GRADFORMER_DATA``, else files are fetched into the cache.
        structure: what the store computes from the graphs.
        seed: of random splits; also the number of the published split where there are several.
        split: "fixed" (published), "random" (8:1:1), "stratified" (8:1:1) or "kfold" (ten folds);
            the card's own if left out.
        fold: the test fold of "kfold".
        fraction: share of the training part to keep, nested for one seed.
    """
    card = find_card(name)
    store = open_card(card, data, structure)
    parts = split_of(card, store, seed=seed, split=split, fold=fold)
    parts = parts._replace(train=low_resource(parts.train, fraction, seed))
    return Dataset(store, parts, card, split_over(card.level, card.graphs))


def open_card(
    card: Card, data: str | os.PathLike[str] | None = None, structure: Structure | None = None
) -> Store:
    """The store of ``card`` in the cache, built on first use, and checked against the card."""
    structure = structure or Structure()
    files = raw_files(card, data)
    content = _content(card, files)
    about = {
        "card": card.name,
        "sources": files.sums,
        "unknown": list(files.unknown),
        "generated": not files.sums,
    }
    folder = cache_folder() / "stores" / f"{card.name}-{store_key(content, structure)[:16]}"
    promised = replace(card, class_counts=()) if card.published in files.sums else card

    def read() -> GraphArrays:
        arrays = read_card(card, files)
        check_card(promised, arrays)
        return arrays

    store = build_store(read, structure, folder, content=content, about=about)
    check_card(promised, store)
    return store


def check_card(card: Card, graphs: GraphArrays | Store) -> None:
    """Raise unless there are the graphs, classes and split sizes that the card promises."""
    if isinstance(graphs, Store):
        y, column = graphs.arrays["y"], graphs.arrays.get("split")
    else:
        y, column = np.asarray(graphs.y), graphs.split
    expected: dict[str, tuple[Any, Any]] = {"graphs": (graphs.num_graphs, card.graphs)}
    if card.class_counts:
        counts = np.bincount(y.reshape(-1).astype(np.int64)).tolist()
        expected["class counts"] = (tuple(counts), card.class_counts)
    if card.split == "fixed":
        column = np.empty((0, 0), np.int8) if column is None else column
        expected["published splits"] = (column.shape[1], card.ways)
        for way in range(column.shape[1]):
            sizes = tuple(len(part) for part in fixed_split(column[:, way]))
            expected[f"sizes of split {way}"] = (sizes, card.sizes)
    for what, (found, promised) in expected.items():
        if found != promised:
            raise InputError(
                f"{card.name}: {what} are {found}, the card says {promised}; "
                "the files are not those of the benchmark, `gradformer data verify` names them"
            )


def split_of(
    card: Card, store: Store, *, seed: int = 0, split: SplitKind | None = None, fold: int = 0
) -> Split:
    """The parts that ``load_dataset`` gives, for a store that is already open."""
    kind = choice("split", split or card.split, get_args(SplitKind))
    if kind == "fixed":
        column = store.arrays.get("split")
        if column is None:
            raise ConfigError(f"{card.name} has no published split; use random or stratified")
        return fixed_split(column[:, seed % column.shape[1]])
    over = split_over(card.level, card.graphs)
    size = len(store.arrays["y"]) if over == "nodes" else store.num_graphs
    if kind == "random" and not card.per_class:
        return random_split(size, seed)
    has_classes = card.task in ("multiclass", "binary") and over == f"{card.level}s"
    if not has_classes and kind == "stratified":
        raise ConfigError(f"{card.name} has no class to stratify by; use split fixed or random")
    y = store.arrays["y"] if has_classes else np.zeros(size)
    classes = np.asarray(y).reshape(-1).astype(np.int64)
    if kind == "random":
        return per_class_split(classes, seed, card.per_class, *card.sizes[1:])
    if kind == "stratified":
        return stratified_split(classes, seed)
    return kfold_split(classes, seed, fold)


def _content(card: Card, files: RawFiles) -> str:
    """Names what the files hold, without reading them again."""
    parts = [READERS_VERSION, card.reader, dict(card.options), files.sums]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
