"""Shared fixtures: where the reference numbers and raw datasets lie, and one thread per worker."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("TRITON_INTERPRET", "1")
ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("GRADFORMER_SHARED", ROOT.parent / "shared"))


def shared_path(*parts: str) -> Path:
    """A path under the shared folder; skips the test with a reason where it is absent."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{path} is absent: set GRADFORMER_SHARED to the folder with golden/ and data/")
    return path


@pytest.fixture
def data_mirror() -> Path:
    """The mirror of raw dataset files."""
    return shared_path("data")


@pytest.fixture
def golden_folder() -> Path:
    """The reference numbers of the models."""
    return shared_path("golden")
