"""One golden file, and what an adapter gives to be held against it."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gradformer.errors import ConfigError

Transform = Callable[[Tensor], Tensor]


def same(value: Tensor) -> Tensor:
    """No transform."""
    return value


@dataclass(frozen=True)
class Ref:
    """A reference entry: its name, and the permutation or slice that makes ours of it.

    Where one tensor of ours holds the rows of several entries, ``more`` names those after the
    first.
    """

    name: str
    transform: Transform = same
    more: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.more)

    def within(self, entries: Container[str]) -> bool:
        """Whether all that it names is there."""
        return all(name in entries for name in self.names)

    def of(self, entries: Mapping[str, Tensor]) -> Tensor:
        """Ours, made of the reference's entries."""
        if not self.more:
            return self.transform(entries[self.name])
        return self.transform(torch.cat([entries[name] for name in self.names]))


class Options(dict[str, Any]):
    """A file's config, which remembers what was read of it, sections included."""

    def __init__(self, values: dict[str, Any]) -> None:
        made = {n: Options(v) if isinstance(v, dict) else v for n, v in values.items()}
        super().__init__(made)
        self.seen: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.seen.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.seen.add(name)
        return super().get(name, default)

    def only(self, **known: Any) -> None:
        """Refuse a value other than ``known``, which the reference has but our model has not."""
        for name, value in known.items():
            if self.get(name, value) != value:
                raise ConfigError(f"{name}: {self[name]!r} is not built, only {value!r} is")

    def unread(self) -> list[str]:
        """``name=value`` of the plain entries that nobody has asked for."""
        plain = (bool, int, float, str, type(None))
        found = [
            f"{name}={value}"
            for name, value in self.items()
            if name not in self.seen and isinstance(value, plain) and len(str(value)) < 40
        ]
        for value in self.values():
            found += value.unread() if isinstance(value, Options) else []
        return found


class Case:
    """A golden file; ``prefix`` selects one of several models in it."""

    def __init__(self, path: Path | str, prefix: str = "") -> None:
        self.path, self.prefix = Path(path), prefix
        with np.load(self.path, allow_pickle=False) as file:
            self.arrays = {name: file[name] for name in file.files}
        self.config = Options(json.loads(str(self.arrays["config_json"])))

    def __contains__(self, name: str) -> bool:
        return self.prefix + name in self.arrays or name in self.arrays

    def __getitem__(self, name: str) -> Tensor:
        """An array as a tensor; names with the prefix come first."""
        key = self.prefix + name if self.prefix + name in self.arrays else name
        return torch.from_numpy(np.array(self.arrays[key]))

    def under(self, folder: str) -> dict[str, Tensor]:
        """All arrays ``folder/<name>`` by name."""
        start = f"{self.prefix}{folder}/"
        return {
            name.removeprefix(start): torch.from_numpy(np.array(value))
            for name, value in self.arrays.items()
            if name.startswith(start)
        }

    @cached_property
    def params(self) -> dict[str, Tensor]:
        return self.under("param")


@dataclass
class Subject:
    """Our model beside one case.

    Args:
        case: the file.
        model: ours, built from the config.
        names: our parameter or buffer name → reference entry. All our parameters must be here.
        observe: run in eval mode; golden key (``out``, ``hidden/0``, ``attn/1`` …) → our value.
        train: run in train mode; at least ``out_train`` and ``loss`` (with its graph).
        select: golden key → function that takes the comparable part of the stored array.
        inputs: golden gradient key (``grad_pe`` …) → our leaf tensor.
    """

    case: Case
    model: nn.Module
    names: dict[str, Ref]
    observe: Callable[[], dict[str, Tensor]]
    train: Callable[[], dict[str, Tensor]]
    select: dict[str, Transform] = field(default_factory=dict)
    inputs: dict[str, Tensor] = field(default_factory=dict)
