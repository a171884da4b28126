"""Compiled loops over many graphs: numba where it is present, threads over slices of the work.

The kernels release the interpreter lock and share nothing but their output, so a plain thread pool
runs them. (numba's own parallel loops would not survive a forked data loader.)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from gradformer.cores import cores

try:
    import numba
except ImportError:  # pragma: no cover - numba is a dependency, but not on every platform
    numba = None

HAVE_NUMBA = numba is not None and not numba.config.DISABLE_JIT
Progress = Callable[[int], None]
_IMPORT = re.compile(r"^from (gradformer[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)


@cache
def _sources(file: Path) -> str:
    """A hash of what ``file`` says, and what it imports from this package at its top, in turn."""
    texts: dict[Path, str] = {}
    left = [file]
    while left:
        file = left.pop()
        if file in texts or not file.is_file():
            continue
        texts[file] = file.read_text(encoding="utf-8")
        for module, names in _IMPORT.findall(texts[file]):
            for name in (module, *(f"{module}.{part}" for part in re.findall(r"\w+", names))):
                place = Path(__file__).parents[2].joinpath(*name.split("."))
                left += [place.with_suffix(".py"), place / "__init__.py"]
    return sha256("".join(texts[file] for file in sorted(texts)).encode()).hexdigest()


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """``function`` compiled without the interpreter lock; itself where numba is absent or off.

    The machine code is kept on disk, unless no place for it can be written or that is full. It is
    that of the sources it was made of: numba alone would ask for changes of the function's own
    file, and not of those from which it inlines others.
    """
    if not HAVE_NUMBA:
        return function
    try:
        jitted: Any = numba.njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:
        return numba.njit(nogil=True, **options)(function)
    kept = jitted._cache._cache_file
    kept._source_stamp = kept._source_stamp, _sources(Path(function.__code__.co_filename))
    keep = jitted._cache.save_overload

    def keep_if_there_is_room(*code: Any) -> None:
        with suppress(OSError):
            keep(*code)

    jitted._cache.save_overload = keep_if_there_is_room
    return jitted


def vectorised(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """:func:`compiled` so that loops over float32 become vector instructions.

    Sums may be taken in another order, as many at once as fit a vector, and x / 0 is no error.
    """
    return compiled(function, fastmath={"reassoc", "contract"}, error_model="numpy", **options)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """:func:`vectorised`, for what is called in an inner loop, which a call would keep scalar."""
    return vectorised(function, forceinline=True)


def one_blas_thread() -> AbstractContextManager[Any]:
    """Inside, BLAS and LAPACK take the caller's thread only.

    On small matrices their threads wait for each other many times as long as they work.
    """
    return threadpool_limits(1, "blas")


BLOCK = 64
"""Nodes that a kernel treats at once: a bit each in a word, a column each in a panel."""


def node_blocks(node_ptr: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cut every graph into blocks of 64 nodes: graph and block number of each, [blocks].

    >>> graph, block = node_blocks(np.array([0, 3, 3, 133]))
    >>> graph.tolist(), block.tolist()
    ([0, 2, 2, 2], [0, 0, 1, 2])
    """
    count = -(-np.diff(node_ptr) // BLOCK)
    graph = np.repeat(np.arange(len(count)), count)
    return graph, np.arange(len(graph)) - np.repeat(np.cumsum(count) - count, count)


def over_slices(
    work: Callable[[int, int], object],
    cost: NDArray[np.int64],
    done: NDArray[np.int64] | None = None,
    progress: Progress | None = None,
    *,
    smallest: int = 2_000_000,
    threads: int | None = None,
    lapack: bool = False,
) -> None:
    """Call ``work(first, last)`` on slices of ``len(cost)`` items, in parallel.

    Slices have about equal summed ``cost`` (any unit; work below ``smallest`` is not split).
    There are as many ``threads`` as cores if not told, of which the caller's is one: to start a
    thread takes as long as the attention of a few molecules. After an error no slice is begun.
    ``progress`` is told, slice by slice, how many graphs are ready: ``done`` of each item, or one.
    With ``lapack`` the work calls a library that has threads of its own: they are held to one each.
    """
    items, threads = len(cost), threads or cores()
    alone = threads == 1 or int(cost.sum()) < 2 * smallest
    if items and alone and progress is None:
        work(0, items)
        return
    total = np.concatenate([[0], np.cumsum(cost)])
    slices = int(min(items, max(1, total[-1] // smallest), 16 * threads))
    marks = np.searchsorted(total, np.linspace(0, total[-1], slices + 1)[1:-1])
    bounds = np.unique(np.concatenate([[0], marks, [items]])).tolist()
    spans = list(pairwise(bounds))

    turn = Lock()

    def take() -> tuple[int, int] | None:
        with turn:
            return spans.pop(0) if spans else None

    def share() -> None:
        try:
            while span := take():
                work(*span)
                if progress is not None:
                    with turn:
                        ready = span[1] - span[0] if done is None else done[slice(*span)].sum()
                        progress(int(ready))
        except BaseException:
            spans.clear()
            raise

    helpers = min(threads, len(spans)) - 1
    if helpers < 1:
        share()
        return
    with one_blas_thread() if lapack else nullcontext(), ThreadPoolExecutor(helpers) as pool:
        others = [pool.submit(share) for _ in range(helpers)]
        share()
        for other in others:
            other.result()
