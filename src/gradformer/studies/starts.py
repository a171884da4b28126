"""Figure 4: decay over the distance, and the start points of the heads over the epochs."""

from __future__ import annotations

from collections.abc import Sequence

from gradformer.report.curves import decay_section
from gradformer.report.markup import Markup
from gradformer.studies.figures import histories
from gradformer.studies.study import Cell, Measured, Study


def cells(datasets: Sequence[str], models: Sequence[str]) -> list[Cell]:
    """The runs of Table 1: every epoch of a run keeps its start points."""
    return [Cell(dataset, "gradformer", dataset, preset="paper") for dataset in datasets]


def draw(measured: Sequence[Measured]) -> Markup | None:
    shown = histories(measured)
    return decay_section(shown) if shown else None


STUDY = Study(
    name="starts",
    title="Figure 4: start points",
    text="The paper draws this as a figure and prints no numbers. The run is that of Table 1.",
    datasets=("zinc",),
    models=("gradformer",),
    cells=cells,
    figure=draw,
)
