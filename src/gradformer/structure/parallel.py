"""Compiled loops over many graphs: numba where it is present, threads over slices of the work.

The kernels release the interpreter lock and share nothing but their output, so a plain thread pool
runs them. (numba's own parallel loops would not survive a forked data loader.)
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    import numba
except ImportError:  # pragma: no cover - numba is a dependency, but not on every platform
    numba = None

HAVE_NUMBA = numba is not None
Progress = Callable[[int], None]


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` compiled without the interpreter lock; itself where numba is absent.

    The machine code is kept on disk, unless no place for it can be written.
    """
    if not HAVE_NUMBA:
        return function
    try:
        jitted: Callable[..., Any] = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:
        jitted = numba.njit(nogil=True)(function)
    return jitted


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def over_slices(
    work: Callable[[int, int], object],
    cost: NDArray[np.int64],
    done: NDArray[np.int64] | None = None,
    progress: Progress | None = None,
    *,
    smallest: int = 2_000_000,
) -> None:
    """Call ``work(first, last)`` on slices of ``len(cost)`` items, in parallel.

    Slices have about equal summed ``cost`` (any unit; work below ``smallest`` is not split).
    ``progress`` is told, slice by slice, how many graphs are ready: ``done`` of each item, or one.
    """
    items = len(cost)
    total = np.concatenate([[0], np.cumsum(cost)])
    slices = int(min(items, max(1, total[-1] // smallest), 16 * cores()))
    marks = np.searchsorted(total, np.linspace(0, total[-1], slices + 1)[1:-1])
    bounds = np.unique(np.concatenate([[0], marks, [items]])).tolist()
    spans = list(pairwise(bounds))

    def report(span: tuple[int, int]) -> None:
        if progress is not None:
            progress(int(done[slice(*span)].sum()) if done is not None else span[1] - span[0])

    if len(spans) == 1 or cores() == 1:
        for span in spans:
            work(*span)
            report(span)
        return
    with ThreadPoolExecutor(cores()) as pool:
        futures = {pool.submit(work, *span): span for span in spans}
        for future in as_completed(futures):
            future.result()
            report(futures[future])
