"""A cache of its own for each test that asks for one, and no mirror."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRADFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GRADFORMER_DATA", raising=False)
    return tmp_path / "cache"
