"""How many cores this process may use, known before anything large is loaded."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
"""Where a container finds its own limits."""


def cores() -> int:
    """Cores that this process may run on, and no more than a container gives it the time of."""
    bound = _bound()
    return min(bound, _quota(CGROUP) or bound)


def hold_openmp() -> None:
    """Hold OpenMP, and so torch, to a container's quota, unless it is told how many threads it has.

    It counts the cores of the host. To be called before torch is loaded.
    """
    if cores() < _bound():
        os.environ.setdefault("OMP_NUM_THREADS", str(cores()))


def _bound() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _quota(folder: Path) -> int | None:
    """Cores that a container has the time of, rounded up; None where nothing limits it."""
    for names in (["cpu.max"], ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"]):
        with suppress(OSError, ValueError):  # there is no such file, or it says max
            words = " ".join((folder / name).read_text() for name in names)
            time, period = map(int, words.split())
            if time > 0:  # -1 is no limit
                return -(-time // period)
    return None
