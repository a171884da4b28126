"""What the verbs that train do alike: ``--resume``, raw files, budgets, and the smoke switch."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from gradformer.errors import ConfigError


def option_word(name: str) -> str:
    """The option of the command line for a parameter.

    >>> option_word("skip_invalid")
    '--skip-invalid'
    """
    return f"--{name.replace('_', '-')}"


def reading_words(reading: Mapping[str, Any]) -> list[str]:
    """Options of reading, as :class:`TrainingFile` gives them, as words of a command line.

    >>> reading_words({"smiles": "mol", "target": ["a", "b"], "skip_invalid": True})
    ['--smiles', 'mol', '--target', 'a', '--target', 'b', '--skip-invalid']
    >>> reading_words({"skip_invalid": False})
    []
    """
    words = []
    for name, given in reading.items():
        for value in given if isinstance(given, list) else [given]:
            if value is not False:
                words += [option_word(name), *([] if value is True else [value])]
    return words


def refuse_others(ctx: typer.Context, what: str, allowed: Collection[str]) -> None:
    """With ``--resume`` go only the parameters ``allowed``: the rest is as it was begun."""
    options = {each.name: max(each.opts, key=len) for each in ctx.command.params}
    for name in ctx.params:
        source = ctx.get_parameter_source(name)
        if name not in allowed and source is not None and source.name == "COMMANDLINE":
            raise ConfigError(
                f"{options[name]}: cannot go with --resume, which continues {what} as it was "
                "begun; leave it out, or begin anew with another --out"
            )


def use_mirror(folder: Path | None) -> None:
    """Take raw files from a folder by the environment alone: records name no folder of it."""
    if folder is not None:
        os.environ["GRADFORMER_DATA"] = str(folder)


def end_of(budget: float | None) -> float | None:
    """When so many minutes are over, on the monotonic clock."""
    return None if budget is None else time.monotonic() + 60 * budget


def tell(text: str) -> None:
    """A line on standard error, which is not what was asked for."""
    from gradformer.training.progress import telling

    with telling():
        typer.echo(text, err=True)


@contextmanager
def stopping_in_time() -> Iterator[None]:
    """Inside, the end of a budget is no error: it is said, and what follows is left out."""
    from gradformer.training.distributed import is_first
    from gradformer.training.stop import StoppedError

    try:
        yield
    except StoppedError as stopped:
        if stopped.signal != signal.SIGALRM:
            raise
        if is_first():
            tell(str(stopped))


def smoke_settings() -> list[str]:
    """Settings that make any training short, where :func:`smoking` says so."""
    if not smoking():
        return []
    return ["train.epochs=1", "data.fraction=0.1", "model.layers=1", "train.batch_size=8"]


def smoke_trials(trials: int | None) -> int | None:
    """At most two trials, where :func:`smoking` says so."""
    return min(trials or 2, 2) if smoking() else trials


def smoking() -> bool:
    """Whether GRADFORMER_SMOKE=1: every command does all it does, on little, for tests."""
    return os.environ.get("GRADFORMER_SMOKE") == "1"
