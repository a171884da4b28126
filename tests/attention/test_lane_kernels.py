"""The row kernels rest on a habit of the compiler, which an update may change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ONE_WARP = "sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [1]"


def test_entries_lie_one_after_the_other_in_the_lanes_of_a_warp() -> None:
    """All assembly has that layout, and nothing moves through shared memory to get it."""
    pytest.importorskip("triton")
    given = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.attention.lane_layouts"],
        env=given,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [kernel["kernel"] for kernel in found] == ["row_forward_kernel", "row_backward_kernel"]
    for kernel in found:
        assert kernel["shared"] == 0
        assert kernel["layouts"]
        for size, layout in kernel["layouts"]:
            assert size == 256
            assert ONE_WARP in layout, layout
