"""Figure 1: where attention goes in four kinds of graph transformer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradformer.grouping import grouped
from gradformer.report.attention import SEES, Array, Sketch, side_by_side
from gradformer.report.history import History
from gradformer.report.markup import Markup
from gradformer.report.patterns import example_attention
from gradformer.report.sheet import Panel, sheet
from gradformer.studies.study import Cell, Measured, Study
from gradformer.training.files import plain, read_json, replace_file

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
    """A row for each graph: the models side by side, on one scale."""
    begun = [one.history for one in measured if one.history is not None]
    rows = grouped(
        (f"{history.run.recipe.dataset}, graph {graph['name']}", (history.label, *_read(graph)))
        for history in begun
        for graph in kept_patterns(history)
    )
    panels = [
        [
            Panel(label, pictures, [name, *seen.split(", ")])
            for label, pictures, seen in side_by_side(name, row)
        ]
        for name, row in rows.items()
    ]
    return sheet("Attention patterns", panels) if panels else None


def kept_patterns(history: History) -> list[dict[str, Any]]:
    """What the figure is drawn from: for every example graph its drawing and the mean weight of
    each pair over layers and heads.

    Kept in ``patterns.json`` beside the record, for weights and graphs are not kept.
    """
    path = history.run.folder / "patterns.json"
    if not path.is_file():
        found = [
            {
                "name": number,
                "places": drawing.places.tolist(),
                "bonds": drawing.bonds,
                "hops": None if drawing.hops is None else drawing.hops.tolist(),
                "weight": attention.mean_weight.tolist(),
            }
            for (_, number), attention, drawing in example_attention(history)
        ]
        if not found:
            return []
        replace_file(path, json.dumps(plain(found, digits=4)) + "\n")
    return read_json(path)


def _read(graph: dict[str, Any]) -> tuple[Sketch, Array]:
    hops = None if graph["hops"] is None else np.array(graph["hops"], np.float64)
    bonds = [(int(i), int(j)) for i, j in graph["bonds"]]
    return Sketch(np.array(graph["places"]), bonds, hops), np.array(graph["weight"])


STUDY = Study(
    name="attention",
    title="Figure 1: attention patterns",
    text="Four models that differ only in how attention learns of the graph: not at all, from an "
    "encoding of the nodes, from a learned bias over distances, from the decay. One seed, no local "
    "module. The graphs are from the test part; those of the paper are not named. Drawing: the "
    "bluer a node, the more attention it receives; orange links get more than an even share. "
    "Matrix: the weight of every pair, mean over layers and heads, a row for each node that looks. "
    f"{SEES}",
    datasets=("molhiv",),
    models=("gradformer",),
    cells=cells,
    figure=draw,
)
