"""Which settings of a search mattered: the candidates of the first rung, compared by one setting.

They are drawn at random and trained equally long, so that the other settings average out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from gradformer.training.attempts import Attempt
from gradformer.training.metrics import LOWER_IS_BETTER


@dataclass(frozen=True)
class Lever:
    """One setting: the value whose candidates have the best mean validation score.

    ``gain`` is how much better that mean is than the mean of all other candidates, in the unit of
    the metric; ``error`` is the standard error of this difference, with one variance for both.
    """

    name: str
    value: str
    gain: float
    error: float

    @property
    def strength(self) -> float:
        """The gain in standard errors; 0 where there is none."""
        if self.gain == 0:
            return 0.0
        return self.gain / self.error if self.error > 0 else math.inf


def levers(attempts: Sequence[Attempt]) -> list[Lever]:
    """Every setting that had several values, the clearest gain first; diverged candidates are left
    out, and so is a setting with fewer than three candidates."""
    found: dict[str, dict[str, list[float]]] = {}
    for one in attempts:
        if one.rung == 0 and one.val is not None:
            score = -one.val if one.metric in LOWER_IS_BETTER else one.val
            for setting in one.settings:
                name, _, value = setting.partition("=")
                found.setdefault(name, {}).setdefault(value, []).append(score)
    several = {name: scores for name, scores in found.items() if len(scores) > 1}
    made = [_lever(name, scores) for name, scores in several.items()]
    return sorted(filter(None, made), key=lambda lever: -lever.strength)


def _lever(name: str, scores: dict[str, list[float]]) -> Lever | None:
    best = max(scores, key=lambda value: fmean(scores[value]))
    rest = [score for value, some in scores.items() if value != best for score in some]
    sides = (scores[best], rest)
    freedom = sum(map(len, sides)) - 2
    if freedom < 1:
        return None
    squares = sum((score - fmean(side)) ** 2 for side in sides for score in side)
    error = math.sqrt(squares / freedom * sum(1 / len(side) for side in sides))
    return Lever(name, best, fmean(sides[0]) - fmean(sides[1]), error)
