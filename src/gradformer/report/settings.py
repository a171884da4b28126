"""What the numbers depend on: protocol, every option of the recipe, versions, the machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gradformer.graphs.cards import find_card
from gradformer.grouping import grouped
from gradformer.report.history import History
from gradformer.report.markup import Content, Markup, facts, fold, join, table, tag
from gradformer.training.metrics import metric_name
from gradformer.training.options import flat
from gradformer.training.records import environments


def settings_section(histories: Sequence[History]) -> Markup:
    """Configuration and environment; several runs first show where they differ."""
    options = [
        {name: _written(value) for name, value in flat(history.run.recipe.to_dict()).items()}
        for history in histories
    ]
    surroundings = [surroundings_of(history) for history in histories]
    parts: list[Content] = []
    if len(histories) > 1:
        values = [{**a, **b} for a, b in zip(options, surroundings)]
        parts.append(_differences(values, histories))
    for history, own, around in zip(histories, options, surroundings):
        tables = tag("div", *_tables(own, around), class_="beside")
        parts.append(tables if len(histories) == 1 else fold(history.label, tables))
    return join(parts)


def _tables(options: Mapping[str, str], around: Mapping[str, str]) -> list[Markup]:
    """Options by section of the recipe, then the environment."""
    sections: dict[str, dict[str, str]] = {}
    for path, value in options.items():
        section, _, name = path.rpartition(".")
        sections.setdefault(section or "recipe", {})[name] = value
    return [facts(name, rows.items()) for name, rows in {**sections, "environment": around}.items()]


def _differences(values: Sequence[Mapping[str, str]], histories: Sequence[History]) -> Markup:
    names = dict.fromkeys(name for one in values for name in one)
    rows = []
    for name in names:
        having = [one[name] for one in values if name in one]
        if len(set(having)) > 1 and name != "began":
            rows.append([name, *(one.get(name, "–") for one in values)])
    head = ["option", *(history.label for history in histories)]
    return table("Where the runs differ", head, rows, names=len(head))


def surroundings_of(history: History) -> dict[str, str]:
    """Device, versions, commit and data of a run, as names and values."""
    found = {
        "began": history.header.get("time"),
        **machine(environments(history.record)),
        "data content": str(history.run.origin.get("content", ""))[:16],
        "resumed": sum(line["kind"] == "resume" for line in history.record) or None,
    }
    return {name: str(value) for name, value in found.items() if value not in (None, "")}


def machine(places: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Device, versions and commit, as names and values; where a run was continued, of all places.

    >>> machine([{"python": "3.12", "commit": "3d2890b"}, {"python": "3.12", "commit": "c97c117"}])
    {'python': '3.12', 'commit': '3d2890b then c97c117'}
    """
    found: dict[str, list[str]] = {}
    for around in places:
        device = (around.get(name) for name in ("device", "device_name"))
        known = {
            "device": " · ".join(str(name) for name in device if name),
            **{name: around.get(name) for name in ("processes", "threads", "python")},
            **around.get("versions", {}),
            "commit": (around.get("commit") or "")[:12],
        }
        for name, value in known.items():
            if value not in (None, "") and str(value) not in found.setdefault(name, []):
                found[name].append(str(value))
    return {name: " then ".join(values) for name, values in found.items() if values}


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_written, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def protocols(histories: Sequence[History]) -> Markup:
    """The protocol of all runs; where they differ, whose is which."""
    own = [(history.label, dict(protocol(history))) for history in histories]
    rows: list[tuple[str, Content]] = []
    for name in dict.fromkeys(name for _, found in own for name in found):
        whose = grouped((found.get(name, "–"), label) for label, found in own)
        named = [f"{', '.join(labels)}: {text}" for text, labels in whose.items()]
        rows.append((name, "; ".join(whose if len(whose) == 1 else named)))
    return facts("Protocol", rows)


def protocol(history: History) -> tuple[tuple[str, str], ...]:
    """How the numbers of a run came about, as names and values."""
    recipe, about = history.run.recipe, history.header.get("data", {})
    seeds = f"{recipe.seed} to {recipe.seed + recipe.trials - 1}"
    source = Path(recipe.train.weights).name
    chosen = metric_name(history.metric if recipe.train.select == "auto" else recipe.train.select)
    rows = [
        ("data", history.data),
        ("task", f"{history.run.schema.level} {history.run.schema.task}"),
        ("benchmark protocol", None if _departs(history) else about.get("protocol")),
        ("data exactness", about.get("exactness")),
        ("split", _split(history)),
        ("share of the training part", f"{100 * recipe.data.fraction:g} %"),
        ("seeds", seeds if recipe.trials > 1 else str(recipe.seed)),
        ("fine-tuned from", None if source == "none" else source),
        ("selection", f"first epoch with the best validation {chosen}"),
        ("test", "evaluated once a trial, with the weights of the selected epoch"),
        ("spread", "sample standard deviation (n − 1) over trials that ended well"),
    ]
    return tuple((name, str(value)) for name, value in rows if value)


def _departs(history: History) -> bool:
    """Whether a benchmark is split in another way than its protocol says."""
    if history.run.origin["kind"] != "benchmark":
        return False
    own = find_card(history.run.recipe.dataset).split
    return history.run.recipe.data.split not in ("auto", own)


def _split(history: History) -> str:
    """How the parts were made, and for the benchmark's own split how large they are."""
    kind = history.run.recipe.data.split
    if kind == "kfold":
        return "ten folds: trial k is tested on fold k, validated on the next"
    if _departs(history):
        return kind
    if history.run.origin["kind"] == "benchmark":
        card = find_card(history.run.recipe.dataset)
        several = f", one of {card.ways} by seed" if card.ways > 1 else ""
        way = f"by the benchmark{several}" if card.split == "fixed" else f"{card.split} by seed"
        return f"{way}: {' / '.join(f'{size:,}' for size in card.sizes)}"
    way = str(history.run.origin.get("split", kind))
    column = "the data's own column"
    known = {"column": column, "auto": f"{column}, else by seed"}  # auto: of an earlier version
    return known.get(way, f"{way} by seed")
