"""What a trial learns from: a store, a split for every seed, and what is scored."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from gradformer.errors import InputError, counted, warn
from gradformer.graphs.arrays import Over, Schema, split_over
from gradformer.graphs.cards import find_card, is_card
from gradformer.graphs.collate import Collator
from gradformer.graphs.datasets import open_card, split_of
from gradformer.graphs.splits import Split, fold_of, low_resource
from gradformer.graphs.store import Store, pack
from gradformer.graphs.targets import TargetScale, is_labelled
from gradformer.graphs.user_data import UserData
from gradformer.graphs.user_splits import copies, user_split, user_way
from gradformer.training.metrics import check_metric, is_defined, metric_name, metrics_of
from gradformer.training.recipe import Recipe

Part = Literal["train", "val", "test"]


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
        rows: of a user's own data the row of each graph, as its reader counts them.
    """

    store: Store
    split: Callable[[int], Split]
    metric: str
    over: Over = "graphs"
    scaled: bool = False
    about: dict[str, Any] = field(default_factory=dict)
    rows: NDArray[np.int64] | None = None

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

    def described(self, origin: Mapping[str, Any]) -> dict[str, Any]:
        """What ``data.json`` of a run says: all that a model must know of its data, and where they
        came from."""
        store = self.store
        about = {**self.about, "content": store.content, "metric": self.metric}
        return {
            "origin": {**origin, **about},
            "schema": asdict(store.schema),
            "structure": store.structure.to_dict(),
            "codebook": store.codebook.to_dict(),
        }

    def collator(self, device: torch.device | str) -> Collator:
        """The store's arrays on a device."""
        return Collator(self.store, device)


def benchmark(recipe: Recipe, mirror: str | os.PathLike[str] | None = None) -> TrainingData:
    """The benchmark that a recipe names, packed as its model needs it.

    ``mirror`` is the folder with raw files, else ``GRADFORMER_DATA``.
    """
    card = find_card(recipe.dataset)
    store = open_card(card, mirror, recipe.model.config.needs())
    kind: Any = None if recipe.data.split == "auto" else recipe.data.split

    def split(seed: int) -> Split:
        first, fold = (recipe.seed, fold_of(seed, recipe.seed)) if kind == "kfold" else (seed, 0)
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


def own_data(recipe: Recipe, user: UserData, begun: bool = False) -> TrainingData:
    """A user's graphs, packed in memory as the recipe's model needs them.

    A target with a single value, in all data or in the training part, is refused unless a run has
    ``begun`` with the data: earlier versions took such targets.
    """
    if user.arrays.y is None:
        raise InputError("the data have no targets to learn from; name the target column")
    arrays = user.arrays
    if not begun:
        _refuse_constants(user)
        if not arrays.edge_index.shape[1] and recipe.model.config.needs().index != "similarity":
            warn(f"{user.where}: no graph has an edge, so a model sees nodes only")
    store = pack(arrays, recipe.model.config.needs(), called=user.place)
    way = user_way(recipe.data.split, arrays)
    find = user_split(way, user, recipe.seed)

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
        rows=user.rows,
    )
    seeds = range(recipe.seed, recipe.seed + recipe.trials)
    splits, whole = [split(seed) for seed in seeds], [find(seed) for seed in seeds]
    for parts, drawn in zip(splits, whole):
        _check_parts(data, parts)
        if not begun:  # a small data.fraction may leave one label, as a smoke test does
            _refuse_one_label(data.labels(drawn.train))
    _tell_untaught(data, user, splits)
    _tell_copies(user, splits)
    if not begun:
        _tell_untaught_classes(data, user, whole)
        _tell_untested(user, np.concatenate([data.labels(drawn.test) for drawn in whole]))
    return data


def way_of(recipe: Recipe, about: Mapping[str, Any]) -> str:
    """How data are split, also where the recipe leaves it to them (``auto``); ``about`` is what a
    record says of the data."""
    way = recipe.data.split
    if "split" not in about and is_card(recipe.dataset):
        return find_card(recipe.dataset).split if way == "auto" else way
    return str(about.get("split", way))


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
            items = counted(sum(len(each) for each in split), data.over[:-1])
            rare = ", or use --split random" if data.about["split"] == "stratified" else ""
            raise InputError(
                f"split: nothing is left for {name} of {items} with labels; give more{rare}"
            )
        y = data.labels(part)
        if not is_labelled(y).any():
            raise InputError(f"split: nothing of the {name} part has a label; give another split")
        if name != "train" and not is_defined(data.metric, y, data.schema.outputs):
            raise InputError(
                f"split: the {metric_name(data.metric)} of the {name} part is not defined, it "
                "holds one class only; give more graphs, or another split"
            )


def _tell_untaught(data: TrainingData, user: UserData, splits: Sequence[Split]) -> None:
    """Warn of a target that has no value in the training part of a trial; raise if it is one of
    numbers, since it has no scale then."""
    for trial, parts in enumerate(splits):
        y = data.labels(parts.train)
        known = is_labelled(y).reshape(len(y), -1).any(axis=0)
        if known.all():
            continue
        name = user.reading.labels.targets[int(known.argmin())]
        where = f" of trial {trial}" if len(splits) > 1 else ""
        found = f"split: target {name!r} has no value in the train part{where}"
        if data.scaled:
            raise InputError(f"{found}; leave it out, or give another split")
        warn(f"{found}: what is predicted of it there was never learned")


def _tell_untaught_classes(data: TrainingData, user: UserData, splits: Sequence[Split]) -> None:
    """Warn of classes that a trial is judged by and not taught, of targets that it is taught."""
    labels = user.reading.labels
    if not labels.classes:
        return
    found = []
    for trial, parts in enumerate(splits):
        taught, judged = (
            [np.unique(column[is_labelled(column)]) for column in y.reshape(len(y), -1).T]
            for y in (data.labels(parts.train), data.labels(np.concatenate(parts[1:])))
        )
        found += [
            (trial, f"{labels.classes[k][int(label)]!r} of target {labels.targets[k]!r}")
            for k, known in enumerate(taught)
            if len(known)
            for label in np.setdiff1d(judged[k], known)
        ]
    if found:
        first, named = found[0]
        where = f" of trial {first}" if len(splits) > 1 else ""
        others = f", likewise {counted(len(found) - 1, 'other case')}" if len(found) > 1 else ""
        warn(
            f"split: class {named}: nothing of it is in the train part{where}{others}, so it is "
            "never learned there; give more of it, or another split"
        )


def _refuse_one_label(y: NDArray[Any]) -> None:
    """Raise if no target of the training part has two values."""
    columns = [column[is_labelled(column)] for column in y.reshape(len(y), -1).T]
    if all((column == column[:1]).all() for column in columns):
        raise InputError(
            "split: all labels of the train part are the same, so nothing can be learned; give "
            "more graphs, or another split"
        )


def _tell_copies(user: UserData, splits: Sequence[Split]) -> None:
    """Warn where molecules of the test part are also trained on: that score is too good."""
    found = copies(user, splits)
    if not any(found):
        return
    trial, first = next((trial, some) for trial, some in enumerate(found) if some)
    where = f" of trial {trial}" if len(splits) > 1 else ""
    others = sum(map(bool, found)) - 1
    more = f", and likewise in {counted(others, 'other trial')}" if others else ""
    warn(
        f"{len(first)} of {len(splits[trial].test)} test molecules{where} are in the training part "
        f"too (the first: {user.place(first[0])}){more}, so the test score is too good; split by "
        "scaffold, which keeps copies together, or leave copies out"
    )


def _tell_untested(user: UserData, tested: NDArray[Any]) -> None:
    """Warn of classes that are not among the labels ``tested`` of any trial: rare ones, mostly."""
    labels = user.reading.labels
    if labels.task != "multiclass":
        return
    if missing := [word for k, word in enumerate(labels.classes[0]) if k not in tested]:
        others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        warn(
            f"class {missing[0]!r}{others}: nothing of it is in the test part, whose score does "
            "not tell how it is predicted; give more of it, or test every row with --split kfold "
            "--trials 10"
        )
