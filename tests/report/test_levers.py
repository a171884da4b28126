"""Which settings of a search mattered: means of candidates, and the error of their difference."""

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
]


def test_the_best_value_against_all_others_by_students_t() -> None:
    first, second = levers(ATTEMPTS)
    assert (first.name, first.value) == ("a", "1")
    assert first.gain == pytest.approx(0.82 - (0.60 + 0.66 + 0.61) / 3)
    assert first.strength == pytest.approx(
        stats.ttest_ind([0.80, 0.84], [0.60, 0.66, 0.61]).statistic
    )
    assert (second.name, second.value) == ("b", "y")
    assert second.strength == pytest.approx(
        stats.ttest_ind([0.84, 0.66], [0.80, 0.60, 0.61]).statistic
    )


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
