"""Table 2: the same models with more and more layers."""

from __future__ import annotations

from collections.abc import Sequence

from gradformer.studies.study import Cell, Study

SHALLOW, DEEP = (4, 12, 24), (12, 24, 48)
DEPTHS = {"cluster": DEEP, "pattern": DEEP}


def cells(datasets: Sequence[str], models: Sequence[str]) -> list[Cell]:
    return [
        Cell(
            f"{dataset}, {layers} layers",
            model,
            dataset,
            model,
            settings=(f"model.layers={layers}",),
            printed=model,
        )
        for dataset in datasets
        for layers in DEPTHS.get(dataset, SHALLOW)
        for model in models
    ]


STUDY = Study(
    name="deep",
    title="Table 2: depth",
    text="Everything but the number of layers is as in the paper's recipes of Table 1; of the "
    "two λ for NCI1 these runs have the first, 0.6.",
    datasets=("nci1", "cluster", "pattern"),
    models=("gradformer", "graphgps"),
    cells=cells,
)
