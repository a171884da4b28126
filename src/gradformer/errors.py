"""What goes wrong on a user's side, said in one line.

Every message names the thing (argument, file and row, option), what came, and the remedy. The
command line prints it without a traceback.
"""

from __future__ import annotations

import difflib
import math
import sys
import warnings
from collections.abc import Iterable
from numbers import Integral, Real


class GradformerError(Exception):
    """Root of all errors that a user can cause and mend."""


class InputError(GradformerError, ValueError):
    """A tensor, file, row or column is not what it should be."""


class ConfigError(GradformerError, ValueError):
    """An option or configuration key is unknown or has an impossible value."""


class OptionError(ConfigError):
    """``where`` has no option ``name``; ``known`` are those that it has."""

    def __init__(self, name: str, where: str, known: Iterable[str]) -> None:
        self.name, self.where, self.known = name, where, [*known]
        super().__init__(f"{name}: no option for {where}; {suggest(name, self.known)}")


class GradformerWarning(UserWarning):
    """Something worth knowing that does not stop the work."""


def spent(error: BaseException) -> GradformerError | None:
    """What to do where ``error`` says that there is no memory left; None if it says another thing.

    Told by names and words, so that a program can ask before it has loaded torch: CUDA's own
    errors, of a graph or a kernel that finds no room, are no OutOfMemoryError of torch; and a
    capture that found none may end in an error of its own, which came while that was handled.
    """
    if isinstance(error, GradformerError):
        return None
    text = f"{error} {error.__context__ or ''}"
    on_gpu = any(word in text for word in ("out of memory", "ALLOC_FAILED"))
    if not (on_gpu or isinstance(error, MemoryError) or "can't allocate memory" in text):
        return None
    asked = f"{text}. ".partition("Tried to allocate ")[2].partition(". ")[0]
    where, instead = ("the GPU", ", or the CPU: --device cpu") if on_gpu else ("this machine", "")
    return GradformerError(
        f"{where} has no memory left{f' for {asked} more' if asked else ''}; end what else runs "
        f"there, take a smaller batch or model{instead}"
    )


def warn(text: str) -> None:
    """Give a :class:`GradformerWarning`, as of the line outside of the package that led to it."""
    frame, level = sys._getframe().f_back, 2
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "gradformer":
        frame, level = frame.f_back, level + 1
    warnings.warn(text, GradformerWarning, stacklevel=level)


def counted(number: int, thing: str) -> str:
    """A number of things, in words that agree with it.

    >>> counted(1, "class"), counted(2, "class"), counted(2, "entry"), counted(1000, "row")
    ('1 class', '2 classes', '2 entries', '1,000 rows')
    """
    ending = {"y": "ies", "s": "ses"}.get(thing[-1], f"{thing[-1]}s")
    return f"{number:,} {thing if number == 1 else thing[:-1] + ending}"


def suggest(name: str, known: Iterable[str]) -> str:
    """A sentence naming the nearest known spelling of ``name``, or all of them.

    >>> suggest("hedas", ["heads", "layers"]), suggest("GIN", ["gin"])
    ("did you mean 'heads'?", "did you mean 'gin'?")
    >>> suggest("learnig_rate", ["learn_decay", "lr"]), suggest("wd", ["lr", "weight_decay"])
    ("did you mean 'lr'?", "did you mean 'weight_decay'?")
    >>> suggest("tuned", ["authors", "paper"]), suggest("tuned", [])
    ('known: authors, paper', 'nothing fits here: leave it out')
    >>> suggest("", ["lr", "clip"])
    'known: clip, lr'
    """
    options = sorted(known)
    if not options:
        return "nothing fits here: leave it out"
    near = nearest(name, options)
    return f"known: {', '.join(options)}" if near is None else f"did you mean '{near}'?"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known spelling of ``name``: its initials or one with these, else one that is like it."""
    given, lower = name.lower(), {option.lower(): option for option in known}
    near = [other for other in lower if other == _initials(given) or given == _initials(other)]
    near += difflib.get_close_matches(given, lower, n=1)
    return lower[near[0]] if near else None


def _initials(name: str) -> str | None:
    """The first letters of the words of a name: lr of learning_rate; None of one word."""
    words = name.replace("-", "_").split("_")
    return "".join(word[:1] for word in words) if len(words) > 1 else None


def at_least(argument: str, value: float, lowest: float) -> None:
    """Raise a :class:`ConfigError` unless ``value`` is a number, whole if ``lowest`` is, and no
    less."""
    whole = isinstance(lowest, int)
    if not isinstance(value, Integral if whole else Real) or isinstance(value, bool):
        raise ConfigError(f"{argument}: got {value!r}, expected a {'whole ' * whole}number")
    if not value >= lowest:
        raise ConfigError(f"{argument}: got {value}, expected at least {lowest}")


def finite(argument: str, value: float) -> None:
    """Raise a :class:`ConfigError` unless ``value`` is one number, and a finite one."""
    try:
        fits = math.isfinite(value)
    except (TypeError, ValueError, RuntimeError):  # no number, or a tensor of several
        fits = False
    if not fits:
        raise ConfigError(f"{argument}: got {value!r}, expected a finite number")


def choice(argument: str, value: str, known: Iterable[str]) -> str:
    """Return ``value`` if it is one of ``known``, else raise a :class:`ConfigError` that helps."""
    options = list(known)
    if value not in options:
        raise ConfigError(f"{argument}: unknown value {value!r}; {suggest(str(value), options)}")
    return value
