"""What is known of each benchmark before its files are opened: one YAML card a dataset."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Literal

from gradformer.errors import ConfigError, suggest, warn
from gradformer.graphs.arrays import Level, Task, tupled
from gradformer.yaml_text import parse_yaml

SplitKind = Literal["fixed", "random", "stratified", "kfold"]


@dataclass(frozen=True)
class Card:
    """One dataset.

    Attributes:
        name, title, aliases: how it is called; ``title`` as in papers.
        about: what the graphs are and what is predicted.
        reader, options: the source that reads its files, and what it is told.
        published: file that replaces the generator where a mirror has it.
        level, task, metric, protocol: what is predicted and how it is scored and split.
        split, sizes: the split used by default and the sizes of its three parts.
        ways: published splits to choose from by seed.
        per_class: training nodes a class in a random split (0: random splits are 8:1:1).
        graphs, mean_nodes, mean_edges, class_counts: what the files must give when they are read;
            edges count each pair once unless ``directed``.
        paper: the figures of the paper's appendix.
        files: path in the mirror → sha256.
        download: path in the mirror → address; a path that ends in "/" is a folder, which takes the
            content of the archive found there without its top folder.
    """

    name: str
    title: str
    about: str
    reader: str
    level: Level
    task: Task
    metric: str
    protocol: str
    split: SplitKind
    sizes: tuple[int, int, int]
    graphs: int
    mean_nodes: float
    mean_edges: float
    exactness: str
    citation: str
    aliases: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    published: str | None = None
    ways: int = 1
    per_class: int = 0
    directed: bool = False
    class_counts: tuple[int, ...] = ()
    paper: Mapping[str, float] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    download: Mapping[str, str] = field(default_factory=dict)

    def splits_by_seed(self, way: str = "auto") -> bool:
        """Whether each seed has its own split, in the card's way or in another."""
        return (self.split if way == "auto" else way) != "fixed" or self.ways > 1


def card_names() -> list[str]:
    """Names of all datasets, in alphabetical order."""
    return sorted(_cards())


def find_card(name: str) -> Card:
    """The card of a dataset by name, title or alias, in any case.

    >>> find_card("IMDB-B").name
    'imdb-binary'
    """
    card = _found(name)
    if card is None:
        near = suggest(name.strip().lower(), card_names())
        raise ConfigError(f"unknown dataset {name!r}; {near}")
    return card


def is_card(name: str) -> bool:
    """Whether ``name`` is a dataset that :func:`find_card` finds."""
    return _found(name) is not None


def named(data: object) -> Card | None:
    """The dataset that ``data`` names, if it does; a path never does, see :func:`tell_path`."""
    card = _found(data) if isinstance(data, str) else None
    if card is not None:
        tell_path(str(data))
    return card


def tell_path(name: str) -> None:
    """Warn if a file has the same name as a benchmark or recipe, which is taken everywhere."""
    if os.path.exists(name):
        warn(
            f"{name}: the benchmark of this name is taken; for the file or folder of the same name "
            f"say {os.path.join(os.curdir, name)} (in Python also Path({name!r}))"
        )


def _found(name: str) -> Card | None:
    wanted = name.strip().lower()
    cards = _cards().values()
    return next((c for c in cards if wanted in (c.name, c.title.lower(), *c.aliases)), None)


@cache
def _cards() -> dict[str, Card]:
    cards = {}
    for file in resources.files(__package__).iterdir():
        stem, _, suffix = file.name.rpartition(".")
        if suffix != "yaml":
            continue
        values = parse_yaml(file.read_text(encoding="utf-8"))
        cards[stem] = Card(**tupled(values), name=stem)
    return cards
