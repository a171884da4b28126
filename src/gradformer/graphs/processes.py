"""A function of one molecule, applied to many: shared among processes where there are enough.

RDKit holds the interpreter lock, so threads would wait for each other. The helpers are interpreters
of their own, which import what the function needs: no torch, nothing of a GPU. They are not forked,
which is unsafe beside threads, beside a GPU and on macOS. Nor are they made by ``multiprocessing``,
which would run the user's script a second time in each of them, unless it is written for that.

What is pickled goes through pipes that only this process and its helpers hold, and is theirs:
molecules are text in it, and what a library prints is kept out.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from signal import Signals
from subprocess import PIPE, Popen
from threading import Event
from typing import TypeVar

from gradformer.cores import cores
from gradformer.errors import GradformerError, InputError, counted

Result = TypeVar("Result")
Helper = Popen[bytes]

WORTHWHILE = 1000
"""Molecules, at a third of a millisecond or more each, for which a helper is worth its start."""
MOST = 16
"""Helpers; more of them would wait for the process that collects what they find."""
SHARE = 256
"""Molecules that a helper gets at once."""
CRASHES = (Signals.SIGSEGV, Signals.SIGBUS, Signals.SIGABRT, Signals.SIGILL, Signals.SIGFPE)
"""How a molecule ends a helper; it would end this process too, and without a word."""
READY = b"ready to read molecules\n"
"""What a helper says first. Who says anything else, or nothing, is none."""


def each(
    function: Callable[[str], Result], words: Sequence[str]
) -> Generator[Result | InputError, None, None]:
    """The result of ``function``, one of a module's own, for each word in turn, or its error.

    All is as if one process did it. The work is never far ahead of what is taken, however many
    words there are. Close the generator if it is left before its end.
    """
    with _started(min(cores(), MOST, len(words) // WORTHWHILE)) as helpers:
        if len(helpers) < 2:
            yield from (_attempt(function, word) for word in words)
        else:
            yield from _by(helpers, function, words)


def sound(found: Result | InputError) -> Result:
    """What :func:`each` found, unless it is an error, which is raised."""
    if isinstance(found, InputError):
        raise found
    return found


def _attempt(function: Callable[[str], Result], word: str) -> Result | InputError:
    try:
        return function(word)
    except InputError as error:
        return error


def _by(
    helpers: list[Helper], function: Callable[[str], Result], words: Sequence[str]
) -> Iterator[Result | InputError]:
    """As :func:`each`. A thread waits for each helper, and does its work if the helper is dead."""
    idle: SimpleQueue[Helper] = SimpleQueue()
    left = Event()
    for helper in helpers:
        idle.put(helper)

    def work(share: Sequence[str]) -> list[Result | InputError]:
        helper = idle.get()
        try:
            return _ask(helper, function, share)
        except EOFError:
            return [_attempt(function, word) for word in share if not left.is_set()]
        finally:
            idle.put(helper)

    ahead: deque[Future[list[Result | InputError]]] = deque()
    with ThreadPoolExecutor(len(helpers)) as pool:
        try:
            for first in range(0, len(words), SHARE):
                ahead.append(pool.submit(work, words[first : first + SHARE]))
                if len(ahead) > 2 * len(helpers):
                    yield from ahead.popleft().result()
            while ahead:
                yield from ahead.popleft().result()
        finally:
            left.set()
            pool.shutdown(wait=False, cancel_futures=True)
            for helper in helpers:
                helper.kill()


def _ask(
    helper: Helper, function: Callable[[str], Result], share: Sequence[str]
) -> list[Result | InputError]:
    """What a helper finds for its share; an EOFError if it gave up, or was ended from outside."""
    assert helper.stdin is not None
    assert helper.stdout is not None
    try:
        pickle.dump((function, share), helper.stdin)
        helper.stdin.flush()
        found: list[Result | InputError] = pickle.load(helper.stdout)
        return found
    except (OSError, EOFError, pickle.UnpicklingError):
        if -helper.wait() not in CRASHES:
            raise EOFError from None
        molecules = f"{counted(len(share), 'molecule')}, the first {share[0][:60]!r}"
        raise GradformerError(
            f"a process that read {molecules}, crashed ({Signals(-helper.returncode).name}); find "
            "the one that is at fault and leave it out, or make room if memory is short"
        ) from None


@contextmanager
def _started(count: int) -> Iterator[list[Helper]]:
    """So many helpers, or those that could be started. None if there would be only one, or if the
    executable is not Python but a program that contains it."""
    wanted = count > 1 and sys.executable and not getattr(sys, "frozen", False)
    program = f"from {__name__} import serve; serve()"
    own = {"PYTHONPATH": os.pathsep.join(map(str, sys.path)), "OPENBLAS_NUM_THREADS": "1"}
    helpers: list[Helper] = []
    try:
        with suppress(OSError):
            for _ in range(count if wanted else 0):
                helpers.append(
                    Popen(
                        [sys.executable, "-P", "-c", program],
                        stdin=PIPE,
                        stdout=PIPE,
                        env={**os.environ, **own},
                        process_group=0,  # Ctrl-C reaches this process alone, which ends them
                    )
                )
        yield [helper for helper in helpers if _is_ready(helper)]
    finally:
        for helper in helpers:
            helper.kill()
            with suppress(BrokenPipeError), helper:  # closes its pipes and waits for it
                pass


def _is_ready(helper: Helper) -> bool:
    assert helper.stdout is not None
    return helper.stdout.read(len(READY)) == READY


def serve() -> None:
    """What a helper does, until nobody asks any more, or until it cannot answer."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # so that what a library prints does not get among them
    with suppress(Exception):
        answers.write(READY)
        while True:
            answers.flush()
            function, words = pickle.load(sys.stdin.buffer)
            found = [_attempt(function, word) for word in words]
            answers.write(pickle.dumps(found, pickle.HIGHEST_PROTOCOL))
    os._exit(0)  # in silence, even if the pipe is gone
