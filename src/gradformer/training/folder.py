"""The folder of a run: held by one process, and replaced only once its successor has begun.

``recipe.yaml`` is the last that is written when a run begins: a folder without it holds no run.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from gradformer.errors import InputError
from gradformer.graphs.atomic import lock
from gradformer.training.distributed import by_first
from gradformer.training.files import writing

RECIPE = "recipe.yaml"
WEIGHTS = "model.safetensors"
"""Of a trial that has ended."""
_LOCK, _OLD = ".lock", ".replaced"
_BEFORE = {_LOCK, "data.json", "examples"}  # what is there before the recipe


class BusyError(InputError):
    """Another process is at work in the folder."""


def check_free(folder: Path, overwrite: bool) -> None:
    """Raise unless a run may begin in ``folder``; nothing but a run is ever overwritten."""
    with writing(folder):
        if not folder.exists() or (folder.is_dir() and _is_free(folder)):
            return
    if not overwrite:
        raise InputError(
            f"{folder}: exists already; choose another folder, continue it with --resume, "
            "or replace it with --overwrite"
        )
    if not (folder / RECIPE).is_file():
        raise InputError(f"{folder}: not a run, so not overwritten; choose another folder")


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep other processes from working in ``folder``; freed however this one ends.

    Of processes that share a batch the first holds it for all.
    """
    with ExitStack() as lock:
        by_first(lambda: lock.enter_context(_locked(folder)))
        yield


@contextmanager
def replacing(folder: Path) -> Iterator[None]:
    """Inside, a run begins in ``folder``, which is held. An old run is put aside; it is removed
    when the new one has begun, and back in its place if that fails."""
    old = folder / _OLD
    with writing(folder):
        if (folder / RECIPE).exists():
            tidy(folder)
            move(folder, old, recipe_last=False)
        else:
            clear(folder)
    try:
        yield
    except BaseException:
        with suppress(OSError):  # of a disk that takes nothing back: the first error is said
            clear(folder)
            if old.exists():
                move(old, folder, recipe_last=True)
                old.rmdir()
        raise
    tidy(folder)


def tidy(folder: Path) -> None:
    """Remove an old run that a process had put aside before it was killed."""
    shutil.rmtree(folder / _OLD, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / _LOCK, "a")  # noqa: SIM115
    with file:
        try:
            lock(file, wait=False)
        except BlockingIOError:
            raise BusyError(
                f"{folder}: another process is at work there; wait for it, or choose another folder"
            ) from None
        yield


def _is_free(folder: Path) -> bool:
    """Whether there is nothing, or what a process left that ended before its run had begun."""
    names = {path.name for path in folder.iterdir()}
    if not names or (_OLD in names and RECIPE not in names):
        return True
    return _LOCK in names and all(n in _BEFORE or n.endswith(".unfinished") for n in names)


def clear(folder: Path) -> None:
    """Remove all that is in a folder, but what holds it or is put aside in it."""
    for path in _content(folder):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def move(source: Path, target: Path, recipe_last: bool) -> None:
    """Move all content; the recipe last, or first: it decides what counts as a run."""
    target.mkdir(exist_ok=True)
    for path in sorted(_content(source), key=lambda path: (path.name == RECIPE) is recipe_last):
        path.rename(target / path.name)


def _content(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name not in (_LOCK, _OLD)]
