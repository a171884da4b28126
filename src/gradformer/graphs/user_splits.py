"""Splits that come from the user's data: a column that names the part, or molecular scaffolds; and
copies that a split has put into two parts.

Parts are numbered as in :class:`~gradformer.graphs.arrays.GraphArrays`: 0 training, 1 validation,
2 test.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import ConfigError, InputError
from gradformer.graphs.molecules import canonical, scaffold
from gradformer.graphs.portable import permutation
from gradformer.graphs.splits import Split
from gradformer.graphs.user_data import UserData
from gradformer.progress import bar

PARTS = ("train", "val", "test")
_WORDS = {"train": 0, "training": 0, "val": 1, "valid": 1, "validation": 1, "dev": 1, "test": 2}


def part_number(word: str) -> int:
    """A user's word for a part of the data as its number.

    >>> part_number("Train"), part_number("validation")
    (0, 1)
    """
    part = _WORDS.get(word.strip().lower())
    if part is None:
        raise InputError(f"split {word!r} is unknown; use train, val or test")
    return part


def scaffold_split(
    smiles: Sequence[str], sizes: Sequence[float] = (0.8, 0.1, 0.1), seed: int = 0
) -> NDArray[np.int8]:
    """Part of each molecule, [molecules]: molecules with one Bemis–Murcko scaffold stay together.

    Scaffolds are dealt out in an order drawn from ``seed``, those with more molecules than half a
    validation or test part first, each to the first part with room for it. So the parts have about
    the fractions ``sizes``, and validation and test hold scaffolds that training never saw.
    """
    if len(sizes) != len(PARTS) or min(sizes) <= 0 or abs(sum(sizes) - 1) > 1e-6:
        raise ConfigError(f"sizes must be three fractions above 0 that add up to 1, got {sizes}")
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
                f"{len(groups)} scaffolds; use a random split"
            )
    return parts


@lru_cache(maxsize=1)  # every trial splits the same molecules
def _groups(smiles: tuple[str, ...]) -> list[list[int]]:
    """The molecules of each scaffold, by number."""
    groups: dict[str, list[int]] = {}
    with bar("scaffolds", len(smiles)) as advance:
        for molecule, word in enumerate(smiles):
            groups.setdefault(scaffold(word), []).append(molecule)
            advance(1)
    return list(groups.values())


def copies(user: UserData, split: Split) -> list[int]:
    """Test molecules that are in the training part too, however their SMILES are written.

    Only molecules of the same atoms are compared, which few are.
    """
    smiles, x = user.smiles, user.arrays.x
    if smiles is None or x is None:
        return []
    ends = zip(user.arrays.node_ptr, user.arrays.node_ptr[1:])
    atoms = [np.sort(x[first:last, 0]).tobytes() for first, last in ends]
    trained = {atoms[graph] for graph in split.train}
    alike = [int(graph) for graph in split.test if atoms[graph] in trained]
    wanted = {atoms[graph] for graph in alike}
    known = {canonical(smiles[graph]) for graph in split.train if atoms[graph] in wanted}
    return [graph for graph in alike if canonical(smiles[graph]) in known]
