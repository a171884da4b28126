"""The page itself: one HTML file that asks for nothing from outside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gradformer.errors import InputError
from gradformer.report.answers import answers_section
from gradformer.report.curves import decay_section, learning_section
from gradformer.report.history import History, open_histories
from gradformer.report.markup import Content, Markup, join, tag
from gradformer.report.outcome import headline, result_section
from gradformer.report.patterns import patterns_section
from gradformer.report.settings import settings_section
from gradformer.report.sheet import style_of
from gradformer.training.ambient import undisturbed
from gradformer.training.files import replace_file
from gradformer.training.run import Run

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@undisturbed
def write_report(runs: Sequence[Run | Path], out: Path) -> Path:
    """Write the report of a run, or of several beside each other, to ``out``; gives its path.

    A run may be unfinished: the page shows what there is.
    """
    if not runs:
        raise InputError("report: no run was given; name at least one folder")
    histories = open_histories(runs)
    out = Path(out)
    replace_file(out, report_page(histories))
    return out


def report_page(histories: Sequence[History]) -> str:
    """The whole page as text."""
    sections = [
        ("result", "Result", result_section(histories)),
        ("learning", "Learning curves", learning_section(histories)),
        ("decay", "Decay and start points of the heads", decay_section(histories)),
        ("attention", "Attention patterns", patterns_section(histories)),
        ("answers", "Answers on the test set", answers_section(histories)),
        ("settings", "Configuration and environment", settings_section(histories)),
    ]
    if len(histories) == 1:
        (history,) = histories
        title = f"{history.run.recipe.model.name} on {history.data}"
        kicker = f"Run {history.run.folder.resolve().name}"
        top = headline(history)
    else:
        data = dict.fromkeys(history.data for history in histories)
        title = f"{len(histories)} runs on {', '.join(data)}"
        kicker, top = "Comparison", Markup("")
    return page(title, kicker, top, sections)


def page(
    title: str, kicker: str, top: Content, sections: Sequence[tuple[str, str, Content]]
) -> str:
    """An HTML page of sections (anchor, heading, content) with its style inside."""
    style = join([style_of("plots.css"), style_of("style.css")])
    links = (tag("li", tag("a", name, href=f"#{anchor}")) for anchor, name, _ in sections)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} · gradformer"),
        tag("style", style),
    )
    body = tag(
        "body",
        tag("header", tag("p", kicker, class_="kicker"), tag("h1", title), top),
        tag("nav", tag("ul", *links), aria_label="Sections"),
        tag(
            "main",
            *(
                tag("section", tag("h2", name), content, id=anchor)
                for anchor, name, content in sections
            ),
        ),
    )
    return join([Markup("<!DOCTYPE html>\n"), tag("html", head, body, lang="en")]) + "\n"
