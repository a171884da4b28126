"""Table 2: the same models with more and more layers."""

from __future__ import annotations

from collections.abc import Sequence

from gradformer.model.gradformer import GradformerConfig
from gradformer.studies.study import Cell, Study
from gradformer.training.recipe import load_recipe

SHALLOW, DEEP = (4, 12, 24), (12, 24, 48)
DEPTHS = {"cluster": DEEP, "pattern": DEEP}


def cells(datasets: Sequence[str], models: Sequence[str]) -> list[Cell]:
    return [
        cell
        for dataset in datasets
        for layers in DEPTHS.get(dataset, SHALLOW)
        for model in models
        for cell in _of(dataset, layers, model)
    ]


def _of(dataset: str, layers: int, model: str) -> list[Cell]:
    """As printed; and with GraphGPS's readout, where Gradformer's is a single linear map."""
    column, depth = f"{dataset}, {layers} layers", f"model.layers={layers}"
    found = [Cell(column, model, dataset, model, settings=(depth,))]
    config = load_recipe(dataset).model.config
    if model == "gradformer" and isinstance(config, GradformerConfig) and config.head == "linear":
        settings = (depth, "model.head=mlp")
        found.append(Cell(column, "gradformer, MLP readout", dataset, settings=settings))
    return found


STUDY = Study(
    name="deep",
    title="Table 2: depth",
    text="Everything but the number of layers is as in the paper's recipes of Table 1; of the "
    "two λ for NCI1 these runs have the first, 0.6. There Gradformer reads the sum over nodes by "
    "one linear map, so that one step of Adam at rate 1e-3 can change a logit by more than 1; from "
    "12 layers on its training loss stays at 0.6. GraphGPS reads it by an MLP: Gradformer with "
    "that readout stands beside.",
    datasets=("nci1", "cluster", "pattern"),
    models=("gradformer", "graphgps"),
    cells=cells,
)
