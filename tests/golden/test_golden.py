"""Every golden file, against our models."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.conftest import SHARED
from tests.golden.check import check_file, main

FILES = sorted(p for p in (SHARED / "golden").glob("*/*.npz")) if SHARED.exists() else []


@pytest.mark.skipif(not FILES, reason="no golden files: set GRADFORMER_SHARED")
@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_matches_reference(path):
    verdict = check_file(path)
    assert not verdict.problems, verdict.problems[:5]
    assert verdict.compared > 3


def altered(folder, change):
    """A changed copy of one file."""
    with np.load(SHARED / "golden/gradformer/case_a.npz") as file:
        arrays = dict(file)
    change(arrays)
    (folder / "gradformer").mkdir()
    np.savez(folder / "gradformer/case.npz", **arrays)
    return folder / "gradformer/case.npz"


@pytest.mark.skipif(not FILES, reason="no golden files: set GRADFORMER_SHARED")
@pytest.mark.parametrize(
    "entry",
    ["param/convs.1.mlp.0.weight", "grad/hop", "hidden/0", "attn/2", "spd", "grad/lin.bias"],
)
def test_notices_a_small_change_of_one_entry(entry, tmp_path):
    def change(arrays):
        arrays[entry] = arrays[entry].copy()
        arrays[entry].flat[0] += 1 if entry == "spd" else 1e-3

    assert check_file(altered(tmp_path, change)).problems


@pytest.mark.skipif(not FILES, reason="no golden files: set GRADFORMER_SHARED")
def test_a_config_that_is_refused_fails_and_does_not_stop_the_rest(tmp_path, capsys):
    def change(arrays):
        config = json.loads(str(arrays["config_json"]))
        arrays["config_json"] = np.array(json.dumps(config | {"mpnn": "MLP"}))

    good = SHARED / "golden/gradformer/case_a.npz"
    assert main([str(altered(tmp_path, change)), str(good)]) == 1
    first, why, last = capsys.readouterr().out.splitlines()
    assert first.startswith("FAIL gradformer/case.npz")
    assert "mpnn: unknown value 'MLP'" in why
    assert last.startswith("ok ")
