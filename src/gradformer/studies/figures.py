"""Drawings of the studies, from what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from gradformer.report.history import History
from gradformer.report.markup import Markup
from gradformer.report.plots import Axes, Line, line_plot
from gradformer.report.sheet import Panel, sheet
from gradformer.studies.study import Measured, by_column
from gradformer.studies.tables import shown
from gradformer.training.metrics import metric_name


def in_rows(title: str, panels: Sequence[Panel]) -> Markup | None:
    """Panels side by side, two in a row; None if there are none."""
    rows = [panels[first : first + 2] for first in range(0, len(panels), 2)]
    return sheet(title, rows) if rows else None


def curves(
    measured: Sequence[Measured], x: str, x_range: tuple[float, float] | None = None
) -> Markup | None:
    """For every column the score over ``x``, a line for each curve, ± one standard deviation."""
    panels = []
    for column, members in by_column(measured).items():
        lines: dict[str, list[tuple[float, float, float]]] = {}
        for one in members:
            if one.cell.point is not None:
                name, at = one.cell.point
                factor, _ = shown(one.known)
                test = one.known["test"]
                point = (at, factor * test["mean"], factor * (test["std"] or 0.0))
                lines.setdefault(name, []).append(point)
        drawn = [_line(number, name, points) for number, (name, points) in enumerate(lines.items())]
        if drawn:
            axes = Axes(x, score_name(members[0]), x_range)
            plot = line_plot(f"Score over {x} on {column}", drawn, axes)
            alone = f", {drawn[0].name}" if len(drawn) == 1 else ""  # which has no legend
            panels.append(Panel(column + alone, [plot]))
    return in_rows(f"Score over {x}", panels)


def score_name(one: Measured) -> str:
    """What stands at the axis of a score."""
    unit = " ↓" if one.known["lower_is_better"] else ", % ↑"
    return f"test {metric_name(one.known['metric'])}{unit}"


def epoch_seconds(history: History) -> float | None:
    """Median time of an epoch of the first trial; the first epoch, which also compiles, is left
    out where there are more."""
    lines = next(iter(history.epochs.values()), [])
    seconds = [line["seconds"] for line in lines]
    return median(seconds[1:] or seconds) if seconds else None


def _line(number: int, name: str, points: list[tuple[float, float, float]]) -> Line:
    points = sorted(points)
    x, y, std = zip(*points)
    low, high = [m - s for _, m, s in points], [m + s for _, m, s in points]
    banded = any(std)
    return Line(name, x, y, number, low if banded else [], high if banded else [], dots=True)
