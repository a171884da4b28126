"""How fast attention decays: λ from 0 to 1, exponential and linear."""

from __future__ import annotations

from collections.abc import Sequence

from gradformer.grouping import grouped
from gradformer.report.markup import Markup
from gradformer.report.plots import Axes, Line, line_plot
from gradformer.report.sheet import Panel
from gradformer.studies.differences import verdict
from gradformer.studies.figures import in_rows, score_name
from gradformer.studies.study import Cell, Measured, Rows, Study, by_column
from gradformer.studies.tables import shown
from gradformer.training.recipe import load_recipe, presets

RATES = tuple(k / 10 for k in range(10, -1, -1))  # λ = 1 first: the others are compared to no decay


def cells(datasets: Sequence[str], models: Sequence[str]) -> list[Cell]:
    """The linear decay loses 1 − λ a hop, so that one hop past the start both shapes are at λ."""
    found = []
    for dataset in datasets:
        start = 0.0
        if "paper" in presets(dataset):  # else nothing is trained
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


def draw(measured: Sequence[Measured]) -> Markup | None:
    """For every dataset the score over λ, a line for each shape, ± one standard deviation."""
    panels = []
    for column, members in by_column(measured).items():
        shapes = grouped((one.cell.point[0], one) for one in members if one.cell.point)
        lines = [_line(number, *named) for number, named in enumerate(shapes.items())]
        axes = Axes("λ", score_name(members[0]), (-0.02, 1.02))
        plot = line_plot(f"Score over λ on {column}", lines, axes)
        alone = f", {lines[0].name}" if len(lines) == 1 else ""  # one line has no legend
        panels.append(Panel(column + alone, [plot]))
    return in_rows("Score over λ", panels)


def _line(number: int, name: str, members: Sequence[Measured]) -> Line:
    points = []
    for one in members:
        assert one.cell.point is not None
        factor, test = shown(one.known)[0], one.known["test"]
        points.append((one.cell.point[1], factor * test["mean"], factor * (test["std"] or 0.0)))
    x, y, std = zip(*sorted(points))
    low, high = ([m + sign * s for m, s in zip(y, std)] for sign in (-1, 1))
    banded = any(std)
    return Line(name, x, y, number, low if banded else [], high if banded else [], dots=True)


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
    figure=draw,
    more=("How many rates and shapes are clear of no decay, λ = 1", beside_none),
)
