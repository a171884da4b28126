"""Numbers on axes and in tables, and that no text becomes markup."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gradformer.report.markup import Markup, join, table, tag
from gradformer.report.scales import Scale, fit_scale, spread, tick_labels, wants_logarithm

FINITE = st.floats(-1e6, 1e6)


def test_text_is_escaped_and_markup_is_not():
    assert tag("p", '<b>&"', title='a"b') == '<p title="a&quot;b">&lt;b&gt;&amp;&quot;</p>'
    assert tag("p", tag("b", "x")) == "<p><b>x</b></p>"
    assert join(["<", Markup("<br>"), None, 3]) == "&lt;<br>3"


def test_table_names_its_rows_and_columns():
    made = table("c", ["a", "b"], [["x", 1.5]])
    assert '<th scope="col">a</th>' in made
    assert '<th scope="row">x</th>' in made
    assert '<td class="number">1.5</td>' in made


@given(FINITE, st.floats(1e-3, 1e6), st.integers(2, 8))
@example(1.0, 44445.0, 2)
def test_ticks_are_round_few_and_inside(low, width, count):
    scale = Scale(low, low + width, 0.0, 1.0)
    ticks = scale.ticks(count)
    assert 1 <= len(ticks) <= count / 0.9 + 1
    assert all(low - 1e-6 * width <= t <= low + 1.000001 * width for t in ticks)
    labels = tick_labels(ticks)
    if abs(low) < 1e3 * width:  # beyond, eleven digits would be needed to tell them apart
        assert len(set(labels)) == len(labels)


@pytest.mark.parametrize(
    ("low", "high", "logarithmic", "ticks"),
    [
        (0, 10, False, [0, 2, 4, 6, 8, 10]),
        (0.62, 0.88, False, [0.65, 0.7, 0.75, 0.8, 0.85]),
        (-3, 3, False, [-2, 0, 2]),
        (0, 47, False, [0, 10, 20, 30, 40]),
        (1, 1000, True, [1, 10, 100, 1000]),
        (0.02, 5, True, [0.03, 0.1, 0.3, 1, 3]),
        (2, 9, True, [2, 5]),
        (1e-6, 1e6, True, [1e-6, 1e-3, 1, 1e3, 1e6]),
        (3, 4, True, [3, 3.2, 3.4, 3.6, 3.8, 4]),  # too near for round numbers of a logarithm
    ],
)
def test_ticks_are_those_that_one_would_choose(low, high, logarithmic, ticks):
    assert Scale(low, high, 0.0, 1.0, logarithmic).ticks() == pytest.approx(ticks)


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([0, 0.25, 0.5], ["0", "0.25", "0.5"]),
        ([-1, 0, 1], ["−1", "0", "1"]),
        ([100, 200], ["100", "200"]),
        ([0, 1e5, 9e5], ["0", "100000", "900000"]),
        ([0, 5e5, 1e6], ["0", "5×10⁵", "10⁶"]),
        ([5e-5, 1e-4], ["0.00005", "0.0001"]),
        ([2.0], ["2"]),
    ],
)
def test_labels_have_the_decimals_that_tell_ticks_apart(values, labels):
    assert tick_labels(values) == labels


@given(st.integers(0, 3000))
def test_whole_ticks_are_whole(last):
    ticks = Scale(0.9, last + 1.1, 0.0, 1.0).ticks(6, whole=True)
    assert ticks
    assert all(t == round(t) for t in ticks)


@pytest.mark.parametrize("logarithmic", [False, True])
def test_scale_maps_its_ends(logarithmic):
    scale = Scale(1.0, 100.0, 10.0, 0.0, logarithmic)
    assert scale(1.0) == pytest.approx(10.0)
    assert scale(100.0) == pytest.approx(0.0)
    assert scale(10.0) == pytest.approx(5.0 if logarithmic else 10 - 10 * 9 / 99)


@given(st.lists(st.floats(1e-6, 1e6), min_size=1))
def test_logarithmic_ticks_lie_inside(values):
    scale = fit_scale(values, 0.0, 1.0, logarithmic=True)
    ticks = scale.ticks()
    assert ticks
    assert all(scale.low <= t <= scale.high for t in ticks)


def test_logarithm_only_where_it_helps():
    assert wants_logarithm([0.01, math.nan, 1.0])
    assert not wants_logarithm([0.5, 1.0])
    assert not wants_logarithm([0.0, 1.0])
    assert not wants_logarithm([])


@pytest.mark.parametrize(
    ("values", "logarithmic", "low", "high"),
    [
        ([3.0, 1.0, math.nan, math.inf], False, 0.92, 3.08),
        ([-1.0, 0.0], False, -1.04, 0.04),
        ([-2.0, -2.0], False, -3.0, -1.0),
        ([0.0], False, -0.5, 0.5),
        ([], False, -0.04, 1.04),
        ([200.0, 2.0, 0.0, -5.0, math.nan], True, 2 * 100**-0.04, 2 * 100**1.04),
        ([6.0], True, 3.0, 12.0),
    ],
)
def test_a_scale_holds_all_values_with_a_little_room(values, logarithmic, low, high):
    scale = fit_scale(values, 0.0, 1.0, logarithmic=logarithmic)
    assert (scale.low, scale.high) == (pytest.approx(low), pytest.approx(high))
    assert scale.logarithmic == logarithmic


@pytest.mark.parametrize(
    ("mean", "std", "text"),
    [
        (86.013, 1.468, "86.0 ± 1.5"),
        (0.06912, 0.00213, "0.0691 ± 0.0021"),
        (-1.0, 0.25, "−1.00 ± 0.25"),
        (123.4, 45.6, "123 ± 46"),
        (0.5, 0.0, "0.5000 ± 0.0000"),
    ],
)
def test_mean_and_spread_share_their_digits(mean, std, text):
    assert spread([mean - std / math.sqrt(2), mean + std / math.sqrt(2)]) == text
