"""What the decay falls with: hops, curvature distance, or feature similarity."""

from __future__ import annotations

from collections.abc import Sequence

from gradformer.studies.study import Cell, Study

INDICES = {
    "shortest path": ("model.index=hops",),
    "curvature": ("model.index=curvature",),
    # 1 − cosine never reaches a start point in hops: the decay begins at once
    "feature similarity": ("model.index=similarity", "model.start=0"),
}


def cells(datasets: Sequence[str], models: Sequence[str]) -> list[Cell]:
    return [
        Cell(dataset, name, dataset, preset="paper", settings=settings)
        for dataset in datasets
        for name, settings in INDICES.items()
    ]


STUDY = Study(
    name="index",
    title="Figure 5: the index of structure",
    text="The paper draws this as a figure and prints no numbers, nor the datasets in its text. "
    "Feature similarity starts to decay at 0, for it never exceeds the hops of the recipe.",
    datasets=("nci1", "proteins", "mutag"),
    models=("gradformer",),
    cells=cells,
)
