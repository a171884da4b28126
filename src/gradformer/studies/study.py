"""A study: a table or figure of the paper as a list of cells, each of which is trained or computed.

``<root>/<study>/plan.json`` what was asked for · ``<root>/<study>/<cell>/`` the run of a cell ·
``<root>/<study>/README.md``, ``index.html`` and ``<column>.html`` the pages · ``figure.svg``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gradformer.errors import ConfigError, suggest
from gradformer.grouping import grouped
from gradformer.model.base import all_models
from gradformer.model.own import HINT
from gradformer.recipes import recipe_names
from gradformer.report.history import History
from gradformer.report.markup import Markup
from gradformer.studies.rivals import RIVALS
from gradformer.training.options import flat, setting
from gradformer.training.origins import OWN
from gradformer.training.recipe import Recipe, load_recipe, presets

PRESETS = ("authors", "paper", "tuned")


@dataclass(frozen=True)
class Cell:
    """One number of a table, or one point of a figure.

    Attributes:
        column, row: where it stands; cells of a column are on the same data and are compared.
        dataset: a recipe of the package.
        model: a model, or one of :data:`RIVALS`, which are not trained by recipes.
        preset, settings: what is changed in the recipe.
        trials: number of seeds, where the study fixes it.
        point: (curve, x) in a figure.
        cost: whether only its time and memory count, not its score.
        group: rows of a column with the same group are compared with the first of them.
    """

    column: str
    row: str
    dataset: str
    model: str = "gradformer"
    preset: str | None = None
    settings: tuple[str, ...] = ()
    trials: int | None = None
    point: tuple[str, float] | None = None
    cost: bool = False
    group: str = ""

    @property
    def name(self) -> str:
        """The name of its folder.

        >>> Cell("nci1, 5 %", "gradformer (paper)", "nci1").name
        'nci1-5-gradformer-paper'
        """
        return slug(f"{self.column} {self.row}")

    @property
    def printed(self) -> str:
        """The row of the paper's table that stands beside it, if there is one.

        >>> Cell("nci1", "gradformer (paper)", "nci1", preset="paper").printed
        'gradformer'
        """
        return self.row.removesuffix(f" ({self.preset})")

    @property
    def without_preset(self) -> bool:
        """Whether the recipe has no such preset, so that there is nothing to train."""
        return self.preset is not None and self.preset not in presets(self.dataset)

    def recipe(self, trials: int | None = None, settings: Iterable[str] = ()) -> Recipe:
        """What is trained; ``settings`` go over those of the cell."""
        model = None if self.model in RIVALS else self.model
        changes = [*self.settings, *settings]
        count = self.trials or trials
        changes += [] if count is None else [f"trials={count}"]
        return _recipe(self.dataset, model=model, preset=self.preset, settings=tuple(changes))

    def misfit(self, plan: Plan) -> str:
        """Why there is nothing to train by a plan; empty if there is."""
        if self.without_preset:
            return f"the recipe has no preset {self.preset}"
        try:
            self.recipe(plan.trials, plan.settings)
        except ConfigError as error:
            return str(error)
        return ""


_recipe = lru_cache(maxsize=4096)(load_recipe)  # pages ask for each again and again


def _name_set(text: str) -> str:
    """The whole name of what ``a.b=c`` sets."""
    (name,) = flat(setting(text))
    return name


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9._]+", "-", text.lower()).strip("-")


@dataclass(frozen=True)
class Measured:
    """A cell and what is known of it: ``outcome`` as in ``results.json``, None if nothing is.

    ``history`` is the run behind it, None for the rivals; ``missing`` says what is not there yet.
    """

    cell: Cell
    outcome: dict[str, Any] | None = None
    history: History | None = None
    missing: str = ""
    memory: int | None = None

    @property
    def known(self) -> dict[str, Any]:
        """The outcome, of a cell that has one."""
        assert self.outcome is not None
        return self.outcome


def by_column(measured: Sequence[Measured]) -> dict[str, list[Measured]]:
    """What has a result, column by column."""
    return grouped((one.cell.column, one) for one in measured if one.outcome is not None)


Rows = tuple[list[str], list[list[str]]]
"""The head and the rows of a table."""


@dataclass(frozen=True)
class Study:
    """A table or figure of the paper.

    Attributes:
        name, title: what the user calls it, and what it is.
        text: how the paper is read where it leaves something open.
        datasets, models: what it is made of unless the user says otherwise.
        cells: (datasets, models) → cells, in the order in which they are trained.
        figure: the drawing as an SVG file, from what was measured; None if nothing can be drawn.
        more: a further table, and what it is headed by.
        printed: the study beside which the paper's numbers stand, if not this one.
    """

    name: str
    title: str
    text: str
    datasets: tuple[str, ...]
    models: tuple[str, ...]
    cells: Callable[[Sequence[str], Sequence[str]], list[Cell]]
    figure: Callable[[Sequence[Measured]], Markup | None] = lambda measured: None
    more: tuple[str, Callable[[Sequence[Measured]], Rows]] = ("", lambda measured: ([], []))
    printed: str = ""


@dataclass(frozen=True)
class Plan:
    """What was asked for: kept beside the cells, so that a later command continues it.

    ``trials`` are the seeds of cells that are not begun; ``presets`` are those to train, or all if
    it is empty; cells without a preset have the preset ``none`` there.
    """

    datasets: tuple[str, ...]
    models: tuple[str, ...]
    trials: int | None = None
    settings: tuple[str, ...] = ()
    presets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for option, names, known, hint in (
            ("--dataset", self.datasets, [n for n in recipe_names() if n != OWN], ""),
            ("--model", self.models, [*all_models(), *RIVALS], f" ({HINT})"),
        ):
            for name in names:
                if name not in known:
                    raise ConfigError(f"{option} {name}: unknown; {suggest(name, known)}{hint}")

    def with_more(self, other: Plan) -> Plan:
        """Both together; ``other`` is newer: its settings hold, and its seeds if it has any."""
        return Plan(
            tuple(dict.fromkeys([*self.datasets, *other.datasets])),
            tuple(dict.fromkeys([*self.models, *other.models])),
            other.trials or self.trials,
            other.settings,
            tuple(dict.fromkeys([*self.presets, *other.presets])) if self.presets else (),
        )


def chosen_cells(
    study: Study,
    plan: Plan,
    models: Iterable[str] = (),
    presets: Iterable[str] = (),
    settings: Iterable[str] = (),
) -> list[Cell]:
    """The cells to train by a plan.

    Raises, before anything is written, if no cell has one of the ``models`` or ``presets`` that
    were asked for, if ``settings`` change what a cell is named by, or if they fit no cell.
    """
    cells = study.cells(plan.datasets, plan.models)
    own = {"dataset", "model.name"}
    own |= {_name_set(text) for cell in cells if not cell.cost for text in cell.settings}
    for text in settings:
        if (name := _name_set(text)) in own:
            raise ConfigError(
                f"--set {text}: the cells of {study.name} are named by their own {name}; leave "
                "it out (--dataset and --model choose cells)"
            )
    for option, names, known in (
        ("--model", models, {cell.model for cell in cells}),
        ("--preset", presets, {cell.preset or "none" for cell in cells}),
    ):
        for name in names:
            if name not in known:
                where = f"{study.name} on {' / '.join(plan.datasets)}"
                raise ConfigError(
                    f"{option} {name}: no cell of {where} has it; {suggest(name, known)}"
                )
    chosen = [c for c in cells if not plan.presets or (c.preset or "none") in plan.presets]
    if not chosen:
        known = {cell.preset or "none" for cell in cells}
        raise ConfigError(
            f"--preset {' / '.join(plan.presets)} was asked for before, and no cell here has it; "
            f"say --preset {' or --preset '.join(sorted(known))} now"
        )
    if all(cell.misfit(plan) for cell in chosen):
        first = chosen[0]
        raise ConfigError(f"{first.row} on {first.column}: {first.misfit(plan)}")
    return chosen
