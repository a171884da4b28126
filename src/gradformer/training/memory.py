"""What memory this process holds, and what is left; 0 and without end where Linux does not tell."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

from gradformer.cores import CGROUP

PROCESSES = Path("/proc")


def held() -> int:
    """Bytes that this process holds now."""
    return _told("self/status", "VmRSS")


def most_held() -> int:
    """Bytes that it has held at most."""
    return _told("self/status", "VmHWM")


def left() -> int:
    """Bytes that the machine has for more, and a container's limit."""
    least = _told("meminfo", "MemAvailable") or sys.maxsize
    with suppress(OSError, ValueError):  # no container, or one without a limit
        limit, used = (int((CGROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        least = min(least, max(limit - used, 0))
    return least


def _told(file: str, name: str) -> int:
    """Bytes in the line ``name: … kB`` of a file under /proc; 0 if there is none."""
    with suppress(OSError):
        for line in (PROCESSES / file).read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return 0
