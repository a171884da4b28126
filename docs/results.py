"""Write docs/results.md, its figures, and the pages of the studies from the records in
``results/studies/``: ``python docs/results.py``."""

from __future__ import annotations

from pathlib import Path

from gradformer.report.markup import Markup
from gradformer.studies import STUDIES
from gradformer.studies.page import results_page, write_markdown
from gradformer.studies.runner import kept_plan, look

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results.md"
STUDIED = ROOT / "results" / "studies"


def made() -> tuple[str, dict[str, Markup]]:
    """The page, and its figures by their paths beside it."""
    return results_page(list(STUDIES.values()), STUDIED)


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
