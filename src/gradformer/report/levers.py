"""Which settings of a search mattered: the candidates of the first rung, compared by one setting.

They are drawn at random and trained equally long, so that the other settings average out. Compared
are ranks: a candidate that learned nothing is the last, however bad its score.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from gradformer.training.attempts import Attempt
from gradformer.training.metrics import LOWER_IS_BETTER


@dataclass(frozen=True)
class Lever:
    """One setting: the value whose candidates have the best mean rank.

    ``gain`` is how much better the median of their scores is than that of all other candidates, in
    the unit of the metric; ``strength`` is how far the mean ranks of both are apart, in standard
    errors with one variance for both (Student's t of the ranks).
    """

    name: str
    value: str
    gain: float
    strength: float


def levers(attempts: Sequence[Attempt]) -> list[Lever]:
    """Every setting that had several values, the clearest gain first.

    Left out: diverged candidates, the recipe as it is, which was not drawn, and a setting with
    fewer than three candidates.
    """
    from scipy.stats import rankdata  # slow to load, and needed here only

    drawn = (one for one in attempts if one.rung == 0 and one.settings)
    first = [(one, one.val) for one in drawn if one.val is not None]
    scores = [-val if one.metric in LOWER_IS_BETTER else val for one, val in first]
    found: dict[str, dict[str, list[_Scored]]] = {}
    for (one, _), score, rank in zip(first, scores, rankdata(scores)):
        for setting in one.settings:
            name, _, value = setting.partition("=")
            found.setdefault(name, {}).setdefault(value, []).append((float(rank), score))
    several = {name: scored for name, scored in found.items() if len(scored) > 1}
    made = [_lever(name, scored) for name, scored in several.items()]
    return sorted(filter(None, made), key=lambda lever: -lever.strength)


_Scored = tuple[float, float]  # rank and score, the more the better


def _lever(name: str, scored: dict[str, list[_Scored]]) -> Lever | None:
    best = max(scored, key=lambda value: fmean(rank for rank, _ in scored[value]))
    rest = [one for value, some in scored.items() if value != best for one in some]
    ranks, scores = ([[one[k] for one in side] for side in (scored[best], rest)] for k in (0, 1))
    freedom = sum(map(len, ranks)) - 2
    if freedom < 1:
        return None
    squares = sum((rank - fmean(side)) ** 2 for side in ranks for rank in side)
    error = math.sqrt(squares / freedom * sum(1 / len(side) for side in ranks))
    apart = fmean(ranks[0]) - fmean(ranks[1])
    strength = apart / error if error > 0 else math.inf if apart > 0 else 0.0
    return Lever(name, best, median(scores[0]) - median(scores[1]), strength)
