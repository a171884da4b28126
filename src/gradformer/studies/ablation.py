"""Table 4: without the local module, without the positional encoding."""

from __future__ import annotations

from collections.abc import Sequence

from gradformer.studies.study import Cell, Study

VARIANTS = {
    "": (),
    " without local module": ("model.local=none",),
    " without PE": ("model.pe=none",),
}


def cells(datasets: Sequence[str], models: Sequence[str]) -> list[Cell]:
    return [
        Cell(dataset, f"{model}{variant}", dataset, model, settings=settings, group=model)
        for dataset in datasets
        for model in models
        for variant, settings in VARIANTS.items()
    ]


STUDY = Study(
    name="ablation",
    title="Table 4: without local module, without PE",
    text="On PATTERN the paper's recipe of Gradformer has no PE, so that two rows are one run. The "
    "paper's full models differ from its Table 1 on PATTERN and CLUSTER; it does not say how. Of "
    "its two λ for NCI1 these runs have the first, 0.6. Differences are to the whole model.",
    datasets=("nci1", "pattern", "cluster", "zinc"),
    models=("gradformer", "graphgps"),
    cells=cells,
)
