"""LGI-GT: its promises for each convolution, middle layer, skip connection and readout."""

from __future__ import annotations

import pytest
import torch

from gradformer.errors import ConfigError
from gradformer.model.base import create_model
from tests.zoo import toys

SMALL = {"layers": 2, "width": 16, "heads": 2, "head_inner": 1}
ENCODING = {"pe_steps": toys.STEPS, "pe_width": 6}
DROPOUTS = {"dropout": 0.2, "attention_dropout": 0.2, "conv_attention_dropout": 0.2}
CASES = [
    ("graph", True, {"conv": "gin", **ENCODING}),
    (
        "graph",
        True,
        {"conv": "eela", "pool": "cls", "middle": "none", "norm": "layer", "pe": "none"},
    ),
    ("graph", True, {"conv": "eela", "pool": "cls", "middle": "mlp", "skip": "long", **ENCODING}),
    ("graph", True, {"conv": "gin", "middle": "none", "norm": "layer", **ENCODING}),
    (
        "graph",
        True,
        {"conv": "gcn", "pool": "mean", "skip": "none", "conv_dropout": 0.3, **ENCODING},
    ),
    ("node", False, {"conv": "gcn", "head_layers": 1, **ENCODING}),
]


def make(level, edges, options):
    torch.manual_seed(0)
    return create_model("lgi_gt", toys.toy_schema(level, edges), **SMALL, **options)


@pytest.mark.parametrize(("level", "edges", "options"), CASES)
def test_promises(level, edges, options):
    model = make(level, edges, options)
    toys.check_batch_mates(model)
    toys.check_relabelling(model)
    toys.check_padding(lambda: make(level, edges, {**DROPOUTS, **options}))


@pytest.mark.parametrize(("level", "edges", "options"), CASES)
def test_trains(level, edges, options):
    toys.check_training(make(level, edges, {"attention_dropout": 0.0, **options}))


def test_refuses_what_cannot_be():
    with pytest.raises(ConfigError, match="leaves no room"):
        make("graph", True, {"pe_width": 16})
    with pytest.raises(ConfigError, match="targets are on nodes"):
        make("node", True, {"pool": "cls", **ENCODING})
