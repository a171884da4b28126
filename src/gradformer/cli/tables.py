"""How numbers of a run look in a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

METRIC_NAMES = {
    "accuracy": "accuracy",
    "mean_recall": "weighted accuracy",
    "mae": "MAE",
    "rmse": "RMSE",
    "auroc": "AUROC",
    "average_precision": "average precision",
}


def metric_name(metric: str, lower_is_better: bool = False) -> str:
    return METRIC_NAMES.get(metric, metric) + (" ↓" if lower_is_better else " ↑")


def spread(values: list[float | None]) -> str:
    """Mean ± standard deviation of the sample.

    >>> spread([0.5, 0.7]), spread([0.5]), spread([])
    ('0.6000 ± 0.1414', '0.5000', '–')
    """
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    mean = sum(known) / len(known)
    if len(known) == 1:
        return f"{mean:.4f}"
    std = (sum((value - mean) ** 2 for value in known) / (len(known) - 1)) ** 0.5
    return f"{mean:.4f} ± {std:.4f}"


def print_results(run: Any) -> None:
    """The result table of a finished run."""
    from gradformer.training.metrics import LOWER_IS_BETTER

    results = run.results
    good = [trial for trial in results["trials"] if trial["test"] is not None]
    table = Table()
    for column in ("metric", "validation", "test"):
        table.add_column(column, justify="left" if column == "metric" else "right")
    for name in good[0]["test"] if good else ():
        style = "bold" if name == results["metric"] else ""
        table.add_row(
            metric_name(name, name in LOWER_IS_BETTER),
            spread([trial["val"][name] for trial in good]),
            spread([trial["test"][name] for trial in good]),
            style=style,
        )
    count = f"{len(good)} trial" + ("" if len(good) == 1 else "s")
    seconds = sum(line["seconds"] for line in run.record if line["kind"] == "epoch")
    console = Console()
    console.print(
        f"[bold]{run.recipe.model.name}[/] on [bold]{run.recipe.dataset}[/]: {count}, "
        f"{results['trials'][0]['parameters']:,} parameters, {seconds:.0f} s of training",
        highlight=False,
    )
    console.print(table)
    console.print("test at the epoch of the best validation", style="dim")
    for trial in results["diverged"]:
        Console(stderr=True).print(f"[yellow]warning:[/] trial {trial} diverged: it counts nowhere")
