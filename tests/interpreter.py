"""Triton's interpreter, less a third of its time."""

from __future__ import annotations

from inspect import getmembers
from typing import Any


def find_builtins_once() -> None:
    """Let it remember which names of its language it replaces inside of a kernel.

    It asks all of them at every call of a function in a kernel, thousands of times in one test.
    """
    from triton import language as tl
    from triton.runtime import interpreter

    known: dict[Any, list[str]] = {}

    def replace(place: Any, *others: Any) -> None:  # which they are differs between releases
        if place not in known:
            found = getmembers(place, tl.core.is_builtin)
            known[place] = [name for name, _ in found]
        for name in known[place]:
            member = getattr(place, name)
            if tl.core.is_builtin(member):  # else it is replaced already
                interpreter._patch_attr(place, name, member, *others)

    interpreter._patch_builtin = replace
