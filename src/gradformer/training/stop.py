"""Someone asks to stop: a signal, or the clock."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from gradformer.errors import GradformerError
from gradformer.model.parallel import is_shared


class StoppedError(GradformerError):
    """Training was asked to stop and has saved its state; ``signal`` is what asked."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.signal = signal_number


class Stop:
    """Whether a signal has asked to stop. A second one ends the process at once, but for SIGHUP:
    when a terminal ends, its shell sends that, and then the system does too.

    At ``until``, on the monotonic clock, it is as if an alarm (SIGALRM) had asked.
    """

    def __init__(self, until: float | None = None) -> None:
        self.signal: int | None = None
        self.until = until

    @contextmanager
    def listening(self) -> Iterator[Stop]:
        """Inside, SIGINT, SIGTERM and SIGHUP are noted (in the main thread only)."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        asking = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.getsignal(number) for number in asking}
        if before[signal.SIGHUP] is signal.SIG_IGN:  # by nohup: the end of a terminal is nothing
            del before[signal.SIGHUP]

        def note(number: int, frame: Any) -> None:
            if self.signal is not None and number != signal.SIGHUP:
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)
            self.signal = number

        try:
            for number in before:
                signal.signal(number, note)
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def agreed(self) -> bool:
        """Whether any process that shares the batch was asked; all get the same answer."""
        if self.signal is None and self.until is not None and time.monotonic() >= self.until:
            self.signal = signal.SIGALRM
        if not is_shared():
            return self.signal is not None
        asked = torch.tensor(self.signal or 0)
        torch.distributed.all_reduce(asked, torch.distributed.ReduceOp.MAX)
        self.signal = int(asked) or None
        return self.signal is not None
