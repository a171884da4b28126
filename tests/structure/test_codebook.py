"""The meaning of a byte."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gradformer.errors import InputError
from gradformer.structure import FAR, HOPS, SATURATED, UNREACHABLE, Codebook
from gradformer.structure.codebook import FIXED


def test_survives_json():
    book = Codebook.uniform("curvature-forman", 7.3)
    again = Codebook.from_dict(json.loads(json.dumps(book.to_dict())))
    assert again == book
    assert hash(again) == hash(book)
    assert again != HOPS
    assert again != Codebook.uniform("curvature-forman", 7.4)
    assert Codebook("other", book.values) != book


def test_encode_takes_the_nearest_value():
    book = Codebook.uniform("similarity", 2.0)
    rng = np.random.default_rng(0)
    psi = rng.random(5000) * 2
    nearest = np.abs(psi[:, None] - book.values[:255]).argmin(axis=1)
    assert np.abs(book.encode(psi).astype(int) - nearest).max() <= 1  # at most at a midpoint
    assert (book.encode(psi) != nearest).mean() < 1e-2
    np.testing.assert_array_equal(book.encode(book.values[:255]), np.arange(255))
    assert book.encode(np.array([np.inf, 9.0])).tolist() == [UNREACHABLE, SATURATED]


def test_encode_ignores_the_last_bits():
    book = Codebook.uniform("curvature-ollivier", 25.4)
    middle = (book.values[10] + book.values[11]) / 2
    codes = book.encode(middle + np.linspace(-1e-9, 1e-9, 101))
    assert len(set(codes.tolist())) == 1


def test_unreachable_is_far_in_every_book():
    assert HOPS.values[UNREACHABLE] == Codebook.uniform("x", 1.0).values[UNREACHABLE] == FAR


def test_the_books_of_graphs_that_come_one_at_a_time():
    """Models that were trained with them take no others."""
    steps = {name: book.values[1] for name, book in FIXED.items()}
    assert steps == pytest.approx({"hops": 1.0, "curvature": 0.1, "similarity": 2 / SATURATED})


def test_values_are_frozen_and_checked():
    with pytest.raises(ValueError, match="read-only"):
        HOPS.values[0] = 1
    with pytest.raises(InputError, match="256"):
        Codebook("short", np.zeros(10))
    with pytest.raises(InputError, match="256"):
        Codebook("holes", np.full(256, np.nan))
