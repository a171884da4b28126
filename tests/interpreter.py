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

    def builtins(place: Any) -> list[str]:
        return [name for name, member in getmembers(place) if tl.core.is_builtin(member)]

    places = tl, tl.core, tl.math, tl.tensor, tl.core.tensor_descriptor_base
    known = {place: builtins(place) for place in places}

    def replace(place: Any, builder: Any, scope: Any) -> None:
        for name in known.get(place) or builtins(place):
            member = getattr(place, name)
            if tl.core.is_builtin(member):
                interpreter._patch_attr(place, name, member, builder, scope)

    interpreter._patch_builtin = replace
