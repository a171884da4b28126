"""What memory this process holds, and what is left; 0 and without end where Linux does not tell."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from pathlib import Path

from gradformer.cores import CGROUP

PROCESSES = Path("/proc")


def held() -> int:
    """Bytes that this process holds now."""
    return _told(PROCESSES / "self/status", "VmRSS:") * 1024


def most_held() -> int:
    """Bytes that it has held at most since it last did :func:`settle`."""
    return _told(PROCESSES / "self/status", "VmHWM:") * 1024


def settle() -> None:
    """Give the system what is freed and kept for the next use, and forget what was held before:
    what is held is in use then, and is the most that was held; as far as the system can."""
    with suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError):
        (PROCESSES / "self/clear_refs").write_text("5")


def left() -> int:
    """Bytes that the machine has for more, and a container's limit; files that the system has read
    and can read again take none."""
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
