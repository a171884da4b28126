"""Table 3: a small share of the training part."""

from __future__ import annotations

from collections.abc import Sequence

from gradformer.studies.study import Cell, Study

SHARES = (5, 10, 25, 100)


def cells(datasets: Sequence[str], models: Sequence[str]) -> list[Cell]:
    return [
        Cell(f"{name}, {share} %", model, name, model, settings=(f"data.fraction={share / 100}",))
        for name in datasets
        for share in SHARES
        for model in models
    ]


STUDY = Study(
    name="low-resource",
    title="Table 3: few labels",
    text="The paper's share of the dataset is read as a share of the training part; validation and "
    "test parts stay whole. For one seed a smaller share lies inside a larger one. Of the "
    "paper's two λ for NCI1 these runs have the first, 0.6.",
    datasets=("nci1", "zinc"),
    models=("gradformer", "graphgps"),
    cells=cells,
)
