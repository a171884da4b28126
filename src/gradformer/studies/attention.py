"""Figure 1: where attention goes in four kinds of graph transformer."""

from __future__ import annotations

from collections.abc import Sequence

from gradformer.report.markup import Markup
from gradformer.report.patterns import patterns_section
from gradformer.studies.figures import histories
from gradformer.studies.study import Cell, Measured, Study

PLAIN = ("model.local=none", "model.pe=none", "model.decay=1")
KINDS = {
    "plain": PLAIN,
    "with PE": ("model.local=none", "model.decay=1"),
    "with bias": (*PLAIN, "model.profile=true"),
    "with decay": ("model.local=none", "model.pe=none"),
}


def cells(datasets: Sequence[str], models: Sequence[str]) -> list[Cell]:
    return [
        Cell(dataset, name, dataset, preset="paper", settings=settings, trials=1)
        for dataset in datasets
        for name, settings in KINDS.items()
    ]


def draw(measured: Sequence[Measured]) -> Markup | None:
    shown = histories(measured)
    return patterns_section(shown) if shown else None


STUDY = Study(
    name="attention",
    title="Figure 1: attention patterns",
    text="Four models that differ only in how attention learns of the graph: not at all, from an "
    "encoding of the nodes, from a learned bias over distances, from the decay. One seed, no local "
    "module. The graphs are from the test part; those of the paper are not named.",
    datasets=("molhiv",),
    models=("gradformer",),
    cells=cells,
    figure=draw,
)
