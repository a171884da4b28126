"""Splits are partitions, nested where promised, and fixed for a seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradformer.errors import ConfigError, InputError
from gradformer.graphs import splits
from gradformer.graphs.portable import permutation


def assert_partition(split: splits.Split, size: int) -> None:
    assert np.sort(np.concatenate(split)).tolist() == list(range(size))
    for part in split:
        assert (np.diff(part) > 0).all()


@settings(deadline=None)
@given(st.integers(0, 300), st.integers(0, 2**31), st.integers(0, 9))
def test_all_splits_are_partitions(size: int, seed: int, fold: int) -> None:
    classes = permutation(size, 7) % 3
    assert_partition(splits.random_split(size, seed), size)
    assert_partition(splits.kfold_split(classes, seed, fold), size)
    if size:
        assert_partition(splits.stratified_split(classes, seed), size)


def test_permutations_are_uniform() -> None:
    place = np.array([permutation(6, 1, seed) for seed in range(3000)])
    for position in range(6):
        assert np.bincount(place[:, position]) / 3000 == pytest.approx(np.full(6, 1 / 6), abs=0.03)


def test_seeds_name_the_split_for_good() -> None:
    """Recorded results refer to these; they may not change with numpy or torch."""
    assert splits.random_split(20, seed=0).test.tolist() == [1, 3]
    assert splits.random_split(20, seed=1).test.tolist() == [3, 14]
    assert permutation(8, 0, 0).tolist() == [0, 7, 2, 5, 4, 6, 3, 1]


def test_random_split_rounds_down() -> None:
    assert [len(part) for part in splits.random_split(1113, 4)] == [890, 111, 112]
    assert [len(part) for part in splits.random_split(4110, 4)] == [3288, 411, 411]
    assert [len(part) for part in splits.random_split(19, 4)] == [15, 1, 3]


def test_stratified_split_keeps_the_shares() -> None:
    classes = np.repeat([0, 1, 2], [500, 300, 200])
    split = splits.stratified_split(classes, seed=2)
    assert [np.bincount(classes[part]).tolist() for part in split] == [
        [400, 240, 160],
        [50, 30, 20],
        [50, 30, 20],
    ]


def test_folds_test_every_item_once_and_are_balanced() -> None:
    classes = np.repeat([0, 1], [125, 63])
    tests = [splits.kfold_split(classes, 0, fold).test for fold in range(10)]
    assert sorted(np.concatenate(tests).tolist()) == list(range(188))
    for test in tests:
        assert abs(np.bincount(classes[test], minlength=2) - [12.5, 6.3]).max() < 1
    first, second = (splits.kfold_split(classes, 0, fold) for fold in (0, 1))
    assert first.val.tolist() == second.test.tolist()
    assert [splits.fold_of(seed, first_seed=7) for seed in (7, 9, 16, 17)] == [0, 2, 9, 0]


def test_per_class_split() -> None:
    classes = np.arange(2708) % 7
    split = splits.per_class_split(classes, 1, 20, 500, 1000)
    assert [len(part) for part in split] == [140, 500, 1000]
    assert np.bincount(classes[split.train]).tolist() == [20] * 7
    assert len(np.unique(np.concatenate(split))) == 1640
    none_to_spare = splits.per_class_split(np.arange(1640) % 7, 1, 20, 500, 1000)
    assert len(none_to_spare.test) == 1000
    with pytest.raises(InputError, match="1360 items are left for 1000 validation"):
        splits.per_class_split(np.arange(1500) % 7, 1, 20, 1000, 1000)


def test_low_resource_fractions_are_nested() -> None:
    train = np.arange(100, 3388)
    parts = [set(splits.low_resource(train, f, seed=3).tolist()) for f in (0.05, 0.1, 0.25, 1)]
    assert [len(part) for part in parts] == [164, 329, 822, 3288]
    assert parts[0] < parts[1] < parts[2] < parts[3] == set(train.tolist())
    assert parts[0] != set(splits.low_resource(train, 0.05, seed=4).tolist())
    assert len(splits.low_resource(train, 1e-6, seed=3)) == 1


def test_fixed_split_leaves_out_the_unused() -> None:
    split = splits.fixed_split(np.array([2, -1, 0, 1, 0], np.int8))
    assert [part.tolist() for part in split] == [[2, 4], [3], [0]]


@pytest.mark.parametrize("fraction", [0, -0.1, 1.1])
def test_impossible_fractions_are_refused(fraction: float) -> None:
    with pytest.raises(ConfigError, match="fraction"):
        splits.low_resource(np.arange(5), fraction, 0)


def test_impossible_folds_are_refused() -> None:
    for fold in (-1, 10):
        with pytest.raises(ConfigError, match=f"got {fold}, expected 0 to 9"):
            splits.kfold_split(np.zeros(20), 0, fold)
