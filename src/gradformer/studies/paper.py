"""The numbers that the paper prints, as they stand in ``paper.yaml``."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

from gradformer.yaml_text import parse_yaml


@cache
def tables() -> dict[str, dict[str, Any]]:
    """Table → ``label`` (in the paper's source) and ``rows`` (row → column → what is printed)."""
    text = files("gradformer.studies").joinpath("paper.yaml").read_text(encoding="utf-8")
    stated = parse_yaml(text).items()
    return {name: {"label": one["label"], "rows": _rows(one["table"])} for name, one in stated}


def _rows(table: str) -> dict[str, dict[str, str]]:
    """The cells of a table by model and data; either of these may be down its side."""
    lines = [re.split("  +", line) for line in table.splitlines()]
    (_, *names), *body = zip(*lines) if lines[0][0] == "data" else lines
    return {row: {c: v for c, v in zip(names, values) if v != "–"} for row, *values in body}


def printed(table: str, row: str, column: str) -> str | None:
    """What the paper prints there; None where it prints nothing.

    >>> printed("table1", "gradformer", "zinc")
    '0.069 ± 0.002'
    """
    rows = tables().get(table, {}).get("rows", {})
    return rows.get(row, {}).get(column)
