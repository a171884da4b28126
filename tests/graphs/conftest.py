"""For tests that ask for them: a cache of their own and no mirror, or processes for molecules."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from gradformer.graphs import processes


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRADFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GRADFORMER_DATA", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def helpers(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Two processes for any number of molecules, two of which they get at once."""
    started = []

    def start(*words: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(*words, **options))
        return started[-1]

    monkeypatch.setattr(processes, "cores", lambda: 2)
    monkeypatch.setattr(processes, "WORTHWHILE", 1)
    monkeypatch.setattr(processes, "SHARE", 2)
    monkeypatch.setattr(processes, "Popen", start)
    return started
