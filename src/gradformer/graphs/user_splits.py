"""How a user's own graphs are split: by a column of theirs, by scaffolds, or at random by seed; and
copies that a split has put into two parts.

Parts are numbered as in :class:`~gradformer.graphs.arrays.GraphArrays`: 0 training, 1 validation,
2 test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import ConfigError, InputError, choice, counted
from gradformer.graphs.arrays import GraphArrays, split_over
from gradformer.graphs.molecules import canonical, scaffold
from gradformer.graphs.portable import permutation
from gradformer.graphs.processes import each, sound
from gradformer.graphs.splits import (
    EIGHT_ONE_ONE,
    Fractions,
    Split,
    fixed_split,
    fold_of,
    kfold_split,
    random_split,
    stratified_split,
)
from gradformer.graphs.targets import is_labelled
from gradformer.graphs.user_data import UserData
from gradformer.progress import bar
from gradformer.structure.pointers import pointer

WAYS = ("auto", "random", "stratified", "scaffold", "column", "kfold")
PARTS = ("train", "val", "test")
_WORDS = {"train": 0, "training": 0, "val": 1, "valid": 1, "validation": 1, "dev": 1, "test": 2}


def user_way(kind: str, arrays: GraphArrays) -> str:
    """How graphs are split: as said; ``auto`` is the column where there is one, else stratified
    where there are classes, else random."""
    if choice("data.split", kind, WAYS) != "auto":
        return kind
    if arrays.split is not None:
        return "column"
    return "stratified" if _has_classes(arrays) else "random"


def user_split(way: str, user: UserData, first_seed: int) -> Callable[[int], Split]:
    """Seed → split; ``first_seed`` is that of the first fold.

    A single graph with labels for its nodes is split by nodes. What has no label takes no part.
    """
    arrays = user.arrays
    if way == "column":
        if arrays.split is None:
            raise ConfigError(
                "data.split: the data name no parts; name a column that does (--split-column NAME, "
                "split_column=...), or use random"
            )
        given = fixed_split(arrays.split[:, 0])
        return lambda seed: given
    labelled = _labelled_items(arrays)
    if way == "scaffold":
        if user.smiles is None:
            raise ConfigError("data.split: scaffold needs molecules; use random")
        smiles = [user.smiles[graph] for graph in labelled]
        return lambda seed: _numbered(fixed_split(scaffold_split(smiles, seed)), labelled)
    classes = np.zeros(len(labelled), np.int64)
    if _has_classes(arrays):
        assert arrays.y is not None
        classes = arrays.y.reshape(len(arrays.y), -1)[labelled, 0].astype(np.int64)
    elif way == "stratified":
        raise ConfigError("data.split: stratified needs one class for each item; use random")
    splits: dict[str, Callable[[int], Split]] = {
        "stratified": lambda seed: stratified_split(classes, seed),
        "kfold": lambda seed: kfold_split(classes, first_seed, fold_of(seed, first_seed)),
        "random": lambda seed: random_split(len(labelled), seed),
    }
    return lambda seed: _numbered(splits[way](seed), labelled)


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


def part_number(word: str) -> int:
    """A user's word for a part of the data as its number.

    >>> part_number("Train"), part_number("validation")
    (0, 1)
    """
    part = _WORDS.get(word.strip().lower())
    if part is None:
        raise InputError(f"split {word!r} is unknown; use train, val or test")
    return part


def names_parts(words: Iterable[str]) -> bool:
    """Whether all words are names of parts, of which there are two or more."""
    parts = set()
    for word in words:
        parts.add(_WORDS.get(word.strip().lower()))
        if None in parts:
            return False
    return len(parts) > 1


def scaffold_split(
    smiles: Sequence[str], seed: int, sizes: Fractions = EIGHT_ONE_ONE
) -> NDArray[np.int8]:
    """Part of each molecule, [molecules]: molecules with one Bemis–Murcko scaffold stay together.

    Scaffolds are dealt out in an order drawn from ``seed``, those with more molecules than half a
    validation or test part first, each to the first part with room for it. So the parts have about
    the fractions ``sizes``, and validation and test hold scaffolds that training never saw.
    """
    groups = _groups(tuple(smiles))
    room = [round(size * len(smiles)) for size in sizes[:2]]
    large = min(sizes[1:]) * len(smiles) / 2
    shuffled = [groups[at] for at in permutation(len(groups), seed)]
    shuffled.sort(key=lambda group: len(group) <= large)  # stable: both halves stay shuffled
    parts = np.full(len(smiles), 2, np.int8)
    for group in shuffled:
        for part in (0, 1):
            if len(group) <= room[part]:
                room[part] -= len(group)
                parts[group] = part
                break
    for part, name in enumerate(PARTS):
        if part not in parts:
            raise InputError(
                f"a scaffold split leaves nothing for {name}: {len(smiles)} molecules have only "
                f"{counted(len(groups), 'scaffold')}; use a random split"
            )
    return parts


@lru_cache(maxsize=1)  # every trial splits the same molecules
def _groups(smiles: tuple[str, ...]) -> list[list[int]]:
    """The molecules of each scaffold, by number."""
    groups: dict[str, list[int]] = {}
    with bar("scaffolds", len(smiles)) as advance:
        for molecule, found in enumerate(each(scaffold, smiles)):
            groups.setdefault(sound(found), []).append(molecule)
            advance(1)
    return list(groups.values())


def copies(user: UserData, splits: Sequence[Split]) -> list[list[int]]:
    """Of each split the test molecules that are in its training part too, however their SMILES are
    written.

    Only molecules of the same atoms are compared, which few are. (Chirality, the second column,
    depends on the way that a SMILES is written.)
    """
    smiles, x = user.smiles, user.arrays.x
    if smiles is None or x is None:
        return [[] for _ in splits]
    weights = 131 ** np.arange(x.shape[1])
    weights[1:2] = 0
    codes, ptr = x @ weights, user.arrays.node_ptr
    atoms = [np.sort(codes[first:last]).tobytes() for first, last in pairwise(ptr)]
    count = Counter(atoms)
    alike = [graph for graph, own in enumerate(atoms) if count[own] > 1]
    molecule = dict(zip(alike, each(canonical, [smiles[graph] for graph in alike])))
    found = []
    for split in splits:
        trained = {molecule[graph] for graph in split.train.tolist() if graph in molecule}
        found.append([graph for graph in split.test.tolist() if molecule.get(graph) in trained])
    return found
