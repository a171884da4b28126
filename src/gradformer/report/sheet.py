"""Several pictures as one SVG file that stands alone: a figure to keep beside a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from gradformer.report.markup import Content, Markup, tag
from gradformer.report.plots import Picture, place

GAP, HEADING, LINE = 20.0, 24.0, 16.0
FONT = 'svg { font-family: system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }\n'


@dataclass(frozen=True)
class Panel:
    """Pictures one below the other, with a name above and lines of text below."""

    name: str
    pictures: Sequence[Picture]
    lines: Sequence[str] = ()

    @property
    def width(self) -> float:
        return max(picture.width for picture in self.pictures)

    @property
    def height(self) -> float:
        return HEADING + sum(p.height for p in self.pictures) + LINE * len(self.lines)


def style_of(name: str) -> Markup:
    """A style sheet of the package."""
    return Markup(files("gradformer.report").joinpath(name).read_text(encoding="utf-8"))


def sheet(title: str, rows: Sequence[Sequence[Panel]]) -> Markup:
    """Rows of panels in one SVG file: dark on white, whatever page it is shown on."""
    parts: list[Content] = []
    right, y = 0.0, GAP
    for row in rows:
        x = GAP
        for panel in row:
            parts.append(_drawn(panel, x, y))
            x += panel.width + GAP
        right, y = max(right, x), y + max(panel.height for panel in row) + GAP
    size = {"width": place(right), "height": place(y)}
    whole = tag(
        "svg",
        tag("title", title),
        tag("style", Markup(FONT + style_of("plots.css"))),
        tag("rect", fill="#ffffff", **size),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {place(right)} {place(y)}",
        role="img",
        **size,
    )
    return Markup(whole + "\n")


def _drawn(panel: Panel, x: float, y: float) -> Markup:
    parts = [tag("text", panel.name, x=place(x), y=place(y + 13), class_="heading")]
    y += HEADING
    for picture in panel.pictures:
        parts.append(tag("g", picture.inner, transform=f"translate({place(x)} {place(y)})"))
        y += picture.height
    for line in panel.lines:
        y += LINE
        parts.append(tag("text", line, x=place(x), y=place(y)))
    return tag("g", *parts)
