"""The folder of a run: held by one process, and filled all or nothing.

``recipe.yaml`` is the last that comes and the first that goes: a folder without it holds no run.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gradformer.errors import InputError
from gradformer.graphs.atomic import lock
from gradformer.training.distributed import by_first
from gradformer.training.files import writing

RECIPE = "recipe.yaml"
WEIGHTS = "model.safetensors"
"""Of a trial that has ended."""
LOCK, _NEW = ".lock", ".unfinished"


class BusyError(InputError):
    """Another process is at work in the folder."""


def check_free(folder: Path, overwrite: bool) -> None:
    """Raise unless a run may begin in ``folder``; nothing but a run is ever overwritten."""
    with writing(folder):
        if not folder.exists() or (folder.is_dir() and is_free(folder)):
            return
    if not (folder / RECIPE).is_file():
        raise InputError(f"{folder}: exists already and is not a run; choose another folder")
    if not overwrite:
        raise InputError(
            f"{folder}: exists already; choose another folder, continue it with --resume, "
            "or replace it with --overwrite"
        )


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep other processes from working in ``folder``; freed however this one ends.

    Of processes that share a batch the first holds it for all.
    """
    with ExitStack() as lock:
        by_first(lambda: lock.enter_context(_locked(folder)))
        yield


@contextmanager
def filling(folder: Path) -> Iterator[Path]:
    """Give an empty folder for the files of a run, inside of ``folder``, which is held. When the
    block ends well they take the place of all that was there."""
    new = folder / _NEW
    old = new / _NEW
    with writing(folder):
        tidy(folder)
        new.mkdir()
        try:
            yield new
            _move(folder, old, recipe_last=False)
        except BaseException:
            if old.exists():
                _move(old, folder, recipe_last=True)
            tidy(folder)
            raise
        _move(new, folder, recipe_last=True)
        tidy(folder)


def tidy(folder: Path) -> None:
    """Remove what a process had not finished, or not yet removed, when it was killed."""
    shutil.rmtree(folder / _NEW, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / LOCK, "a")  # noqa: SIM115
    with file:
        try:
            lock(file, wait=False)
        except BlockingIOError:
            raise BusyError(
                f"{folder}: another process is at work there; wait for it, or choose another folder"
            ) from None
        yield


def is_free(folder: Path) -> bool:
    """Whether nothing is there but what a process left that was killed before its run began."""
    names = {path.name for path in folder.iterdir()}
    return names <= {LOCK} or (names >= {LOCK, _NEW} and RECIPE not in names)


def _move(source: Path, target: Path, recipe_last: bool) -> None:
    """Move all content; the recipe last, or first: it decides what counts as a run."""
    target.mkdir(exist_ok=True)
    content = [path for path in source.iterdir() if path.name not in (LOCK, _NEW)]
    for path in sorted(content, key=lambda path: (path.name == RECIPE) is recipe_last):
        path.rename(target / path.name)
