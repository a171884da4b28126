"""Figure 4: decay over the distance, and the start points of the heads over the epochs."""

from __future__ import annotations

from collections.abc import Sequence

from gradformer.report.curves import heads_of
from gradformer.report.markup import Markup
from gradformer.report.sheet import Panel, sheet
from gradformer.studies.study import Cell, Measured, Study


def cells(datasets: Sequence[str], models: Sequence[str]) -> list[Cell]:
    """The runs of Table 1: every epoch of a run keeps its start points."""
    return [Cell(dataset, "gradformer", dataset, preset="paper") for dataset in datasets]


def draw(measured: Sequence[Measured]) -> Markup | None:
    """A row for each dataset and set of heads of the first trial: decay, and start points."""
    rows = []
    for one in measured:
        if one.history is not None:
            for where, pictures in heads_of(one.history, next(iter(one.history.epochs), 0)):
                name = f"{one.cell.column}, {where}"
                rows.append([Panel(name, [picture]) for picture in pictures])
    return sheet("Decay and start points", rows) if rows else None


STUDY = Study(
    name="starts",
    title="Figure 4: start points",
    text="The paper draws this as a figure and prints no numbers. The run is that of Table 1, the "
    "decay that of the selected epoch. A start point below 0 weakens all scores, also that of a "
    "node with itself.",
    datasets=("zinc",),
    models=("gradformer",),
    cells=cells,
    figure=draw,
)
