"""EGT: its promises with and without virtual nodes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gradformer.errors import ConfigError
from gradformer.model.base import create_model
from gradformer.zoo.singular import singular_vectors
from tests.zoo import toys

SMALL = {"layers": 2, "width": 16, "pair_width": 8, "heads": 2, "hops": 3, "svd": 0}
CASES = [
    ("graph", True, {}),
    ("graph", True, {"virtual_nodes": 2, "scale_degree": True}),
    ("graph", False, {"pair_updates": False, "clip_low": -1.0, "clip_high": 2.0}),
    ("node", True, {"scale_degree": True, "dropout": 0.3, "attention_dropout": 0.3}),
    ("node", False, {"virtual_nodes": 1}),
    ("graph", True, {"svd": 4, "virtual_nodes": 1}),
]


def make(level, edges, options):
    torch.manual_seed(0)
    return create_model("egt", toys.toy_schema(level, edges), **SMALL | options)


@pytest.mark.parametrize(("level", "edges", "options"), CASES)
def test_promises(level, edges, options):
    model = make(level, edges, options)
    toys.check_batch_mates(model)
    if not options.get("svd"):  # singular vectors turn with the order of the nodes
        toys.check_relabelling(model)
    toys.check_padding(lambda: make(level, edges, options))


@pytest.mark.parametrize(("level", "edges", "options"), CASES)
def test_trains(level, edges, options):
    calm = {"dropout": 0.0, "attention_dropout": 0.0, "flip_signs": False}
    toys.check_training(make(level, edges, options | calm))


def test_quirks_tie_a_graph_to_its_batch():
    with pytest.raises(AssertionError, match="not close"):
        toys.check_batch_mates(make("graph", True, {"virtual_nodes": 2, "reference_quirks": True}))


def test_refuses_heads_that_do_not_divide():
    with pytest.raises(ConfigError, match="heads: 3 does not divide"):
        make("graph", True, {"heads": 3})


def test_singular_vectors_give_the_adjacency_back():
    arrays = toys.toy_graphs(toys.toy_schema())
    seen: list[int] = []
    found = singular_vectors(
        arrays.node_ptr, arrays.edge_ptr, arrays.edge_index, 9, progress=seen.append
    )
    assert sum(seen) == len(toys.SIZES)
    for g, n in enumerate(toys.SIZES):
        index = arrays.edge_index[:, arrays.edge_ptr[g] : arrays.edge_ptr[g + 1]]
        expected = np.eye(n)
        expected[index[0], index[1]] = 1
        left, right = found[arrays.node_ptr[g] : arrays.node_ptr[g + 1]].transpose(2, 0, 1)
        np.testing.assert_allclose(left @ right.T, expected, atol=1e-5)
        assert not left[:, n:].any()
