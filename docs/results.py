"""Write docs/results.md, its figures, and the pages of the studies from the records in
``results/``: ``python docs/results.py``."""

from __future__ import annotations

from pathlib import Path

from gradformer.report.levers import Lever, levers
from gradformer.report.markup import Markup
from gradformer.studies import STUDIES
from gradformer.studies.page import results_page, write_markdown
from gradformer.studies.runner import kept_plan, look
from gradformer.studies.tables import markdown_table, shown, value
from gradformer.training.attempts import load_attempts
from gradformer.training.files import read_json
from gradformer.training.metrics import LOWER_IS_BETTER, metric_label

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results.md"
STUDIED = ROOT / "results" / "studies"
SEARCHED = ROOT / "results" / "search"
CLEAR = 3.0
SEARCHES = (
    "## The searches behind `tuned`\n\nThe candidates of a search are drawn at random from the "
    "ranges of the recipe; the first rung trains all of them (how many and how long: in brackets). "
    "Below is, for each setting, the value whose candidates rank best by validation score, by how "
    "many points their median is better than that of the other candidates, and how many standard "
    "errors (σ) their mean ranks are apart. More than three are bold; all else can be chance, for "
    "the best of several values is shown, and there are many rows."
)
WINNERS = (
    "Candidates were compared by one to three seeds and often for fewer epochs. Below are the "
    "winners in full beside the recipe `paper`, mean ± sample standard deviation over seeds, and "
    "whether a winner is kept as `tuned`. A winner with a lower validation score than `paper` is "
    "no improvement that validation supports. What is not here was not trained in full."
)


def made() -> tuple[str, dict[str, Markup]]:
    """The page, and its figures by their paths beside it."""
    text, figures = results_page(list(STUDIES.values()), STUDIED)
    return f"{text}\n{searches()}", figures


def searches() -> str:
    """What the candidates of the recorded searches say about each setting."""
    found = {place.name: load_attempts(place) for place in sorted(SEARCHED.iterdir())}
    gains = {name: {one.name: one for one in levers(some)} for name, some in found.items()}
    head, rows = ["setting"], [[name] for name in sorted(set[str]().union(*gains.values()))]
    for name, attempts in found.items():
        first = [one for one in attempts if one.rung == 0]
        head.append(f"{name} ({len(first)}, {first[0].epochs} epochs)")
        factor, places = shown({"lower_is_better": first[0].metric in LOWER_IS_BETTER})
        for row in rows:
            one = gains[name].get(row[0])
            row.append("–" if one is None else _gain(one, factor, places))
    return f"{SEARCHES}\n\n{markdown_table((head, rows))}\n\n{WINNERS}\n\n{winners()}\n"


def winners() -> str:
    """What searches found beside the recipe ``paper``, both over the seeds of the studies."""
    head = ["data", "metric", "winner, val", "paper, val", "winner, test", "paper, test"]
    head += ["seeds", "kept"]
    rows = []
    for place in sorted(SEARCHED.iterdir()):
        name = f"{place.name}-gradformer"
        (paper,) = STUDIED.glob(f"*/{name}-paper/results.json")
        tuned = next(STUDIED.glob(f"*/{name}-tuned/results.json"), None)
        confirmed = tuned or place / "confirmed" / "results.json"
        if confirmed.is_file():
            both = [read_json(path) for path in (confirmed, paper)]
            scores = [value(one, part) for part in ("val", "test") for one in both]
            seeds = " / ".join(str(len(one["test"]["values"])) for one in both)
            metric = metric_label(both[0]["metric"])
            rows.append([place.name, metric, *scores, seeds, "yes" if tuned else "no"])
    return markdown_table((head, rows))


def _gain(one: Lever, factor: float, places: int) -> str:
    gain = f"{factor * one.gain:.{places}f}".replace("-", "−")
    text = f"{one.value}: {gain} ({one.strength:.1f} σ)"
    return f"**{text}**" if one.strength > CLEAR else text


if __name__ == "__main__":
    text, figures = made()
    PAGE.write_text(text, encoding="utf-8")
    for path, figure in figures.items():
        place = PAGE.parent / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(figure, encoding="utf-8")
    for study in STUDIES.values():
        if (plan := kept_plan(study, STUDIED)) is not None:
            measured = look(study, study.cells(plan.datasets, plan.models), plan, STUDIED)
            write_markdown(study, plan, measured, STUDIED, {})
    print(f"{PAGE.name} and the pages of results/studies/ are made from their records")
