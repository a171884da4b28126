"""What the shell offers after a TAB; nothing here waits for torch."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from gradformer.recipes import recipe_names, recipe_text
from gradformer.yaml_text import parse_yaml


def dataset_names() -> list[tuple[str, str]]:
    """Datasets, each with what it is."""
    from gradformer.graphs.cards import card_names, find_card

    return [(name, find_card(name).about) for name in card_names()]


def data_names(incomplete: str) -> list[tuple[str, str]]:
    """What can be trained on: datasets, recipes with a name of their own, files and folders.

    A recipe for one model on a dataset is chosen by ``--model``.
    """
    known = dict(dataset_names())
    of_models = {f"{name}-{model}" for name in known for model in model_names()}
    recipes = [(name, "a recipe") for name in recipe_names() if name not in {*known, *of_models}]
    return [*known.items(), *recipes, *((path, "") for path in _paths(incomplete))]


def preset_names() -> list[str]:
    """The presets of all recipes: the shell does not say which recipe an unfinished line means."""
    recipes = (parse_yaml(recipe_text(name)) for name in recipe_names())
    return sorted({name for recipe in recipes for name in recipe.get("presets") or ()})


def model_names() -> list[str]:
    """The models, found in their source: importing them takes longer than a finger waits."""
    names: list[str] = []
    for room in ("model", "zoo"):
        for file in files("gradformer").joinpath(room).iterdir():
            if file.name.endswith(".py"):
                text = file.read_text(encoding="utf-8")
                names += re.findall(r'^@register\("(\w+)"\)', text, re.MULTILINE)
    return sorted(names)


def choices(*words: str) -> Callable[[], list[str]]:
    """One of a few words."""
    return lambda: list(words)


def _paths(incomplete: str) -> list[str]:
    """Files and folders beside the unfinished word; hidden ones only if asked."""
    folder, _, start = incomplete.rpartition("/")
    place = Path(f"{folder}/" if folder or incomplete.startswith("/") else ".")
    if not place.is_dir():
        return []
    before = incomplete.removesuffix(start)
    hidden = start.startswith(".")
    shown = (path for path in place.iterdir() if hidden or not path.name.startswith("."))
    return sorted(f"{before}{path.name}" + ("/" if path.is_dir() else "") for path in shown)
