"""GCN, GAT, GIN and GatedGCN: their promises."""

from __future__ import annotations

import pytest
import torch

from gradformer.errors import ConfigError
from gradformer.model.base import create_model
from tests.zoo import toys

CASES = [
    ("gcn", {}),
    ("gcn", {"norm": False, "residual": False, "head": "linear"}),
    ("gat", {"heads": 2}),
    ("gin", {}),
    ("gatedgcn", {"lap": toys.STEPS}),
    ("gatedgcn", {"lap": 0, "last_width": 24}),
]


def make(name, options, level="graph", edges=True):
    return create_model(name, toys.toy_schema(level, edges), layers=3, width=32, **options)


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize("level", ["graph", "node"])
def test_promises(name, options, level):
    model = make(name, options, level, edges=level == "graph")
    toys.check_batch_mates(model)
    if not options.get("lap"):  # signs of eigenvectors follow the order of the nodes
        toys.check_relabelling(model)
    toys.check_padding(lambda: make(name, {**options, "dropout": 0.2}, level))


@pytest.mark.parametrize(("name", "options"), CASES)
def test_trains(name, options):
    torch.manual_seed(0)
    toys.check_training(make(name, options), 40, 1e-2)


def test_last_width_changes_what_the_head_reads():
    model = make("gcn", {"last_width": 24})
    batch = toys.toy_batch(model.schema)
    assert model.states(batch).shape[1] == 24
    assert not model.layers[-1].residual


@pytest.mark.parametrize("part", ["conv", "activation"])
def test_a_hook_sees_a_part_of_a_layer_called(part):
    """Although kernels have a shorter way through the layer."""
    model, seen = make("gcn", {}).eval(), []
    batch = toys.toy_batch(model.schema)
    expected = model(batch)
    for layer in model.layers:
        layer.get_submodule(part).register_forward_hook(lambda *called: seen.append(called))
    assert torch.equal(model(batch), expected)
    assert len(seen) == 3


def test_heads_must_divide_the_width():
    with pytest.raises(ConfigError, match="heads"):
        make("gat", {"heads": 3})
