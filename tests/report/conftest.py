"""Runs that the report's tests share, trained once."""

from __future__ import annotations

import pytest

from gradformer.training.run import Run
from tests.report import toys


@pytest.fixture(scope="session")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return toys.train(tmp_path_factory.mktemp("runs") / "classes")


@pytest.fixture(scope="session")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return toys.train(tmp_path_factory.mktemp("runs") / "numbers", "regression")


@pytest.fixture(scope="session")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return toys.train(tmp_path_factory.mktemp("runs") / "nodes", level="node")


@pytest.fixture(scope="session")
def variants(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """The four columns of the paper's Figure 1, and a model without attention."""
    folder = tmp_path_factory.mktemp("variants")
    options = {
        "decay": {},
        "plain": {"decay": 1.0},
        "bias": {"decay": 1.0, "profile": True},
        "position": {"decay": 1.0, "pe": "rwse", "pe_steps": 3, "pe_width": 2},
        "gin": {"name": "gin"},
    }
    return [toys.train(folder / name, **given) for name, given in options.items()]
