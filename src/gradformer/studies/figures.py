"""What the figures of several studies have in common."""

from __future__ import annotations

from collections.abc import Sequence

from gradformer.report.markup import Markup
from gradformer.report.sheet import Panel, sheet
from gradformer.studies.study import Measured
from gradformer.training.metrics import metric_name


def in_rows(title: str, panels: Sequence[Panel]) -> Markup | None:
    """Panels side by side, two in a row; None if there are none."""
    rows = [panels[first : first + 2] for first in range(0, len(panels), 2)]
    return sheet(title, rows) if rows else None


def score_name(one: Measured) -> str:
    """What stands at the axis of a score."""
    unit = " ↓" if one.known["lower_is_better"] else ", % ↑"
    return f"test {metric_name(one.known['metric'])}{unit}"
