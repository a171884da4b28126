"""The wide way of pair_kernels rests on two habits of the compiler; an update may change them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gradformer.attention.pair_kernels import TABLES


def test_the_compiler_keeps_its_habits() -> None:
    """Packs of registers are tiles of tensor cores, one warp above the other.

    In half precision Hopper's own, 64 columns or more to an instruction; in float32 the older
    ones of 8 columns, which put one after the other give the same order.

    And the tables, in static shared memory, fit beside the dynamic: a kernel may have more than 48
    KiB only if its dynamic part alone is larger, because only then is the driver asked for it.
    """
    pytest.importorskip("triton")
    script = Path(__file__).with_name("wide_kernels.py")
    given = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, str(script)], env=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert {kernel["kernel"].split(",")[0] for kernel in found} == {
        "forward_kernel",
        "query_gradient_kernel",
        "key_gradient_kernel",
    }
    for kernel in found:
        assert kernel["layouts"], kernel["kernel"]
        for layout in kernel["layouts"]:
            assert "nvidia_mma" in layout, kernel["kernel"]
            if kernel["wide"] == 64:
                assert "versionMajor = 3" in layout
                assert "warpsPerCTA = [4, 1]" in layout
                assert any(f"instrShape = [16, {n}, 16]" in layout for n in (64, 128, 256))
            else:
                assert "versionMajor = 2" in layout
                assert "warpsPerCTA = [2, 1]" in layout
                assert "instrShape = [16, 8]" in layout
        assert kernel["shared"] > 48 << 10 or kernel["shared"] + TABLES.value <= 48 << 10
        assert kernel["shared"] + TABLES.value <= 227 << 10
