"""Feature similarity as a distance."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics.pairwise import cosine_distances

from gradformer.errors import ConfigError, InputError
from gradformer.structure import HOPS, SATURATED, similarity_distances


@pytest.mark.parametrize("signed", [False, True])
def test_equals_one_minus_cosine(signed):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30, 6)).astype(np.float32)
    x = x if signed else np.abs(x)
    told: list[int] = []
    codes, book = similarity_distances(np.array([0, 12, 12, 30]), x, progress=told.append)
    assert sum(told) == 3
    first, second = codes[: 12**2].reshape(12, 12), codes[12**2 :].reshape(18, 18)
    half_step = (1 if not signed else 2) / 254 / 2
    for ours, rows in ((first, x[:12]), (second, x[12:])):
        assert np.abs(book.values[ours] - cosine_distances(rows)).max() <= half_step + 1e-5


def test_categories_are_one_hot():
    rng = np.random.default_rng(1)
    x = rng.integers(0, 3, (15, 4))
    codes, book = similarity_distances(np.array([0, 15]), x - 1)
    assert book.values[SATURATED] == 1, "the names of categories have no sign"
    one_hot = np.concatenate([np.eye(3)[column] for column in x.T], axis=1)
    ours = book.values[codes].reshape(15, 15)
    assert np.abs(ours - cosine_distances(one_hot)).max() <= 0.5 / 254 + 1e-6


@pytest.mark.parametrize(("last", "largest"), [(2.0, 1.0), (-2.0, 2.0)])
def test_zero_vectors_are_at_a_right_angle_to_all_but_themselves(last, largest):
    codes, book = similarity_distances(np.array([0, 3]), np.array([[0.0], [0.0], [last]]))
    assert book.values[codes].tolist() == [0, 1, 1, 1, 0, 1, 1, 1, 0]
    assert book.values[SATURATED] == largest


def test_permutation_equivariance():
    rng = np.random.default_rng(2)
    x, order = rng.random((50, 33)), rng.permutation(50)
    before = similarity_distances(np.array([0, 50]), x)[0].reshape(50, 50)
    after = similarity_distances(np.array([0, 50]), x[order])[0].reshape(50, 50)
    np.testing.assert_array_equal(after, before[np.ix_(order, order)])


def test_bad_input():
    node_ptr = np.array([0, 2])
    with pytest.raises(InputError, match="row 1"):
        similarity_distances(node_ptr, np.array([[1.0, 2.0], [3.0, np.nan]]))
    for x in (np.ones((3, 1)), np.ones(2)):
        with pytest.raises(InputError, match="shape"):
            similarity_distances(node_ptr, x)
    with pytest.raises(ConfigError, match="codebook"):
        similarity_distances(node_ptr, np.ones((2, 1)), codebook=HOPS)
