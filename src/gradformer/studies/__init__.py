"""The paper's tables and figures, one small file each over recipes, and what carries them out.

A ``study`` is a list of cells: ``table1``, ``baselines``, ``deep``, ``low_resource``, ``ablation``,
``index``, ``decay``, ``efficiency``, ``nodes``, ``attention``, ``starts``. The ``runner`` trains
them, and ``rivals`` beside them; ``looking`` finds what is known of them. Written down are
``tables`` with the numbers of the ``paper`` and ``differences``, ``figures``, and a ``page`` of
each.
"""

from __future__ import annotations

from gradformer.errors import ConfigError, suggest
from gradformer.studies import (
    ablation,
    attention,
    baselines,
    decay,
    deep,
    efficiency,
    index,
    low_resource,
    nodes,
    starts,
    table1,
)
from gradformer.studies.study import Study

__all__ = ["STUDIES", "find_study"]

_FILES = (
    *(table1, baselines, deep, low_resource, ablation, index, decay, efficiency, nodes),
    *(attention, starts),
)
STUDIES: dict[str, Study] = {file.STUDY.name: file.STUDY for file in _FILES}


def find_study(name: str) -> Study:
    """A study by name."""
    if name not in STUDIES:
        raise ConfigError(f"NAME: there is no study {name!r}; {suggest(name, STUDIES)}")
    return STUDIES[name]
