"""The stack of GCN, GAT and GIN: its last width, and what hooks see."""

from __future__ import annotations

import pytest
import torch

from tests.zoo import toys


def test_last_width_changes_what_the_head_reads():
    model = toys.make("gcn", last_width=24)
    batch = toys.toy_batch(model.schema)
    assert model.states(batch).shape[1] == 24
    assert not model.layers[-1].residual


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
