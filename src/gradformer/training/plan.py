"""What a search is: ranges of a recipe, drawn at random, or with successive halving.

Halving begins with many candidates and few epochs; the best third by validation goes on with three
times as many, until one (or ``finalists``) has been trained in full. There the recipe as it is
joins them: a candidate wins only if it is better.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gradformer.errors import ConfigError, InputError, at_least, choice
from gradformer.training.attempts import STEADY
from gradformer.training.files import plain, read_json, reading
from gradformer.training.origins import OWN, dataset_name, is_benchmark
from gradformer.training.recipe import Recipe

PLAN = "plan.json"
METHODS = ("halving", "random")
REDUCTION = 3
"""Of the candidates of a rung one in so many goes on, with so many times the epochs."""
ALIKE = ("data.split", "trials", "seed", "train.epochs")
"""Settings that all candidates share: scores compare on the same validation parts, and the epochs
are those of the rung."""


@dataclass(frozen=True)
class Plan:
    """Everything that decides a search; ``data`` is a name or a path, read with ``reading``. The
    ``recipe`` may have been made for other data: it is changed to name these.

    ``steady``: a candidate's score is its best mean validation over so many epochs in a row; with 1
    it is that of the selected epoch.
    ``against_recipe``: the recipe as it is takes part in the last rung.
    """

    data: str
    recipe: Recipe
    space: Mapping[str, Sequence[Any]]
    method: str = "halving"
    samples: int = 9
    finalists: int = 1
    seed: int = 0
    reading: Mapping[str, Any] | None = None
    steady: int = STEADY
    against_recipe: bool = True

    def __post_init__(self) -> None:
        choice("method", self.method, METHODS)
        if not self.space:
            raise ConfigError(
                "space: the recipe states no ranges to search; give some, as in "
                "--range model.decay=0.4,0.6,0.8"
            )
        if not isinstance(self.data, str | Path):
            raise ConfigError(
                f"data: got {type(self.data).__name__}, expected a name or a path, which a search "
                "that was stopped finds again; write graphs to a file of JSON lines"
            )
        counts = {name: getattr(self, name) for name in ("samples", "finalists", "steady", "seed")}
        for name, count in counts.items():
            at_least(name, count, int(name != "seed"))
        own = dataset_name(self.data, self.recipe) if is_benchmark(self.data) else OWN
        settled = {
            **{name: int(count) for name, count in counts.items()},
            "data": str(self.data),
            "recipe": replace(self.recipe, dataset=own),
            "space": {name: _values(name, values) for name, values in self.space.items()},
        }
        for name, value in settled.items():  # as JSON keeps them
            object.__setattr__(self, name, value)
        for name, values in self.space.items():
            if name == "dataset":
                raise ConfigError(f"{name}: cannot be searched, a search is on one; leave it out")
            if name in ALIKE:
                raise ConfigError(
                    f"{name}: cannot be searched, all candidates share it so that their scores "
                    f"compare; state it once, as in --set {name}={next(iter(values), 'VALUE')}"
                )
            if not values:
                raise ConfigError(f"{name}: the range holds no value")
            for value in values:  # an impossible value is said before anything is trained
                self.recipe.change(f"{name}={value}")

    def candidates(self) -> list[tuple[str, ...]]:
        """Different settings drawn from ``seed``: ``samples`` of them, or all if these are
        fewer."""
        names, lists = list(self.space), list(self.space.values())
        total = math.prod(len(values) for values in lists)
        drawn = random.Random(self.seed).sample(range(total), min(self.samples, total))
        found = []
        for number in drawn:
            settings = []
            for name, values in zip(names, lists):
                number, place = divmod(number, len(values))
                settings.append(f"{name}={values[place]}")
            found.append(tuple(settings))
        return found

    def rungs(self) -> list[tuple[int, int]]:
        """(drawn candidates, epochs) of each rung.

        >>> from gradformer.training.recipe import load_recipe
        >>> Plan("own", load_recipe("own"), {"model.width": [32, 48, 64]}).rungs()
        [(3, 20), (1, 60)]
        """
        count, epochs = len(self.candidates()), self.recipe.train.epochs
        if self.method == "random":
            return [(count, epochs)]
        counts = [count]
        while counts[-1] > self.finalists:
            counts.append(max(counts[-1] // REDUCTION, self.finalists))
        last = len(counts) - 1
        return [
            (number, max(round(epochs / REDUCTION ** (last - rung)), 1))
            for rung, number in enumerate(counts)
        ]

    def to_dict(self) -> dict[str, Any]:
        """As JSON can keep it: options are read from words as well as from numbers."""
        return vars(self) | {
            "recipe": plain(self.recipe.to_dict(), words=True),
            "space": {name: plain(list(values), words=True) for name, values in self.space.items()},
            "reading": dict(self.reading or {}),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Plan:
        first = {"steady": 1, "against_recipe": False}  # plans of earlier versions lack these
        return cls(**{**first, **values, "recipe": Recipe.from_dict(values["recipe"])})


def _values(name: str, values: Any) -> list[Any]:
    """The values of a range, which may be numbers of NumPy."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ConfigError(f"{name}: got {values!r}, expected a list of the values to try")
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def load_plan(folder: str | Path) -> Plan:
    """The plan of a search that was begun."""
    path = Path(folder) / PLAN
    if not os.path.isfile(path):
        raise InputError(f"{folder}: not a search (there is no plan.json)")
    with reading(path):
        return Plan.from_dict(read_json(path))
