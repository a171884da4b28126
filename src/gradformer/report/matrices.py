"""Coloured matrices as SVG: weights of all pairs, and classes as they were confused."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gradformer.report.markup import Markup, join, tag
from gradformer.report.plots import BOTTOM, RIGHT, WIDTH, Picture, place, shortened, text

LEVELS = 10


def matrix_cells(share: NDArray[np.float64], x: float, y: float, size: float) -> Markup:
    """A matrix of shares in [0, 1] as squares of ``size``, darker for more; 0 is left blank."""
    level = np.ceil(np.clip(share, 0.0, 1.0) * LEVELS - 1e-9).astype(int)
    pieces: dict[int, list[str]] = {}
    for row, levels in enumerate(level):
        edges = np.flatnonzero(np.diff(levels, prepend=-1, append=-1))
        for first, last in pairwise(edges):
            if levels[first]:
                left, right = place(x + first * size), place(x + last * size)
                top, bottom = place(y + row * size), place(y + (row + 1) * size)
                shape = f"M{left} {top}H{right}V{bottom}H{left}z"
                pieces.setdefault(int(levels[first]), []).append(shape)
    return join(tag("path", d="".join(d), class_=f"level l{k}") for k, d in sorted(pieces.items()))


def confusion_plot(title: str, counts: NDArray[np.float64], names: Sequence[str]) -> Picture:
    """Counts [true, predicted] as a matrix, coloured by the share of each true class."""
    classes = len(counts)
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-9)
    left, top = 78.0, 14.0
    size = (WIDTH - left - RIGHT) / max(classes, 3)
    right, bottom = left + classes * size, top + classes * size
    parts = [matrix_cells(share, left, top, size)]
    for k, name in enumerate(names):
        middle = (k + 0.5) * size
        parts.append(text(shortened(name, 11), left - 6, top + middle + 4, "end"))
        if classes <= 12:
            below = shortened(name, max(2, int(size / 7)))
            parts.append(text(below, left + middle, bottom + 16, "middle"))
    if classes <= 8:
        has_room = size > 40  # for the counts, below the shares
        for i, j in np.ndindex(classes, classes):
            x, y = left + (j + 0.5) * size, top + (i + 0.5) * size
            shade = "on-dark" if share[i, j] > 0.6 else "value"
            parts.append(
                text(f"{100 * share[i, j]:.0f} %", x, y if has_room else y + 4, "middle", shade)
            )
            if has_room:
                parts.append(text(f"{counts[i, j]:,.0f}", x, y + 15, "middle", f"small {shade}"))
    border = f"M{left} {top}H{place(right)}V{place(bottom)}H{left}Z"
    parts.append(tag("path", d=border, class_="axis"))
    parts.append(text("predicted", (left + right) / 2, bottom + 34, "middle", "label"))
    turn = f"translate(14 {place((top + bottom) / 2)}) rotate(-90)"
    parts.append(tag("text", "true", transform=turn, text_anchor="middle", class_="label"))
    return Picture(title, *parts, height=bottom + BOTTOM)
