"""Training, validation and test items: the same for one seed on every machine.

Items are graphs, or the nodes of a single graph.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import ConfigError, InputError
from gradformer.graphs.portable import permutation

Items = NDArray[np.int64]
Fractions = tuple[float, float, float]
EIGHT_ONE_ONE: Fractions = (0.8, 0.1, 0.1)
FOLDS = 10
_SPLIT, _FRACTION = range(2)  # streams of a seed


class Split(NamedTuple):
    """Item numbers of the three parts, ascending."""

    train: Items
    val: Items
    test: Items


def fixed_split(column: NDArray[np.int8]) -> Split:
    """The parts of a published split: 0 = training, 1 = validation, 2 = test, -1 = none."""
    return Split(*(np.flatnonzero(column == part) for part in range(3)))


def random_split(size: int, seed: int, fractions: Fractions = EIGHT_ONE_ONE) -> Split:
    """A random split; the first two parts are rounded down, the test part takes the rest.

    >>> [len(part) for part in random_split(188, seed=0)]
    [150, 18, 20]
    """
    train, val = (int(fraction * size + 1e-9) for fraction in fractions[:2])
    parts = np.split(permutation(size, _SPLIT, seed), [train, train + val])
    return Split(*(np.sort(part) for part in parts))


def stratified_split(classes: NDArray[Any], seed: int) -> Split:
    """A random split, 8:1:1, of each class by itself, so that the parts have its shares alike."""
    shuffled = permutation(len(classes), _SPLIT, seed)
    parts: list[list[Items]] = [[], [], []]
    for label in np.unique(classes):
        members = shuffled[classes[shuffled] == label]
        bounds = np.cumsum(EIGHT_ONE_ONE[:2]) * len(members)
        for part, piece in zip(parts, np.split(members, np.floor(bounds + 0.5).astype(int))):
            part.append(piece)
    return Split(*(np.sort(np.concatenate(part)) for part in parts))


def kfold_split(classes: NDArray[Any], seed: int, fold: int) -> Split:
    """Of ten folds ``fold`` is for testing, the next one for validation, the others for training.

    Classes are dealt out to the folds like cards, so that each fold has its share of every class.
    """
    if not 0 <= fold < FOLDS:
        raise ConfigError(f"fold: got {fold}, expected 0 to {FOLDS - 1}")
    shuffled = permutation(len(classes), _SPLIT, seed)
    by_class = shuffled[np.argsort(classes[shuffled], kind="stable")]
    dealt = np.empty(len(classes), np.int64)
    dealt[by_class] = np.arange(len(classes)) % FOLDS
    test, val = dealt == fold, dealt == (fold + 1) % FOLDS
    return Split(*(np.flatnonzero(part) for part in (~(test | val), val, test)))


def fold_of(seed: int, first_seed: int) -> int:
    """The fold on which the trial of ``seed`` is tested; the first seed shuffles for all."""
    return (seed - first_seed) % FOLDS


def per_class_split(classes: NDArray[Any], seed: int, per_class: int, val: int, test: int) -> Split:
    """``per_class`` training items of each class, then ``val`` and ``test`` of the others."""
    shuffled = permutation(len(classes), _SPLIT, seed)
    chosen = [shuffled[classes[shuffled] == label][:per_class] for label in np.unique(classes)]
    train = np.concatenate(chosen)
    others = shuffled[~np.isin(shuffled, train)]
    if len(others) < val + test:
        raise InputError(f"{len(others)} items are left for {val} validation and {test} test items")
    return Split(np.sort(train), np.sort(others[:val]), np.sort(others[val : val + test]))


def low_resource(train: Items, fraction: float, seed: int) -> Items:
    """A random share of the training items; a smaller one is part of a larger one (same seed).

    >>> len(low_resource(np.arange(3288), 0.05, seed=1))
    164
    """
    if not 0 < fraction <= 1:
        raise ConfigError(f"fraction: {fraction}, expected a share of the training split, 0 to 1")
    count = max(1, int(fraction * len(train) + 0.5))
    return np.sort(train[permutation(len(train), _FRACTION, seed)[:count]])
