"""Formulas and examples of docstrings on the API page."""

from __future__ import annotations

import inspect

import pytest

from gradformer import GradformerConv
from tests.conftest import docs_script

pytest.importorskip("griffe", reason="the extra docs is not installed")


def test_formulas_and_examples_are_blocks_of_code() -> None:
    text = docs_script("docstrings").fenced(inspect.getdoc(GradformerConv) or "")
    assert "math::" not in text
    assert "```tex\ns = " in text
    assert "(s))\n```\n\nArgs:" in text
    assert "```pycon\n>>> conv = GradformerConv(16, None, heads=4)\n" in text
    assert text.endswith("torch.Size([3, 16])\n```")
