"""One YAML file for each dataset, and for each baseline where it differs."""

from __future__ import annotations

from importlib.resources import files


def recipe_names() -> list[str]:
    """The recipes that come with the package."""
    found = (file.name for file in files(__name__).iterdir())
    return sorted(name.removesuffix(".yaml") for name in found if name.endswith(".yaml"))


def recipe_text(name: str) -> str:
    """What stands in one of them."""
    return files(__name__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
