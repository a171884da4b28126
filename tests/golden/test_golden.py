"""Every golden file, against our models."""

from __future__ import annotations

import pytest

from tests.conftest import SHARED
from tests.golden.check import check_file

FILES = sorted(p for p in (SHARED / "golden").glob("*/*.npz")) if SHARED.exists() else []


@pytest.mark.skipif(not FILES, reason="no golden files: set GRADFORMER_SHARED")
@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_matches_reference(path):
    verdict = check_file(path)
    assert not verdict.problems, verdict.problems[:5]
    assert verdict.compared > 3
