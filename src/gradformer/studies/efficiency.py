"""Time and memory of training against the score."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from gradformer.report.history import History
from gradformer.report.markup import Markup
from gradformer.report.plots import Axes, dot_plot
from gradformer.report.scales import significant
from gradformer.report.sheet import Panel
from gradformer.studies.figures import in_rows, score_name
from gradformer.studies.study import Cell, Measured, Rows, Study, by_column
from gradformer.studies.tables import shown
from gradformer.training.recipe import load_recipe

EPOCHS = 4
COSTS = ("seconds of an epoch", "peak memory, GiB")


def cells(datasets: Sequence[str], models: Sequence[str]) -> list[Cell]:
    """For every model a few epochs of one seed alone on the device, then the score."""
    found = []
    for dataset in datasets:
        batch = f"train.batch_size={load_recipe(dataset).train.batch_size}"  # the same for all
        short = (f"train.epochs={EPOCHS}", "train.warmup_epochs=0", batch)
        for model in models:
            name = f"{dataset}, cost"
            cost = Cell(name, model, dataset, model, settings=short, trials=1, cost=True)
            found += [cost, Cell(dataset, model, dataset, model)]
    return found


def costs(measured: Sequence[Measured]) -> dict[tuple[str, str], tuple[tuple[float, float], str]]:
    """(dataset, model) → the two :data:`COSTS`, and the device they were measured on."""
    found = {}
    for one in measured:
        if one.cell.cost and one.history is not None and one.memory is not None:
            seconds = epoch_seconds(one.history)
            if seconds is not None:
                device = one.history.header["environment"]["device_name"]
                found[one.cell.dataset, one.cell.model] = (seconds, one.memory / 2**30), device
    return found


def epoch_seconds(history: History) -> float | None:
    """Median time of an epoch of the first trial; the first epoch, which also compiles, is left
    out where there are more."""
    lines = next(iter(history.epochs.values()), [])
    seconds = [line["seconds"] for line in lines]
    return median(seconds[1:] or seconds) if seconds else None


def cost_table(measured: Sequence[Measured]) -> Rows:
    return ["data", "model", *COSTS, "device"], [
        [*names, *map(significant, spent), device]
        for names, (spent, device) in costs(measured).items()
    ]


def draw(measured: Sequence[Measured]) -> Markup | None:
    """Score over seconds of an epoch, and over peak memory; a dot for each model. Costs begin at 0:
    what lies twice as far costs twice as much."""
    panels = []
    spent = {names: cost for names, (cost, _) in costs(measured).items()}
    for column, members in by_column(measured).items():
        known = [one for one in members if (column, one.cell.model) in spent]
        for place, name in enumerate(COSTS):
            dots = []
            for one in known:
                at = spent[column, one.cell.model][place]
                score = shown(one.known)[0] * one.known["test"]["mean"]
                dots.append((one.cell.row, at, score))
            if dots:
                most = max(at for _, at, _ in dots)
                axes = Axes(name, score_name(known[0]), (0.0, 1.04 * most))
                plot = dot_plot(f"Score over {name} on {column}", dots, axes)
                panels.append(Panel(column, [plot]))
    return in_rows("Cost and score", panels)


STUDY = Study(
    name="efficiency",
    title="Figure 7: cost and score",
    text="The paper draws this as a figure and prints no numbers. Cost is that of one seed alone "
    "on the device, for all models with the batch size of the dataset's recipe: the median time "
    "of an epoch with its validation, and the peak of memory (of the whole process where there is "
    "no GPU). Of the paper's two λ for NCI1 its run has the first, 0.6.",
    datasets=("zinc", "cluster"),
    models=("gradformer", "graphgps", "graphormer", "san"),
    cells=cells,
    figure=draw,
    more=("Cost", cost_table),
)
