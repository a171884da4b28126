"""The stacks of GCN, GAT, GIN and GatedGCN: their last width, and what hooks see."""

from __future__ import annotations

import pytest
import torch

from tests.zoo import toys


@pytest.mark.parametrize("name", ["gcn", "gatedgcn"])
def test_last_width_changes_what_the_head_reads(name):
    model = toys.make(name, last_width=24)
    batch = toys.toy_batch(model.schema)
    assert model.states(batch).shape[1] == 24
    assert not getattr(model.layers[-1], "residual", False)


@pytest.mark.parametrize("part", ["conv", "activation"])
def test_a_hook_sees_a_part_of_a_layer_called(part):
    """Although kernels have a shorter way through the layer."""
    model, seen = toys.make("gcn").eval(), []
    batch = toys.toy_batch(model.schema)
    expected = model(batch)
    for layer in model.layers:
        layer.get_submodule(part).register_forward_hook(lambda *called: seen.append(called))
    assert torch.equal(model(batch), expected)
    assert len(seen) == 3
