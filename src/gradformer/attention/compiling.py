"""Words for ``torch.compile`` that do not load it: it is a third of what a command loads."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def constant_when_compiled(function: Function) -> Function:
    """``torch.compiler.assume_constant_result``."""
    function.__dict__["_dynamo_marked_constant"] = True
    return function


def never_compiled(function: Function) -> Function:
    """``torch.compiler.disable``."""

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if torch.compiler.is_compiling():
            return torch.compiler.disable(function)(*args, **options)
        return function(*args, **options)

    return call  # type: ignore[return-value]
