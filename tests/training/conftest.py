"""A run that is trained once, for all tests that look at one; several threads."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.training import toy


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two trials; nobody may change it."""
    return toy.finish(tmp_path_factory.mktemp("whole") / "run", trials=2)


@pytest.fixture
def copied(whole: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    return Path(shutil.copytree(whole, tmp_path / "run"))


@pytest.fixture
def three_threads() -> Iterator[None]:
    """As many as torch then has; other tests have one."""
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(1)
