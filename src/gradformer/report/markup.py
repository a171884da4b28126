"""HTML and SVG from Python, with every text escaped unless it is markup already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_VOID = frozenset({"meta", "br", "hr", "col", "img"})


class Markup(str):
    """Text that is HTML or SVG and goes into a page as it is."""

    __slots__ = ()


Content = str | int | float | None
"""A child of an element: :class:`Markup`, text to be escaped, a number, or nothing."""


def tag(name: str, /, *children: Content, **attributes: Content) -> Markup:
    """An element; ``class_`` is written class, other ``_`` are written ``-``, None is left out.

    >>> tag("p", "1 < 2", class_="note")
    '<p class="note">1 &lt; 2</p>'
    """
    words = [name]
    for key, value in attributes.items():
        if value is not None:
            words.append(f'{key.rstrip("_").replace("_", "-")}="{escape(_text(value))}"')
    opening = f"<{' '.join(words)}>"
    return Markup(opening if name in _VOID else f"{opening}{join(children)}</{name}>")


def join(children: Iterable[Content]) -> Markup:
    """Children one after the other."""
    return Markup("".join(c if isinstance(c, Markup) else escape(_text(c)) for c in children))


def table(
    caption: str, head: Sequence[Content], rows: Iterable[Sequence[Content]], *, names: int = 1
) -> Markup:
    """A table that scrolls sideways where it is too wide.

    The first ``names`` cells of a row are words, the others are set as numbers.
    """

    def cell(place: int, content: Content) -> Markup:
        if place == 0:
            return tag("th", content, scope="row")
        return tag("td", content, class_=None if place < names else "number")

    titles = [
        tag("th", title, scope="col", class_=None if place < names else "number")
        for place, title in enumerate(head)
    ]
    body = [tag("tr", *(cell(place, c) for place, c in enumerate(row))) for row in rows]
    whole = tag(
        "table",
        tag("caption", tag("span", caption)),
        tag("thead", tag("tr", *titles)),
        tag("tbody", *body),
    )
    return tag("div", whole, class_="wide", tabindex="0", role="region", aria_label=caption)


def facts(caption: str, rows: Iterable[tuple[str, Content]]) -> Markup:
    """Names and values in two columns."""
    lines = (tag("tr", tag("th", name, scope="row"), tag("td", value)) for name, value in rows)
    return tag("table", tag("caption", caption), tag("tbody", *lines), class_="facts")


def note(text: Content) -> Markup:
    """A remark, for example why something is not shown."""
    return tag("p", text, class_="note")


def fold(title: str, *content: Content) -> Markup:
    """Content that the reader opens; on paper it is open."""
    return tag("details", tag("summary", title), *content)


def figure(picture: Content, caption: Content = None) -> Markup:
    return tag("figure", picture, None if caption is None else tag("figcaption", caption))


def grid(*figures: Content) -> Markup:
    """Figures side by side where there is room."""
    return tag("div", *figures, class_="grid")


def _text(value: Content) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
