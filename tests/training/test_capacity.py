"""The capacity of captured steps holds every batch, changes seldom, and not with a resumption."""

from __future__ import annotations

import numpy as np
import pytest

from gradformer.training import capture
from gradformer.training.capture import CapturedTrial
from tests.training import toy

RECIPE = toy.RECIPE.change("train.epochs=10")


def test_it_holds_what_it_looks_ahead_to(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("AHEAD", 4), ("NODES", 1), ("EDGES", 1), ("PAIRS", 1)):
        monkeypatch.setattr(capture, name, value)
    trial, resumed = toy.trial(RECIPE), toy.trial(RECIPE)
    one = CapturedTrial(trial)
    nodes, edges = (np.diff(trial.data.store.arrays[f"{kind}_ptr"]) for kind in ("node", "edge"))
    found = [one.capacity(epoch) for epoch in range(10)]
    for epoch, capacity in enumerate(found):
        for ids in trial.order(epoch):
            assert nodes[ids].sum() <= capacity.nodes
            assert edges[ids].sum() <= capacity.edges
            assert (nodes[ids] ** 2).sum() <= capacity.pairs < capacity.nodes * capacity.largest
    assert found[:4] == [found[0]] * 4
    assert found[4:8] == [found[4]] * 4
    assert CapturedTrial(resumed).capacity(9) == found[9]
