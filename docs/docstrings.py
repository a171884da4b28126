"""Docstrings as the API page shows them: formulas and examples become blocks of code.

An extension of griffe, which reads the source for mkdocstrings (see mkdocs.yml).
"""

from __future__ import annotations

import re
from textwrap import dedent
from typing import Any

from griffe import Extension, Object

FORMULA = re.compile(r"^\.\. math::\n+((?: .*\n|\n(?= ))+)", re.MULTILINE)
EXAMPLE = re.compile(r"^>>> (?:.+\n)+", re.MULTILINE)


class Fences(Extension):
    """Sets fences around what would be read as plain text and as quotations."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """``text`` with its formulas and examples between fences."""
    text = FORMULA.sub(lambda found: _block("tex", dedent(found[1])), f"{text}\n")
    return EXAMPLE.sub(lambda found: _block("pycon", found[0]), text).strip()


def _block(language: str, text: str) -> str:
    return f"```{language}\n{text.strip()}\n```\n"
