"""SAT: its promises for each extractor and readout."""

from __future__ import annotations

import pytest
import torch

from gradformer.errors import ConfigError
from gradformer.model.base import create_model
from tests.zoo import toys

SMALL = {"layers": 2, "width": 16, "heads": 2, "inner": 24, "hops": 2, "pe_steps": toys.STEPS}
CASES = [
    ("graph", True, {"gnn": "pna2"}),
    ("graph", True, {"gnn": "gcn", "extractor": "subgraph"}),
    ("graph", True, {"gnn": "gine", "pool": "add", "norm": "layer"}),
    ("graph", True, {"gnn": "gin", "pool": "cls", "norm": "layer"}),
    ("graph", True, {"gnn": "pna", "extractor": "subgraph", "pool": "cls", "pre_norm": True}),
    ("node", False, {"gnn": "gcn", "pe": "none"}),
]


def make(level, edges, options):
    torch.manual_seed(0)
    return create_model("sat", toys.toy_schema(level, edges), **SMALL, **options)


@pytest.mark.parametrize(("level", "edges", "options"), CASES)
def test_promises(level, edges, options):
    model = make(level, edges, options)
    toys.check_batch_mates(model)
    toys.check_relabelling(model)
    toys.check_padding(lambda: make(level, edges, options))


@pytest.mark.parametrize("gnn", ["gcn", "gin", "gine", "graph", "graphsage", "pna", "pna4", "mpnn"])
def test_trains(gnn):
    toys.check_training(make("graph", True, {"gnn": gnn, "dropout": 0.0}))


def test_refuses_what_cannot_be():
    with pytest.raises(ConfigError, match="gine needs edge features"):
        make("graph", False, {"gnn": "gine"})
    with pytest.raises(ConfigError, match="targets are on nodes"):
        make("node", True, {"pool": "cls"})
