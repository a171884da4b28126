"""Every golden file, against our models."""

from __future__ import annotations

import numpy as np
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


@pytest.mark.skipif(not FILES, reason="no golden files: set GRADFORMER_SHARED")
@pytest.mark.parametrize(
    "entry",
    ["param/convs.1.mlp.0.weight", "grad/hop", "hidden/0", "attn/2", "spd", "grad/lin.bias"],
)
def test_notices_a_small_change_of_one_entry(entry, tmp_path):
    with np.load(SHARED / "golden/gradformer/case_a.npz") as file:
        arrays = dict(file)
    arrays[entry] = arrays[entry].copy()
    arrays[entry].flat[0] += 1 if entry == "spd" else 1e-3
    (tmp_path / "gradformer").mkdir()
    np.savez(tmp_path / "gradformer/case.npz", **arrays)
    assert check_file(tmp_path / "gradformer/case.npz").problems
