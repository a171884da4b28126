"""What memory this process keeps, what it holds, and what is left.

Where Linux does not tell, nothing is held and what is left has no end.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path

from gradformer.cores import CGROUP

PROCESSES = Path("/proc")
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # of mallopt(3)


def keep_freed_memory() -> None:
    """Make glibc keep what is freed for its next use, unless it was told something already.

    Every step frees tensors of many megabytes and asks for as much again. By default their pages go
    back to the system each time, and clearing new ones takes longer than the work on them.
    """
    if "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return
    with suppress(AttributeError, OSError, TypeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)


def held() -> int:
    """Bytes that this process holds now."""
    return _told(PROCESSES / "self/status", "VmRSS:") * 1024


def most_held() -> int:
    """Bytes that it has held at most since it last did :func:`settle`."""
    return _told(PROCESSES / "self/status", "VmHWM:") * 1024


def settle() -> None:
    """Give freed memory back to the system and begin :func:`most_held` anew, as far as the system
    can. What is held is then in use."""
    with suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError):
        (PROCESSES / "self/clear_refs").write_text("5")


def left() -> int:
    """Bytes that the machine and a container's limit leave to this process; memory that only caches
    files counts as left."""
    least = _told(PROCESSES / "meminfo", "MemAvailable:") * 1024 or sys.maxsize
    for folder, *names in ((".", "max", "current"), ("memory", "limit_in_bytes", "usage_in_bytes")):
        with suppress(OSError, ValueError):  # no container, or one without a limit
            place = CGROUP / folder
            limit, used = (int((place / f"memory.{name}").read_text()) for name in names)
            used -= _told(place / "memory.stat", "inactive_file")
            least = min(least, max(limit - used, 0))
    return least


def _told(file: Path, name: str) -> int:
    """The number behind ``name`` in a file with a line for each; 0 if there is none."""
    with suppress(OSError):
        for line in file.read_text().splitlines():
            if line.split()[:1] == [name]:
                return int(line.split()[1])
    return 0
