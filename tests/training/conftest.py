"""A run that is trained once, for all tests that look at one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.training import toy


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two trials; nobody may change it."""
    return toy.finish(tmp_path_factory.mktemp("whole") / "run", trials=2)


@pytest.fixture
def copied(whole: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    return Path(shutil.copytree(whole, tmp_path / "run"))
