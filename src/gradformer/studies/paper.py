"""The numbers that the paper prints, as they stand in ``paper.yaml``."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from gradformer.yaml_text import parse_yaml


@cache
def tables() -> dict[str, dict[str, Any]]:
    """Table → ``label`` (in the paper's source) and ``rows`` (row → column → what is printed)."""
    text = files("gradformer.studies").joinpath("paper.yaml").read_text(encoding="utf-8")
    return parse_yaml(text)


def printed(table: str, row: str, column: str) -> str | None:
    """What the paper prints there; None where it prints nothing.

    >>> printed("table1", "gradformer", "zinc")
    '0.069 ± 0.002'
    """
    rows = tables().get(table, {}).get("rows", {})
    return rows.get(row, {}).get(column)
