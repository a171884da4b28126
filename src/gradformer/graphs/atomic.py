"""Folders that are there complete or not at all, whoever builds them and however that ends."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from gradformer.errors import GradformerError

try:
    import fcntl
except ImportError:
    raise GradformerError(
        "Windows: data and runs need Linux or a system like it, which can lock their folders; use "
        "WSL (the layer GradformerConv and decay_attention work here too)"
    ) from None


def lock(file: IO[Any], wait: bool = True) -> None:
    """Hold the exclusive lock of an open file; the system frees it when the process ends.

    Unless it shall ``wait``, a lock that another process holds is a :class:`BlockingIOError`.
    """
    fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the exclusive lock of ``folder``."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f".{folder.name}.lock"), "a") as file:
        lock(file)
        yield


@contextmanager
def appearing(folder: Path) -> Iterator[Path]:
    """Give an empty folder to fill; it takes the name ``folder`` when the block ends well.

    Call under :func:`locked`. What a killed process left unfinished is cleared.
    """
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    if unfinished.exists():
        shutil.rmtree(unfinished)
    unfinished.mkdir(parents=True)
    try:
        yield unfinished
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    for path in unfinished.rglob("*"):
        flush(path)
    flush(unfinished)
    unfinished.rename(folder)
    flush(folder.parent)


def flush(path: Path) -> None:
    """Have the system write ``path`` (a file or folder) to its disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
