"""Small plots as SVG: lines with bands, and points.

Colours are CSS classes, so that a page decides them for light, dark and paper. A drawing is about
as wide as a phone in its own unit: letters keep their size on every screen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gradformer.report.markup import Content, Markup, join, tag
from gradformer.report.scales import Scale, fit_scale, tick_labels, wants_logarithm

WIDTH, HEIGHT = 400.0, 250.0
LEFT, RIGHT, TOP, BOTTOM = 54.0, 12.0, 28.0, 40.0
COLOURS = 4
"""As many as differ for every kind of colour blindness and show on the page."""
LETTER, LEGEND_LINE = 6.4, 17.0
"""Width of a letter of the legend, taken as equal, and height of its lines."""


class Picture(Markup):
    """An SVG element; ``inner`` are its children, to be set into a larger drawing."""

    __slots__ = ("height", "inner", "width")
    inner: Markup
    width: float
    height: float

    def __new__(
        cls, title: str, *parts: Content, width: float = WIDTH, height: float = HEIGHT
    ) -> Picture:
        inner = join([tag("title", title), *parts])
        box = f"0 0 {place(width)} {place(height)}"
        self = super().__new__(cls, tag("svg", inner, viewBox=box, role="img", class_="plot"))
        self.inner, self.width, self.height = inner, width, height
        return self


@dataclass(frozen=True)
class Line:
    """A curve; ``low`` and ``high`` are the edges of its band (of one point the ends of a stroke),
    ``faint`` other curves behind it.

    ``colour`` numbers the palette; the fifth curve begins it again with dashes. ``dash`` tells
    curves apart that may lie on each other.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: int = 0
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    faint: Sequence[tuple[Sequence[float], Sequence[float]]] = ()
    marks: Sequence[tuple[float, float]] = ()
    dots: bool = False
    dash: int | None = None


@dataclass(frozen=True)
class Axes:
    """What stands at the axes; limits are found from the data unless given."""

    x: str
    y: str
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    whole_x: bool = False
    log_y: bool = False


def line_plot(title: str, lines: Sequence[Line], axes: Axes) -> Picture:
    """Curves over one pair of axes, with a legend if there are several."""
    xs = [v for line in lines for v in line.x]
    ys = [v for line in lines for part in (line.y, line.low, line.high) for v in part]
    ys += [v for line in lines for _, y in line.faint for v in y]
    x_scale = fit_scale(xs, LEFT, WIDTH - RIGHT, given=axes.x_range, margin=0.02)
    log = axes.log_y and wants_logarithm(ys)
    y_scale = fit_scale(ys, HEIGHT - BOTTOM, TOP, given=axes.y_range, margin=0.06, logarithmic=log)
    bands, behind, front = [], [], []
    for line in sorted(lines, key=_dash):  # dashed lines last: others show through their gaps
        style = _style(line.colour)
        if len(line.low) == 1:
            ends = f"M{place(x_scale(line.x[0]))} {place(y_scale(line.low[0]))}"
            reach = f"{ends}V{place(y_scale(line.high[0]))}"
            behind.append(tag("path", d=reach, class_=f"range {style}"))
        elif len(line.low):
            edge = [*zip(line.x, line.high), *reversed([*zip(line.x, line.low)])]
            shape = _path(edge, x_scale, y_scale) + "Z"
            bands.append(tag("path", d=shape, class_=f"band {style}"))
        for x, y in line.faint:
            behind.append(
                tag("path", d=_path([*zip(x, y)], x_scale, y_scale), class_=f"faint {style}")
            )
        points = [*zip(line.x, line.y)]
        front.append(tag("path", d=_path(points, x_scale, y_scale), class_=_stroke(line)))
        if line.dots or len(points) == 1:  # a stroke would not show a single point
            front.append(tag("path", d=_dots(points, x_scale, y_scale), class_=f"dots {style}"))
        if line.marks:
            where = _dots(line.marks, x_scale, y_scale)
            front.append(tag("path", d=where, class_=f"marks {style}"))
    frame = _frame(axes, x_scale, y_scale)
    names, below = _legend(lines) if len(lines) > 1 else ([], 0.0)
    return Picture(title, frame, *bands, *behind, *front, *names, height=HEIGHT + below)


def _legend(lines: Sequence[Line]) -> tuple[list[Markup], float]:
    """Names beside a piece of each line, in as many rows as needed; their height."""
    parts, x, y = [], 8.0, HEIGHT + 10.0
    for line in lines:
        name = shortened(line.name, int((WIDTH - 40.0) / LETTER))
        wide = 30.0 + LETTER * len(name)
        if x > 8.0 and x + wide > WIDTH:
            x, y = 8.0, y + LEGEND_LINE
        key = f"M{place(x + 1)} {place(y)}h22"
        parts.append(tag("path", d=key, class_=f"key {_stroke(line)}"))
        parts.append(text(name, x + 29, y + 4, "start"))
        x += wide + 12.0
    return parts, y + 10.0 - HEIGHT


def dot_plot(title: str, dots: Sequence[tuple[str, float, float]], axes: Axes) -> Picture:
    """Dots (name, x, y) with their names beside them, towards the middle. A name stands below
    others that are in its way, but not below the axis."""
    xs, ys = [dot[1] for dot in dots], [dot[2] for dot in dots]
    x = fit_scale(xs, LEFT, WIDTH - RIGHT, given=axes.x_range, margin=0.06)
    y = fit_scale(ys, HEIGHT - BOTTOM, TOP, given=axes.y_range, margin=0.12)
    dots = sorted(dots, key=lambda dot: y(dot[2]))
    sides = [-1 if x(a) > (LEFT + WIDTH) / 2 else 1 for _, a, _ in dots]
    names: list[tuple[float, float, float]] = []  # left, right and height of each
    for (name, a, b), side in zip(dots, sides):
        left, right = sorted((x(a) + 9 * side, x(a) + side * (LETTER * len(name) + 25)))
        above = [at for low, high, at in names if low < right and left < high]
        names.append((left, right, max([y(b) + 4, *(at + 14 for at in above)])))
    for k in reversed(range(len(names))):
        left, right, height = names[k]
        below = [at for low, high, at in names[k + 1 :] if low < right and left < high]
        names[k] = left, right, min([height, HEIGHT - BOTTOM - 4, *(at - 14 for at in below)])
    parts = [
        text(name, left if side > 0 else right, height, "start" if side > 0 else "end", "label")
        for (name, _, _), side, (left, right, height) in zip(dots, sides, names)
    ]
    points = [(a, b) for _, a, b in dots]
    parts.append(tag("path", d=_dots(points, x, y), class_="marks c0"))
    return Picture(title, _frame(axes, x, y), *parts)


def parity_plot(title: str, truth: NDArray[np.float64], answer: NDArray[np.float64]) -> Picture:
    """Predictions over true values [rows], with the line on which they would be equal."""
    values = [*truth.tolist(), *answer.tolist()]
    side = WIDTH - LEFT - RIGHT
    x_scale = fit_scale(values, LEFT, LEFT + side)
    y_scale = fit_scale(values, TOP + side, TOP)
    axes = Axes("true value", "prediction")
    ends = [(x_scale.low, y_scale.low), (x_scale.high, y_scale.high)]
    return Picture(
        title,
        _frame(axes, x_scale, y_scale),
        tag("path", d=_path(ends, x_scale, y_scale), class_="equal"),
        tag("path", d=_dots([*zip(truth, answer)], x_scale, y_scale), class_="cloud c0"),
        height=TOP + side + BOTTOM,
    )


def strip_plot(title: str, label: str, rows: Sequence[tuple[str, Sequence[float]]]) -> Picture:
    """A row of dots for each name; the stroke is their mean, the line ± one standard deviation."""
    left, step = 152.0, 34.0
    bottom = TOP + step * len(rows)
    x = fit_scale([v for _, values in rows for v in values], left, WIDTH - RIGHT)
    parts = [text(label, 2, TOP - 14, "start", "label")]
    ticks = x.ticks(5)
    for value, words in zip(ticks, tick_labels(ticks)):
        parts.append(tag("path", d=f"M{place(x(value))} {TOP}V{place(bottom)}", class_="gridline"))
        parts.append(text(words, x(value), bottom + 17, "middle"))
    for number, (name, values) in enumerate(rows):
        y = TOP + step * (number + 0.5)
        style = _style(number)
        parts.append(text(shortened(name, 20), left - 8, y + 4, "end", "label"))
        mean, std = float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0
        ends = (place(x(min(max(v, x.low), x.high))) for v in (mean - std, mean + std))
        parts.append(tag("path", d="M{} {y}H{}".format(*ends, y=place(y)), class_=f"range {style}"))
        dots = "".join(f"M{place(x(v))} {place(y)}h0" for v in values)
        parts.append(tag("path", d=dots, class_=f"trial {style}"))
        parts.append(tag("path", d=f"M{place(x(mean))} {place(y - 8)}v16", class_="mean"))
    return Picture(title, *parts, height=bottom + 26)


def _frame(axes: Axes, x: Scale, y: Scale) -> Markup:
    """Grid, ticks and labels."""
    parts = []
    bottom, left = y.first, x.first
    heights = y.ticks()
    for value, words in zip(heights, tick_labels(heights)):
        at = place(y(value))
        parts.append(tag("path", d=f"M{place(left)} {at}H{place(x.last)}", class_="gridline"))
        parts.append(text(words, left - 6, y(value) + 4, "end"))
    widths = x.ticks(6, axes.whole_x)
    for value, words in zip(widths, tick_labels(widths)):
        parts.append(tag("path", d=f"M{place(x(value))} {place(bottom)}v4", class_="axis"))
        parts.append(text(words, x(value), bottom + 17, "middle"))
    parts.append(tag("path", d=f"M{place(left)} {place(bottom)}H{place(x.last)}", class_="axis"))
    parts.append(text(axes.x, (left + x.last) / 2, bottom + 34, "middle", "label"))
    parts.append(text(axes.y, 2, TOP - 14, "start", "label"))
    return join(parts)


def text(words: str, x: float, y: float, anchor: str, style: str | None = None) -> Markup:
    """Words at a place, where their ``anchor`` (start, middle, end) is."""
    return tag("text", words, x=place(x), y=place(y), text_anchor=anchor, class_=style)


def _style(colour: int) -> str:
    return f"c{colour % COLOURS}"


def _dash(line: Line) -> int:
    return min(line.colour // COLOURS, 2) if line.dash is None else line.dash


def _stroke(line: Line) -> str:
    return f"line {_style(line.colour)}" + (f" dash{dash}" if (dash := _dash(line)) else "")


def _path(points: Sequence[tuple[float, float]], x: Scale, y: Scale) -> str:
    """A line through the finite points; a gap where there are none."""
    words, pen_down = [], False
    for a, b in points:
        if not math.isfinite(b):
            pen_down = False
            continue
        words.append(f"{'L' if pen_down else 'M'}{place(x(a))} {place(y(b))}")
        pen_down = True
    return "".join(words)


def _dots(points: Sequence[tuple[float, float]], x: Scale, y: Scale) -> str:
    """Strokes without length: round caps make them dots, in one short path."""
    finite = (p for p in points if math.isfinite(p[1]))
    return "".join(f"M{place(x(a))} {place(y(b))}h0" for a, b in finite)


def shortened(name: str, most: int) -> str:
    """The names of runs on the same data begin alike and differ at the end: both ends stay."""
    end = len(name) - (most - 1) // 2
    return name if len(name) <= most else f"{name[: most // 2]}…{name[end:]}"


def place(value: float) -> str:
    """A coordinate with one decimal."""
    return f"{value:.1f}".removesuffix(".0")
