"""Which settings of a search mattered: medians of candidates, and how far their ranks are apart."""

from __future__ import annotations

import pytest
from scipy import stats

from gradformer.report.levers import levers
from gradformer.training.attempts import Attempt


def _attempt(number: int, val: float | None, *settings: str, rung: int = 0) -> Attempt:
    return Attempt(rung, number, settings, 3, "accuracy", val, None)


ATTEMPTS = [
    _attempt(0, 0.80, "a=1", "b=x", "c=0"),
    _attempt(1, 0.84, "a=1", "b=y", "c=0"),
    _attempt(2, 0.60, "a=2", "b=x", "c=0"),
    _attempt(3, 0.66, "a=2", "b=y", "c=0"),
    _attempt(4, 0.61, "a=3", "b=x", "c=0"),
    _attempt(5, None, "a=3", "b=y", "c=0"),  # diverged
    _attempt(1, 0.10, "a=1", "b=y", "c=0", rung=1),  # trained longer: no comparison
    _attempt(6, 0.70),  # the recipe as it is: not drawn
]


def test_the_best_value_against_all_others_by_ranks() -> None:
    first, second = levers(ATTEMPTS)
    assert (first.name, first.value) == ("a", "1")
    assert first.gain == pytest.approx(0.82 - 0.61)
    assert first.strength == pytest.approx(stats.ttest_ind([4, 5], [1, 3, 2]).statistic)
    assert (second.name, second.value) == ("b", "y")
    assert second.gain == pytest.approx(0.75 - 0.61)
    assert second.strength == pytest.approx(stats.ttest_ind([5, 3], [4, 1, 2]).statistic)


def test_a_candidate_that_learned_nothing_does_not_decide() -> None:
    """Three of four with dropout 0 are the best; the mean of all four is the worst."""
    scores = {"0.0": (0.14, 0.13, 0.12, 9.0), "0.1": (0.20, 0.21, 0.22, 0.23)}
    errors = [
        Attempt(0, 0, (f"dropout={value}",), 3, "mae", val, None)
        for value, some in scores.items()
        for val in some
    ]
    (lever,) = levers(errors)
    assert lever.value == "0.0"
    assert lever.gain == pytest.approx(0.215 - 0.135)
    assert lever.strength == pytest.approx(stats.ttest_ind([6, 7, 8, 1], [5, 4, 3, 2]).statistic)


def test_of_errors_the_smaller_is_better() -> None:
    errors = [
        Attempt(0, place, (f"a={place % 2}",), 3, "mae", val, None)
        for place, val in enumerate([0.3, 0.2, 0.5, 0.1])
    ]
    (lever,) = levers(errors)
    assert lever.value == "1"
    assert lever.gain == pytest.approx(0.25)


def test_equal_scores_are_no_gain() -> None:
    same = [_attempt(place, 0.5, f"a={place % 2}") for place in range(4)]
    assert [lever.strength for lever in levers(same)] == [0.0]


def test_too_few_candidates_say_nothing() -> None:
    assert levers([ATTEMPTS[0], ATTEMPTS[2]]) == []
    assert levers([]) == []
