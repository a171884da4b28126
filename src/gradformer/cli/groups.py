"""Options that a verb takes together: a dataclass is one parameter of the verb, and as many of the
command as it has fields."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter
from typing import Any, get_type_hints


def grouped(verb: Callable[..., None]) -> Callable[..., None]:
    """``verb`` as typer takes it: the fields of its groups in the place of these."""
    hints = get_type_hints(verb, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    flat = []
    for name, given in inspect.signature(verb).parameters.items():
        members = {name: given.default}
        if name in groups:
            members = {field.name: field.default for field in fields(groups[name])}
            hints |= get_type_hints(groups[name], include_extras=True)
        flat += [
            Parameter(member, Parameter.KEYWORD_ONLY, default=default, annotation=hints[member])
            for member, default in members.items()
        ]

    @wraps(verb)
    def command(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        verb(**given)

    command.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    return command
