"""What a trial learns from: a store, a split for every seed, and what is scored."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import networkx as nx
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from gradformer.errors import ConfigError, GradformerWarning, InputError, choice
from gradformer.graphs.arrays import GraphArrays, Over, Schema, split_over
from gradformer.graphs.cards import find_card
from gradformer.graphs.collate import Collator
from gradformer.graphs.datasets import open_card, split_of
from gradformer.graphs.objects import from_networkx, from_pyg, from_smiles_list
from gradformer.graphs.splits import Split, fixed_split, kfold_split, low_resource, random_split
from gradformer.graphs.splits import stratified_split as stratified
from gradformer.graphs.store import Store, pack
from gradformer.graphs.structures import Structure
from gradformer.graphs.targets import TargetScale, is_labelled
from gradformer.graphs.user_data import Reading, UserData, check_options
from gradformer.graphs.user_splits import copies, scaffold_split
from gradformer.model.base import Needs
from gradformer.structure.pointers import pointer
from gradformer.training.metrics import METRICS, check_metric, metric_name, metrics_of
from gradformer.training.recipe import Recipe

Part = Literal["train", "val", "test"]
OWN_SPLITS = ("auto", "random", "stratified", "scaffold", "column", "kfold")


@dataclass(frozen=True)
class TrainingData:
    """Packed graphs with a split for every seed.

    Attributes:
        store: the graphs.
        split: seed → numbers of the graphs (of the nodes, if ``over`` says so) in each part.
        metric: what decides between epochs and is reported.
        over: whether the split numbers graphs or the nodes of a single graph.
        scaled: whether regression targets are standardised on the training part.
        about: what a record says of the data; ``reading`` tells how to read more of the kind.
    """

    store: Store
    split: Callable[[int], Split]
    metric: str
    over: Over = "graphs"
    scaled: bool = False
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def schema(self) -> Schema:
        return self.store.schema

    def graphs(self, items: NDArray[np.int64]) -> NDArray[np.int64]:
        """The graphs that hold ``items`` of a split."""
        return items if self.over == "graphs" else np.zeros(1, np.int64)

    def labels(self, items: NDArray[np.int64]) -> NDArray[Any]:
        """Targets of ``items``, in the order in which a model predicts them."""
        y = self.store.arrays.get("y")
        if y is None:
            raise InputError("the data have no targets to learn from or score against")
        if self.schema.level == "graph" or self.over == "nodes":
            return np.asarray(y[items])
        ptr = self.store.arrays["node_ptr"]
        pieces = [y[ptr[graph] : ptr[graph + 1]] for graph in items]
        return np.concatenate(pieces) if pieces else np.asarray(y[:0])

    def scale(self, train: NDArray[np.int64]) -> TargetScale | None:
        """The scale on which a regression is learned."""
        return TargetScale.fit(self.labels(train)) if self.scaled else None

    def collator(self, device: torch.device | str) -> Collator:
        """The store's arrays on a device."""
        return Collator(self.store, device)


def structure_for(needs: Needs) -> Structure:
    """What the store must compute for a model."""
    index: Any = needs.index
    return Structure(index=index, rwse=needs.rwse, lap=needs.lap, extras=needs.extras)


def benchmark(recipe: Recipe, mirror: str | os.PathLike[str] | None = None) -> TrainingData:
    """The benchmark that a recipe names, packed as its model needs it.

    ``mirror`` is the folder with raw files, else ``GRADFORMER_DATA``.
    """
    card = find_card(recipe.dataset)
    store = open_card(card, mirror, structure_for(recipe.model.config.needs()))
    kind: Any = None if recipe.data.split == "auto" else recipe.data.split

    def split(seed: int) -> Split:
        first, fold = _fold(recipe, seed) if kind == "kfold" else (seed, 0)
        parts = split_of(card, store, seed=first, split=kind, fold=fold)
        return parts._replace(train=low_resource(parts.train, recipe.data.fraction, seed))

    split(recipe.seed)  # an impossible split is said before anything is trained
    return TrainingData(
        store,
        split,
        check_metric(card.metric, card.task),
        split_over(card.level, card.graphs),
        about={"name": card.name, "protocol": card.protocol, "exactness": card.exactness},
    )


def _fold(recipe: Recipe, seed: int) -> tuple[int, int]:
    """Ten folds are ten trials over one shuffle: its seed, and the fold of a trial's test part."""
    return recipe.seed, (seed - recipe.seed) % 10


def as_list(objects: Any) -> list[Any]:
    """Graphs or SMILES as a list; a single graph is a list of one."""
    from torch_geometric.data import Data

    if isinstance(objects, Data | nx.Graph):
        return [objects]
    if isinstance(objects, pd.DataFrame) or not isinstance(objects, Iterable):
        raise InputError(
            f"data: got {type(objects).__name__}, expected a path, or a list of PyG Data, NetworkX "
            "graphs or SMILES"
        )
    return list(objects)


def user_data(objects: Any, like: Reading | None = None, **options: Any) -> UserData:
    """PyG ``Data``, NetworkX graphs or SMILES as :class:`UserData`.

    ``options`` are those of the functions in :mod:`gradformer.graphs.objects`.
    """
    from torch_geometric.data import Data  # importing PyG takes seconds

    items = as_list(objects)
    if not items:
        raise InputError("data: the list of graphs is empty")
    for kind, convert in ((Data, from_pyg), (nx.Graph, from_networkx), (str, from_smiles_list)):
        if isinstance(items[0], kind):
            check_options(convert, options, "these graphs")
            found: UserData = convert(items, like=like, **options)  # type: ignore[operator]
            return found
    raise InputError(
        f"data: got {type(items[0]).__name__}, expected PyG Data, NetworkX graphs or SMILES"
    )


def own_data(recipe: Recipe, user: UserData, begun: bool = False) -> TrainingData:
    """A user's graphs, packed in memory as the recipe's model needs them.

    What a run has ``begun`` with may hold a target of one value, or train on one: these were not
    always refused.
    """
    if user.arrays.y is None:
        raise InputError("the data have no targets to learn from; name the target column")
    arrays = user.arrays
    if not begun:
        _refuse_constants(user)
    store = pack(arrays, structure_for(recipe.model.config.needs()))
    way = _own_way(recipe.data.split, arrays)
    find = _own_split(way, user, arrays, recipe)

    def split(seed: int) -> Split:
        parts = find(seed)
        return parts._replace(train=low_resource(parts.train, recipe.data.fraction, seed))

    user.tell_skipped()
    user.tell_unused()
    task = arrays.schema.task
    data = TrainingData(
        store,
        split,
        metrics_of(task, arrays.schema.outputs)[0],
        split_over(arrays.schema.level, arrays.num_graphs),
        scaled=task == "regression",
        about={"name": recipe.dataset, "split": way, "reading": user.reading.to_dict()},
    )
    for seed in range(recipe.seed, recipe.seed + recipe.trials):
        _check_parts(data, split(seed))
        if not begun:  # a small data.fraction may leave one label, as a smoke test does
            _refuse_one_label(data.labels(find(seed).train))
    _tell_copies(user, split(recipe.seed))
    return data


def _refuse_constants(user: UserData) -> None:
    """Raise if a regression target has one value only."""
    labels, y = user.reading.labels, user.arrays.y
    if labels.task != "regression" or y is None:
        return
    for k, name in enumerate(labels.targets):
        column = y.reshape(len(y), -1)[:, k]
        values = column[is_labelled(column)]
        if len(values) > 1 and (values == values[0]).all():
            raise InputError(
                f"target {name!r} is always {values[0]:g}, so nothing can be learned; leave it out"
            )


def _check_parts(data: TrainingData, split: Split) -> None:
    """Raise, before anything is trained, if a part is empty or cannot be scored."""
    for name, part in split._asdict().items():
        if not len(part):
            if data.about["split"] == "column":
                raise InputError(
                    f"split: the data call nothing {name}; name some so, or use another split"
                )
            count = sum(len(each) for each in split)
            raise InputError(
                f"split: nothing is left for {name} of {count} {data.over} with labels; give more"
            )
        y = data.labels(part)
        if not is_labelled(y).any():
            raise InputError(f"split: nothing of the {name} part has a label; give another split")
        nothing = np.zeros((len(y), data.schema.outputs))
        if name != "train" and math.isnan(METRICS[data.metric](nothing, y)):
            raise InputError(
                f"split: the {metric_name(data.metric)} of the {name} part is not defined, it "
                "holds one class only; give more graphs, or another split"
            )


def _refuse_one_label(y: NDArray[Any]) -> None:
    """Raise if no target of the training part has two values."""
    columns = [column[is_labelled(column)] for column in y.reshape(len(y), -1).T]
    if all((column == column[:1]).all() for column in columns):
        raise InputError(
            "split: all labels of the train part are the same, so nothing can be learned; give "
            "more graphs, or another split"
        )


def _tell_copies(user: UserData, split: Split) -> None:
    """Warn where molecules of the test part are trained on: that score is not one of new ones."""
    if found := copies(user, split):
        warnings.warn(
            f"{len(found)} of {len(split.test)} test molecules are in the training part too (the "
            f"first: {user.unit} {user.rows[found[0]]}), so the test score is too good; split by "
            "scaffold, which keeps copies together, or leave copies out",
            GradformerWarning,
            stacklevel=3,
        )


def _own_way(kind: str, arrays: GraphArrays) -> str:
    """How a user's graphs are split: as said; ``auto`` is the column where there is one, else
    stratified where there are classes, else random."""
    if choice("data.split", kind, OWN_SPLITS) != "auto":
        return kind
    if arrays.split is not None:
        return "column"
    return "stratified" if _has_classes(arrays) else "random"


def _own_split(
    way: str, user: UserData, arrays: GraphArrays, recipe: Recipe
) -> Callable[[int], Split]:
    """Seed → split of a user's graphs.

    A single graph with labels for its nodes is split by nodes. What has no label takes no part.
    """
    given = arrays.split
    if way == "column":
        if given is None:
            raise ConfigError(
                "data.split: the data name no parts; name a column that does (--split-column NAME, "
                "split_column=...), or use random"
            )
        column = given[:, 0]
        return lambda seed: fixed_split(column)
    labelled = _labelled_items(arrays)
    if way == "scaffold":
        if user.smiles is None:
            raise ConfigError("data.split: scaffold needs molecules; use random")
        smiles = [user.smiles[graph] for graph in labelled]
        return lambda seed: _numbered(fixed_split(scaffold_split(smiles, seed=seed)), labelled)
    classes = np.zeros(len(labelled), np.int64)
    if _has_classes(arrays):
        assert arrays.y is not None
        classes = arrays.y.reshape(len(arrays.y), -1)[labelled, 0].astype(np.int64)
    elif way == "stratified":
        raise ConfigError("data.split: stratified needs one class for each item; use random")
    if way == "stratified":
        return lambda seed: _numbered(stratified(classes, seed), labelled)
    if way == "kfold":
        return lambda seed: _numbered(kfold_split(classes, *_fold(recipe, seed)), labelled)
    return lambda seed: _numbered(random_split(len(labelled), seed), labelled)


def _has_classes(arrays: GraphArrays) -> bool:
    """Whether every item of a split has one class."""
    return not _many_nodes(arrays) and arrays.schema.task in ("multiclass", "binary")


def _many_nodes(arrays: GraphArrays) -> bool:
    """Whether an item of a split has many labels: it is a graph whose nodes have them."""
    level = arrays.schema.level
    return level == "node" and split_over(level, arrays.num_graphs) == "graphs"


def _labelled_items(arrays: GraphArrays) -> NDArray[np.int64]:
    """Graphs that have a label, or nodes where there is one graph."""
    assert arrays.y is not None
    known = is_labelled(arrays.y).reshape(len(arrays.y), -1).any(axis=1)
    if _many_nodes(arrays):
        count = pointer(known)
        known = np.diff(count[arrays.node_ptr]) > 0
    return np.flatnonzero(known)


def _numbered(split: Split, items: NDArray[np.int64]) -> Split:
    """A split of positions as a split of the items at these positions."""
    return Split(*(items[part] for part in split))
