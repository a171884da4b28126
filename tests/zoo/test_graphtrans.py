"""GraphTrans: its promises for each half, and the truncation of long graphs."""

from __future__ import annotations

import pytest
import torch

from gradformer.attention import Layout
from gradformer.model.base import create_model
from gradformer.zoo.graphtrans import last_nodes
from tests.zoo import toys

SMALL = {"layers": 2, "width": 16, "heads": 2, "inner": 24, "gnn_layers": 2, "gnn_width": 12}
CASES = [
    ("graph", True, {"gnn": "gcn"}),
    ("graph", True, {"gnn": "gin", "virtual_node": True, "join": "cat", "norm_input": False}),
    ("graph", False, {"gnn": "gin", "virtual_node": True, "join": "sum", "gnn_residual": True}),
    ("node", True, {"gnn": "gcn", "max_nodes": 3}),
]


def make(level, edges, options):
    torch.manual_seed(0)
    return create_model("graphtrans", toys.toy_schema(level, edges), **SMALL, **options)


@pytest.mark.parametrize(("level", "edges", "options"), CASES)
def test_promises(level, edges, options):
    model = make(level, edges, options)
    toys.check_batch_mates(model)
    toys.check_relabelling(model)
    toys.check_padding(lambda: make(level, edges, options))


@pytest.mark.parametrize(("level", "edges", "options"), CASES)
def test_trains(level, edges, options):
    toys.check_training(make(level, edges, {"dropout": 0.0, "gnn_dropout": 0.0, **options}))


def test_keeps_the_last_nodes():
    layout = Layout.from_sizes([5, 2, 4])
    smaller, rows = last_nodes(layout, 3)
    assert smaller.node_ptr.tolist() == [0, 3, 5, 8]
    assert rows.tolist()[:8] == [2, 3, 4, 5, 6, 8, 9, 10]
    assert last_nodes(layout, 5) == (layout, None)


def test_truncation_is_the_same_when_padded_and_beside_others():
    model = make("graph", True, {"gnn": "gcn", "max_nodes": 4})
    toys.check_batch_mates(model)
    toys.check_padding(lambda: make("graph", True, {"gnn": "gcn", "max_nodes": 4}))


def test_sum_of_all_layers_or_as_the_reference():
    batch = toys.toy_batch(toys.toy_schema())
    ours, theirs = (
        make("graph", True, {"join": "sum", "reference_quirks": quirks}).eval().gnn
        for quirks in (False, True)
    )
    last = ours.layers[-1](ours.layers[0](ours.node(batch), batch), batch)
    torch.testing.assert_close(ours(batch), theirs(batch) + last)
