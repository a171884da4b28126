"""Small trained models that come with the package: folders as ``gradformer export`` makes them.

``gradformer predict NAME FILE`` and ``Run.load(NAME)`` take them by name; ``README.md`` in a folder
says what was trained on what, and how well.
"""

from __future__ import annotations

from pathlib import Path


def published() -> dict[str, Path]:
    """Name → folder."""
    here = Path(__file__).parent
    return {path.parent.name: path.parent for path in sorted(here.glob("*/recipe.yaml"))}
