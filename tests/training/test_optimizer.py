"""The optimizer, the schedule and the weight vector against torch's own, step by step."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from gradformer.attention import Decay
from gradformer.training.optimizer import Adam, Schedule, clip_
from gradformer.training.weights import Weights, without_weight_decay


def small_model() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))


@pytest.mark.parametrize(
    ("kind", "theirs"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)]
)
def test_twenty_steps_equal_torch(kind: str, theirs: type[torch.optim.Optimizer]) -> None:
    ours, reference = small_model().double(), small_model().double()
    exempt = {id(p) for p in without_weight_decay(reference)}
    groups = [
        {"params": [p for p in reference.parameters() if id(p) not in exempt], "weight_decay": 0.1},
        {"params": [p for p in reference.parameters() if id(p) in exempt], "weight_decay": 0.0},
    ]
    optimizer = theirs(groups, lr=1e-2)  # type: ignore[call-arg]
    weights = Weights(ours)
    adam = Adam(kind, weights.grad, weights.decayed, weight_decay=0.1)
    generator = torch.Generator().manual_seed(1)
    for step in range(20):
        x = torch.randn(7, 3, dtype=torch.float64, generator=generator)
        size = 1.0 if step % 2 else 1e-3  # a small gradient is not clipped
        for p, g in zip(
            reference.parameters(),
            torch.autograd.grad(size * reference(x).square().sum(), reference.parameters()),
        ):
            p.grad = g
        norm = nn.utils.clip_grad_norm_(reference.parameters(), 1.0)
        optimizer.step()
        loss = size * ours(x).square().sum()
        weights.set_grad(torch.autograd.grad(loss, weights.parameters))
        torch.testing.assert_close(clip_(weights.grad, 1.0), norm)
        rate = torch.tensor(1e-2, dtype=torch.float64)
        adam.update(
            weights.vector[: weights.num_parameters], weights.grad, rate, torch.tensor(step)
        )
    for name, value in reference.state_dict().items():
        if value.is_floating_point():
            torch.testing.assert_close(ours.state_dict()[name], value, rtol=1e-7, atol=1e-9)


def test_the_vector_holds_parameters_and_statistics() -> None:
    model = small_model()
    weights = Weights(model)
    model(torch.randn(4, 3))  # moves the running statistics
    views = weights.views(weights.vector)
    assert {n for n, v in model.state_dict().items() if v.is_floating_point()} == set(views)
    for name, view in views.items():
        assert torch.equal(view, model.state_dict()[name])
    saved = weights.vector.clone()
    weights.vector.zero_()
    assert not model[0].weight.any()
    for name, view in views.items():
        view.copy_(weights.views(saved)[name])
    assert torch.equal(weights.vector, saved)


def test_norms_biases_and_start_points_are_not_decayed() -> None:
    model = nn.ModuleList([nn.Linear(2, 2), nn.BatchNorm1d(2), Decay(4)])
    exempt = {id(p) for p in without_weight_decay(model)}
    named = {name for name, p in model.named_parameters() if id(p) not in exempt}
    assert named == {"0.weight"}


def test_warm_up_and_cosine() -> None:
    schedule = Schedule(1.0, "cosine", warmup=4, steps=12, lowest=0.1)
    rates = [float(schedule(torch.tensor(t))) for t in range(13)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    expected = [0.1 + 0.45 * (1 + math.cos(math.pi * k / 8)) for k in range(9)]
    assert rates[4:] == pytest.approx(expected, abs=1e-7)
    constant = Schedule(0.5, warmup=2, steps=10)
    assert [float(constant(torch.tensor(t))) for t in (0, 1, 2, 9)] == [0.25, 0.5, 0.5, 0.5]


def test_what_is_frozen_is_not_among_the_weights():
    model = nn.Sequential(nn.Linear(3, 2).requires_grad_(False), nn.Linear(2, 1))
    assert list(map(id, Weights(model).parameters)) == list(map(id, model[1].parameters()))
