"""The rooms of the package, as docs/design.md lists them: what imports what, and their maps; and
that pyproject.toml names every package that is imported."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

import pytest

import gradformer
from tests.conftest import ROOT

PACKAGE = Path(gradformer.__file__).parent
DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
ROOMS = re.findall(r"^\| `(\w+)/` \|", DESIGN, re.MULTILINE)
MAPPED = [room for room in ROOMS if room not in ("recipes", "weights", "cli")]  # others are plain
FOLDERS = sorted(
    {
        file.parent.relative_to(PACKAGE).as_posix()
        for room in MAPPED
        for file in (PACKAGE / room).rglob("*.py")
    }
)
COMPILERS = {"triton", "numba", "llvmlite"}


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


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_file_of_a_room_and_of_its_folders_is_on_a_map(folder: str) -> None:
    files = {
        path.stem
        for path in (PACKAGE / folder).iterdir()
        if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    text = ast.get_docstring(ast.parse((PACKAGE / folder / "__init__.py").read_text("utf-8")))
    assert set(re.findall(r"``(\w+)``", text or "")) == files - {"__init__"}


@pytest.mark.parametrize("room", ["attention", "model"])
def test_compiled_code_of_a_room_is_in_its_folders(room: str) -> None:
    """Who opens the room finds what can be read without a compiler's language."""
    for path in (PACKAGE / room).glob("*.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        assert not _named_by(body) & COMPILERS, path.name


def test_every_package_that_is_imported_is_declared() -> None:
    """What comes along with another may stay away one day."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    of_users = (extras[name] for name in extras if name not in ("dev", "docs"))
    asked = chain(project["dependencies"], *of_users)
    declared = {_normal(re.split(r"[^\w.-]", text)[0]) for text in asked}
    known = packages_distributions()
    for path in PACKAGE.rglob("*.py"):
        for name in _imported(path) - {*sys.stdlib_module_names, "gradformer"}:
            named = {_normal(each) for each in known.get(name, [name])}
            assert named & declared, f"{path.relative_to(PACKAGE)} imports {name}"


def _imported(path: Path) -> set[str]:
    """The packages that a file imports anywhere."""
    return _named_by(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def _named_by(statements: Iterable[ast.AST]) -> set[str]:
    """The packages that are imported by these themselves, not inside of them."""
    found = set()
    for node in statements:
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).split(".")[0])
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
