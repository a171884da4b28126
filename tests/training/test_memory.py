"""What memory a process holds, and what is left of the machine's and of a container's."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from gradformer.training import memory


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_memory_that_is_taken_is_held() -> None:
    before = memory.held()
    taken = np.ones(50_000_000, dtype=np.uint8)
    assert memory.held() - before > 40_000_000
    assert memory.most_held() >= memory.held()
    assert memory.left() > taken.nbytes
    del taken


def test_the_least_of_the_machine_and_of_a_container_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "PROCESSES", tmp_path)
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    assert (memory.held(), memory.left()) == (0, sys.maxsize)
    (tmp_path / "meminfo").write_text("MemTotal:  900 kB\nMemFree: 1 kB\nMemAvailable:  300 kB\n")
    assert memory.left() == 300 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("50000\n")
    assert memory.left() == 300 * 1024
    (tmp_path / "memory.max").write_text("70000\n")
    assert memory.left() == 20000
    (tmp_path / "memory.max").write_text("40000\n")
    assert memory.left() == 0
