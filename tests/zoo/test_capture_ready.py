"""Every model can be captured: padding changes nothing, and no value is read back; on a GPU no sum
has an order of its own."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from gradformer.graphs.arrays import Level
from gradformer.model.base import all_models, create_model
from tests.conftest import Operations
from tests.zoo.toys import CAPACITIES, PADDED_IDS, check_padding, own_collator, toy_schema


@pytest.mark.parametrize("level", ["graph", "node"])
@pytest.mark.parametrize("name", sorted(all_models()))
def test_padding_with_stored_structure(name: str, level: Level) -> None:
    check_padding(partial(create_model, name, toy_schema(level), layers=2), own_collator)


@pytest.mark.parametrize("level", ["graph", "node"])
@pytest.mark.parametrize("name", sorted(all_models()))
def test_a_padded_step_reads_nothing_back(name: str, level: Level) -> None:
    """Meta tensors have no values: to read one, or to need one for a shape, is an error."""
    model = create_model(name, toy_schema(level), layers=2)
    make = own_collator(model, "meta")
    model.to("meta").train()
    batch = make(PADDED_IDS.to("meta"), CAPACITIES[0])
    with Operations() as seen:
        out = model(batch.with_seed(torch.zeros(2, dtype=torch.int64, device="meta"), model.sites))
        torch.autograd.grad(out.sum(), list(model.parameters()), allow_unused=True)
    # Its bits change from run to run on a GPU, though torch does not say so.
    assert "embedding_dense_backward" not in seen.names
    with torch.no_grad():
        assert model.eval()(batch).shape == out.shape
