"""The program in smoke mode on MUTAG, one thread; a root under which studies share runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gradformer.cli.app import app
from tests.conftest import shared_path

Reproduce = Callable[..., Result]


@pytest.fixture
def raw_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Benchmarks are read from the shared folder."""
    monkeypatch.setenv("GRADFORMER_DATA", str(shared_path("data")))


@pytest.fixture
def reproduce(raw_data: None, monkeypatch: pytest.MonkeyPatch) -> Reproduce:
    """Run ``gradformer reproduce`` with some words; it must end with ``code``."""
    monkeypatch.setenv("GRADFORMER_SMOKE", "1")

    def run(*words: str | Path, code: int = 0) -> Result:
        given = ["reproduce", *map(str, words), "--device", "cpu", "--quiet"]
        result = CliRunner().invoke(app, given)
        assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
        return result

    return run


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the studies of a session are: what one has trained, the next ones use."""
    return tmp_path_factory.mktemp("studies")
