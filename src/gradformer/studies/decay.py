"""How fast attention decays: λ from 0 to 1, exponential and linear."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gradformer.studies.differences import verdict
from gradformer.studies.figures import curves
from gradformer.studies.study import Cell, Measured, Rows, Study, by_column
from gradformer.training.recipe import load_recipe, presets

RATES = tuple(k / 10 for k in range(10, -1, -1))  # first none, to which the others are compared


def cells(datasets: Sequence[str], models: Sequence[str]) -> list[Cell]:
    """The linear decay loses 1 − λ a hop, so that one hop past the start both shapes are at λ."""
    found = []
    for dataset in datasets:
        start = 0.0
        if "paper" in presets(dataset):  # without it nothing is trained
            config = load_recipe(dataset, preset="paper").model.config
            start = config.start  # type: ignore[attr-defined]
        for rate in RATES:
            shapes = {shape: [f"model.decay={rate}"] for shape in ("exponential", "linear")}
            if rate < 1:
                end = start + 1 / (1 - rate)
                shapes["linear"] = ["model.decay_shape=linear", f"model.decay_end={end:.6g}"]
            found += [
                Cell(
                    dataset,
                    f"{shape}, λ = {rate}",
                    dataset,
                    preset="paper",
                    settings=tuple(settings),
                    point=(shape, rate),
                )
                for shape, settings in shapes.items()
            ]
    return found


def beside_none(measured: Sequence[Measured]) -> Rows:
    """On each dataset, how many decays are clearly better and worse than none."""
    rows = []
    for column, members in by_column(measured).items():
        rates = [one.cell.point[1] for one in members if one.cell.point]
        none = [one for one, rate in zip(members, rates) if rate == 1]
        signs = [verdict(none[0], one) for one, rate in zip(members, rates) if none and rate < 1]
        if signs:
            rows.append([column, *(str(signs.count(sign)) for sign in (1, 0, -1))])
    return ["data", "clearly better", "not clear", "clearly worse"], rows


STUDY = Study(
    name="decay",
    title="Figure 6: rate and shape of the decay",
    text="The paper draws this as a figure and prints no numbers. A linear decay of rate λ is read "
    "as one that falls by 1 − λ a hop (its end point is then learned); at λ = 1 nothing decays, "
    "and both shapes are one run, to which the others are compared. In the figure a dot is the "
    "mean over seeds, the band (of a dot alone the line) ± one standard deviation.",
    datasets=("nci1", "proteins", "collab"),
    models=("gradformer",),
    cells=cells,
    figure=partial(curves, x="λ", x_range=(-0.02, 1.02)),
    more=("How many rates and shapes are clear of no decay, λ = 1", beside_none),
)
