"""Freed memory that a process keeps for its next use, instead of giving it back to the system."""

from __future__ import annotations

import ctypes
import os

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # of mallopt(3)
_FAR = 2**31 - 1


def keep_freed_memory() -> None:
    """Make glibc keep what is freed; nothing where the C library is another, or was told already.

    Every step frees tensors of many megabytes and asks for as much again. By default their pages go
    back to the system each time, and clearing new ones takes longer than the work on them.
    """
    if "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_MMAP_MAX, 0)
    mallopt(_TRIM_THRESHOLD, _FAR)
