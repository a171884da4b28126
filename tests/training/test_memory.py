"""What memory a process keeps and holds, and what is left of the machine's and of a container's."""

from __future__ import annotations

import os
import platform
import subprocess
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


FREED = """
from gradformer.training.memory import held, keep_freed_memory, most_held, settle
keep_freed_memory()
import numpy as np
before, taken = held(), [np.ones(1_000_000, dtype=np.uint8) for _ in range(100)]
last = np.ones(1, dtype=np.uint8)
del taken
print(held() - before)
settle()
print(held() - before, most_held() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps what is freed")
def test_what_is_freed_and_kept_is_held_until_it_is_given_back() -> None:
    command = [sys.executable, "-c", FREED]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    kept, settled, most = map(int, done.stdout.split())
    assert kept > 80_000_000
    assert settled < 20_000_000
    assert most < 20_000_000


FAULTS = """
import resource, sys
from gradformer.training.memory import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytearray(1 << 26)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told to keep memory")
def test_a_second_tensor_takes_the_pages_of_the_first() -> None:
    environment = {k: v for k, v in os.environ.items() if k != "GLIBC_TUNABLES"}
    kept, given_back = (
        int(subprocess.check_output([sys.executable, "-c", FAULTS, how], env=environment))
        for how in ("keep", "")
    )
    assert kept < 100 < given_back


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where files say what the system has."""
    monkeypatch.setattr(memory, "PROCESSES", tmp_path)
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    return tmp_path


def test_files_that_a_container_has_read_take_no_memory(system: Path) -> None:
    (system / "memory.max").write_text("70000\n")
    (system / "memory.current").write_text("70000\n")
    (system / "memory.stat").write_text("anon 10000\nactive_file 20000\ninactive_file 40000\n")
    assert memory.left() == 40000


def test_an_older_container_has_a_limit_too(system: Path) -> None:
    (system / "memory").mkdir()
    (system / "memory/memory.limit_in_bytes").write_text("70000\n")
    (system / "memory/memory.usage_in_bytes").write_text("50000\n")
    assert memory.left() == 20000


def test_the_least_of_the_machine_and_of_a_container_is_left(system: Path) -> None:
    assert (memory.held(), memory.left()) == (0, sys.maxsize)
    (system / "meminfo").write_text("MemTotal:  900 kB\nMemFree: 1 kB\nMemAvailable:  300 kB\n")
    assert memory.left() == 300 * 1024
    (system / "memory.max").write_text("max\n")
    (system / "memory.current").write_text("50000\n")
    assert memory.left() == 300 * 1024
    (system / "memory.max").write_text("70000\n")
    assert memory.left() == 20000
    (system / "memory.max").write_text("40000\n")
    assert memory.left() == 0
