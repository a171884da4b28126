"""Kernels in assembly rest on habits of the compiler, which an update may change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gradformer.attention.kernels.pairs import TABLES

TILED = ["forward_kernel", *["key_gradient_kernel"] * 2, *["query_gradient_kernel"] * 3]
ONE_WARP = ["row_forward_kernel", "row_backward_kernel"]


def test_the_compiler_keeps_its_habits() -> None:
    """In a process of its own, for there the kernels are not those of the interpreter."""
    pytest.importorskip("triton")
    script = Path(__file__).with_name("compiled_kernels.py")
    given = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, str(script)], env=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [kernel["kernel"] for kernel in found] == [*TILED, *ONE_WARP]
    for kernel in found:
        (check_tiles if kernel["wide"] else check_lanes)(**kernel)


def check_tiles(kernel: str, wide: int, shared: int, assembly: list[Any]) -> None:
    """Packs of registers are tiles of tensor cores, one warp above the other.

    In half precision Hopper's own, 64 columns or more to an instruction; in float32 the older
    ones of 8 columns, which put one after the other give the same order.

    And the tables, in static shared memory, fit beside the dynamic: a kernel may have more than 48
    KiB only if its dynamic part alone is larger, because only then is the driver asked for it.
    """
    packs = [layout for registers, _, layout in assembly if 2 * registers == wide]
    assert packs, kernel
    for layout in packs:
        assert "nvidia_mma" in layout, kernel
        if wide == 64:
            assert "versionMajor = 3" in layout
            assert "warpsPerCTA = [4, 1]" in layout
            assert any(f"instrShape = [16, {n}, 16]" in layout for n in (64, 128, 256))
        else:
            assert "versionMajor = 2" in layout
            assert "warpsPerCTA = [2, 1]" in layout
            assert "instrShape = [16, 8]" in layout
    assert shared > 48 << 10 or shared + TABLES.value <= 48 << 10
    assert shared + TABLES.value <= 227 << 10


def check_lanes(kernel: str, wide: int, shared: int, assembly: list[Any]) -> None:
    """Entries lie one after the other in a warp's lanes, and nothing is moved to get them there."""
    assert shared == 0
    assert assembly, kernel
    for _, shape, layout in assembly:
        assert shape == "256"
        assert "sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [1]" in layout, kernel
