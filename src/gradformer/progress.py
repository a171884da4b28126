"""A progress bar for work that lasts, and silence for work that does not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress

PATIENCE = 2.0  # seconds
_bars = 0  # that are open


@contextmanager
def bar(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Give a function to be called with the number of items done since its last call.

    The bar appears on standard error, where that is no file, once the work has taken two seconds.
    Of work inside of other work the outer one is shown.
    """
    global _bars
    began, outermost = time.monotonic(), not _bars
    _bars += 1
    console = Console(stderr=True)
    seen = outermost and (console.is_terminal or console.is_jupyter)
    progress = Progress(console=console, transient=True)
    task = progress.add_task(label, total=total)

    def advance(items: int) -> None:
        progress.advance(task, items)
        if seen and time.monotonic() - began > PATIENCE and not progress.live.is_started:
            progress.start()

    try:
        yield advance
    finally:
        _bars -= 1
        if progress.live.is_started:  # a bar that was never shown would still end with a line
            progress.stop()
