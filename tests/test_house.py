"""The rooms of the package, as docs/design.md lists them: what imports what, and their maps."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import gradformer
from tests.conftest import ROOT

PACKAGE = Path(gradformer.__file__).parent
DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
ROOMS = re.findall(r"^\| `(\w+)/` \|", DESIGN, re.MULTILINE)
MAPPED = [room for room in ROOMS if room not in ("recipes", "weights", "cli")]  # others are plain


def test_the_house_has_no_other_rooms() -> None:
    assert sorted(ROOMS) == sorted(p.parent.name for p in PACKAGE.glob("*/__init__.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_a_file_imports_only_from_rooms_above_its_own(room: str) -> None:
    """When it is imported; what a function imports late is another matter."""
    below = ROOMS[ROOMS.index(room) + 1 :]
    for path in (PACKAGE / room).rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom) and node.module:
                used = [*node.module.split("."), ""][1]
                assert used not in below, f"{path.relative_to(PACKAGE)} imports from {used}"


@pytest.mark.parametrize("room", MAPPED)
def test_every_file_of_a_room_is_on_its_map(room: str) -> None:
    files = {
        path.stem
        for path in (PACKAGE / room).iterdir()
        if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    text = ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text("utf-8")))
    assert set(re.findall(r"``(\w+)``", text or "")) == files - {"__init__"}
