"""Write docs/results.md from the records in ``results/studies/``: ``python docs/results.py``."""

from __future__ import annotations

from pathlib import Path

from gradformer.studies import STUDIES
from gradformer.studies.page import results_page

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results.md"


def text() -> str:
    return results_page(list(STUDIES.values()), ROOT / "results" / "studies")


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
    print(f"{PAGE.name} is made from results/studies/")
