"""Every model gives the same numbers with the kernels as without, as its recipes set it up.

A gradient may still differ by more than rounding: a ReLU whose input is zero but for rounding is
open in one run and shut in another. SAN's spectrum has 1.8 million of them on the toy graphs; there
the reference in float32 and in float64 differ, in 3 of 60 draws of the weights, by 3e-5 to 4e-4 of
the largest gradient (median of all draws: 3e-7), always in the map before that ReLU. The kernels
are as near to float64 as the reference is. So a failure of one model, in one map before a ReLU,
with one seed, is no fault.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gradformer.attention import use_engine
from gradformer.graphs.collate import Capacity
from gradformer.model.base import all_models, model_class
from gradformer.training.recipe import load_recipe
from gradformer.zoo.all_pairs import Pairs
from gradformer.zoo.egt import EGT
from gradformer.zoo.graphormer import NodeInput
from tests.zoo.toys import (
    CAPACITIES,
    IDS,
    PADDED_IDS,
    own_collator,
    real_rows,
    toy_batch,
    toy_schema,
)

pytest.importorskip("triton")


def _compare(
    name: str, dataset: str, device: str, ids: Tensor, capacity: Capacity | None = None
) -> None:
    """One layer on toy graphs, outputs and gradients in training mode, dropout included."""
    config = load_recipe(dataset, model=name).model.config
    schema = toy_schema("graph", True) if dataset == "zinc" else toy_schema("node", False)
    torch.manual_seed(0)
    model = model_class(name)(schema, replace(config, layers=1)).to(device).train()
    batch = own_collator(model, device)(ids.to(device), capacity)
    batch = batch.with_seed(torch.tensor([3, 5], device=device), model.sites)
    kept = {name: value.clone() for name, value in model.state_dict().items()}

    def run(engine: str) -> list[Tensor]:
        model.load_state_dict(kept)
        with use_engine(engine):
            out = real_rows(model(batch), batch)
            loss = out.square().sum()
            grads = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
        return [out.detach(), *(grad for grad in grads if grad is not None)]

    plain = run("reference")
    largest = max(float(value.abs().max()) for value in plain)
    for ours, theirs in zip(run("fused"), plain, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5 * largest)


@pytest.mark.gpu
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("dataset", ["zinc", "cluster"])
@pytest.mark.parametrize("name", sorted(all_models()))
def test_kernels_change_nothing_but_rounding(
    name: str, dataset: str, padded: bool, device: str
) -> None:
    """Padded batches are those of recorded steps."""
    given = (PADDED_IDS, CAPACITIES[0]) if padded else (IDS,)
    _compare(name, dataset, device, *given)


@pytest.mark.gpu
@pytest.mark.parametrize("name", sorted(all_models()))
def test_gradients_have_the_same_bits_twice(name: str, device: str) -> None:
    """With more nodes than torch adds up in a fixed order."""
    model = model_class(name)(toy_schema("graph", True), None, layers=2).to(device).train()
    batch = own_collator(model, device)(IDS.to(device).repeat(500), None)
    assert batch.num_nodes > 3072
    batch = batch.with_seed(torch.tensor([3, 5], device=device), model.sites)
    kept = {name: value.clone() for name, value in model.state_dict().items()}

    def gradients() -> list[Tensor]:
        model.load_state_dict(kept)
        found = torch.autograd.grad(model(batch).sum(), list(model.parameters()), allow_unused=True)
        return [grad for grad in found if grad is not None]

    first = gradients()
    for _ in range(3):
        assert all(map(torch.equal, first, gradients()))


@pytest.mark.parametrize(
    ("name", "dataset"),
    [("graphgps", "cluster"), ("gt", "cluster"), ("egt", "zinc"), ("kdlgt", "zinc")],
)
def test_the_same_in_the_interpreter(name: str, dataset: str, device: str) -> None:
    """Two small graphs, for it takes its time there, and padding behind them."""
    ids = torch.tensor([-1, 3, 1])
    _compare(name, dataset, device, ids, Capacity(graphs=3, nodes=7, edges=13, largest=5))


@pytest.mark.parametrize("engine", ["reference", "fused"])
def test_distances_and_degrees_enter_as_exact_as_they_are_learned(engine: str) -> None:
    """With kernels they were rounded to bfloat16 under autocast, their gradients as well."""
    batch = toy_batch(toy_schema("graph", False))
    pairs = Pairs.of(batch.layout)
    egt, degrees = EGT(toy_schema("graph", False)), NodeInput(toy_schema(), 4, 3, False)
    degrees.features = None
    hops = batch.pair_bytes()[pairs.place].long().clamp(max=len(egt.distance.weight) - 1)
    leaving, entering = (
        ends.bincount(minlength=batch.num_nodes).clamp(max=2) for ends in batch.edges.edge_index
    )
    inwards, outwards = degrees.parameters()
    with use_engine(engine), torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(egt.node_pairs(batch, pairs), egt.distance.weight[hops])
        found = degrees(batch)
        slope = torch.randn_like(found)
        grads = torch.autograd.grad(found, (inwards, outwards), slope)
    torch.testing.assert_close(found, inwards[entering] + outwards[leaving])
    for grad, index in zip(grads, (entering, leaving)):
        torch.testing.assert_close(grad, torch.zeros_like(grad).index_add(0, index, slope))
