"""The pages of a study: markdown for a repository, and HTML to look at.

A figure is a file beside the page. One that can no longer be drawn stays as it is.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gradformer.errors import InputError, warn
from gradformer.grouping import grouped
from gradformer.report.markup import Content, Markup, join, note, table, tag
from gradformer.report.page import page, report_page
from gradformer.studies import tables
from gradformer.studies.study import Cell, Measured, Plan, Rows, Study, slug
from gradformer.training.files import replace_file

CAPTION = (
    "Ours: test at the first epoch of the best validation value, mean ± sample standard deviation "
    "over seeds. Difference: to the row that says so; paired over the seeds that both models have "
    "where each seed has its own split; where all have one, equal seeds have nothing in common, "
    "and it is that of the means over all seeds (Welch's interval)."
)
NOTHING = "Nothing is measured yet."
LONG = 20
"""Rows of a table that are not read one by one where a figure shows them."""

Lists = list[tuple[str, list[str]]]
"""Titles, and the lines under each."""


def write_pages(
    study: Study, plan: Plan, measured: Sequence[Measured], root: Path, failed: dict[Cell, str]
) -> Path:
    """Write the pages of a study; gives that of the whole, in HTML."""
    picture = write_markdown(study, plan, measured, root, failed)
    folder = root / study.name
    begun = ((one.cell.column, one.history) for one in measured if one.history is not None)
    links = []
    for column, histories in grouped(begun).items():
        with _damage_is_said(f"the page of {column}"):
            name = f"{slug(column)}.html"
            replace_file(folder / name, report_page(histories))
            links.append((column, name))
    index = folder / "index.html"
    replace_file(index, html(study, measured, lists_of(plan, measured, failed), links, picture))
    return index


def write_markdown(
    study: Study, plan: Plan, measured: Sequence[Measured], root: Path, failed: dict[Cell, str]
) -> Path | None:
    """Write what a repository keeps, the page in markdown and its figure; gives the latter."""
    folder = root / study.name
    picture = folder / "figure.svg"
    with _damage_is_said("the figure"):
        if (drawn := study.figure(measured)) is not None:
            replace_file(picture, drawn)
    shown = picture.name if picture.is_file() else None
    text = markdown(study, measured, lists_of(plan, measured, failed), shown)
    replace_file(folder / "README.md", f"# {study.title}\n\n{text}")
    return picture if shown else None


@contextmanager
def _damage_is_said(what: str) -> Iterator[None]:
    """Inside, damaged weights only prevent a drawing, which is warned of; numbers stay."""
    try:
        yield
    except InputError as error:
        warn(f"{what} is left as it is: {error}")


def markdown(
    study: Study,
    measured: Sequence[Measured],
    lists: Lists,
    picture: str | None = None,
    brief: bool = False,
) -> str:
    """The page without its title; ``picture`` is where its figure lies. Lists are folded, and a
    long table that a figure shows.

    Where it is ``brief`` it stands among others, which have one caption, and every long table is
    folded.
    """
    rows = tables.results(study, measured)
    result = tables.markdown_table(rows) if rows[1] else NOTHING
    parts = [study.text]
    if picture is not None:
        parts.append(f"[![{study.title}]({picture})]({picture})")  # large where it is followed
    if len(rows[1]) > LONG and (brief or picture is not None):
        result = _fold("The numbers", result)
    parts += [CAPTION if rows[1] and not brief else "", result]
    for title, more in _more(study, measured):
        parts += [f"{title}:", tables.markdown_table(more)]
    for title, lines in lists:
        if lines:
            parts.append(_fold(title, "\n".join(f"- {line}" for line in lines)))
    return "\n\n".join(part for part in parts if part) + "\n"


def _more(study: Study, measured: Sequence[Measured]) -> list[tuple[str, Rows]]:
    """The further table of a study, if it has rows."""
    title, made = study.more
    rows = made(measured)
    return [(title, rows)] if rows[1] else []


def _fold(title: str, text: str) -> str:
    return f'<details markdown="1"><summary>{title}</summary>\n\n{text}\n\n</details>'


def html(
    study: Study,
    measured: Sequence[Measured],
    lists: Lists,
    links: Sequence[tuple[str, str]],
    picture: Path | None,
) -> str:
    head, rows = tables.results(study, measured)
    rows = [[*map(tables.unbroken, row[:3]), *row[3:]] for row in rows]
    result: list[Content] = [table(CAPTION, head, rows, names=3) if rows else note(NOTHING)]
    result += [table(title, *more, names=2) for title, more in _more(study, measured)]
    sections: list[tuple[str, str, Content]] = [("result", "Result", join(result))]
    if picture is not None:
        source = f"data:image/svg+xml;base64,{b64encode(picture.read_bytes()).decode()}"
        shown = tag("img", src=source, alt=study.title, class_="sheet")
        sections.append(("figure", "Figure", tag("div", shown, class_="wide")))
    if links:
        items = (tag("li", tag("a", column, href=name)) for column, name in links)
        sections.append(("data", "Dataset by dataset", tag("ul", *items)))
    for title, lines in lists:
        if lines:
            items = (tag("li", line) for line in lines)
            sections.append((slug(title), title, tag("ul", *items)))
    return page(study.title, f"Study {study.name}", note(_prose(study.text)), sections)


def _prose(text: str) -> Markup:
    """Text with `code` in it."""
    return join(tag("code", piece) if k % 2 else piece for k, piece in enumerate(text.split("`")))


def lists_of(plan: Plan, measured: Sequence[Measured], failed: dict[Cell, str]) -> Lists:
    """What stands below the tables."""
    lacking = sum(bool(failed.get(one.cell) or one.missing) for one in measured)
    return [
        ("Changed in every recipe", list(plan.settings)),
        (f"Not measured yet: {lacking} of {len(measured)}", tables.missing(measured, failed)),
        ("Protocol", tables.protocols(measured)),
        ("Machines", tables.machines(measured)),
    ]
