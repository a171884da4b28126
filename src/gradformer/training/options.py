"""Plain values, from YAML or ``--set``, to typed dataclasses; what does not fit is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from gradformer.errors import ConfigError, choice, suggest
from gradformer.yaml_text import parse_yaml

Options = TypeVar("Options")
_types: Any = cache(get_type_hints)  # a range of a search asks once for each of its values
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def build(kind: type[Options], values: Mapping[str, Any], where: str) -> Options:
    """A ``kind`` from its fields by name; ``where`` is what stands before a field in messages."""
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    types = _types(kind)
    for name in values:
        if name not in known:
            raise ConfigError(f"{where}{name}: unknown option; {suggest(str(name), known)}")
    for name in known:
        _without_none(types[name], f"{where}{name}")
    return kind(**{n: convert(v, types[n], f"{where}{n}") for n, v in values.items()})


def convert(value: Any, kind: Any, where: str) -> Any:
    """``value`` as ``kind``; texts are read, whole numbers become floats where floats are wanted.

    >>> convert("1e-3", float, "train.lr"), convert("2", Literal[1, 2], "model.order")
    (0.001, 2)
    """
    if get_origin(kind) in (UnionType, Union):
        if NoneType in get_args(kind) and value in (None, "none"):
            return None
        kind = _without_none(kind, where)
    if get_origin(kind) is Literal:
        known = {str(option): option for option in get_args(kind)}
        return known[choice(where, str(value), known)]
    try:
        if kind is bool:
            return value if isinstance(value, bool) else _BOOLEANS[str(value).lower()]
        if kind is str and isinstance(value, str | int | float) and not isinstance(value, bool):
            return str(value)
        if kind is int and not isinstance(value, bool) and float(value) == int(float(value)):
            return int(float(value))
        if kind is float and not isinstance(value, bool):
            return float(value)
        if get_origin(kind) is tuple:
            items = parse_yaml(value) if isinstance(value, str) else value
            if isinstance(items, Sequence) and not isinstance(items, str):
                return tuple(convert(item, get_args(kind)[0], where) for item in items)
    except (KeyError, ValueError, TypeError, OverflowError, yaml.YAMLError):
        pass
    raise ConfigError(f"{where}: got {value!r}, expected {_describe(kind)}")


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with the values of ``over`` in its place, section by section.

    Options of another model do not survive a change of ``model.name``.
    """
    merged = dict(base)
    for name, value in over.items():
        old = merged.get(name)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            other = name == "model" and value.get("name", old.get("name")) != old.get("name")
            merged[name] = dict(value) if other else merge(old, value)
        else:
            merged[name] = value
    return merged


def setting(text: str) -> dict[str, Any]:
    """``a.b=c`` as nested values.

    >>> setting("model.layers=6")
    {'model': {'layers': '6'}}
    """
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise ConfigError(f"--set {text!r}: expected name=value, as in --set model.layers=6")
    nested: Any = value.strip()
    for name in reversed(path.strip().split(".")):
        nested = {name: nested}
    return dict(nested)


def flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Nested values by their whole names.

    >>> flat({"model": {"layers": 6}, "trials": 1})
    {'model.layers': 6, 'trials': 1}
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        nested = isinstance(value, Mapping)
        found |= flat(value, f"{before}{name}.") if nested else {f"{before}{name}": value}
    return found


def _without_none(kind: Any, where: str) -> Any:
    """The type of a field without its None; raise unless texts can be read as that type."""
    union = get_origin(kind) in (UnionType, Union)
    found = [one for one in (get_args(kind) if union else [kind]) if one is not NoneType]
    origins = {get_origin(one) or one for one in found}
    tuples = [one for one in found if tuple in (one, get_origin(one))]
    unlike = any(len({*get_args(one)} - {...}) != 1 for one in tuples)
    if len(found) != 1 or unlike or not origins <= {bool, int, float, str, tuple, Literal}:
        raise ConfigError(
            f"{where}: the type {kind} cannot be written in a recipe; use bool, int, float, str, "
            "Literal or a tuple of one of these, or one of them | None"
        )
    return found[0]


def _describe(kind: Any) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
    return names.get(kind, "a list")
