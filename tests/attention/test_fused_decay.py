"""The kernel that makes the decay's tables against the plain form."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gradformer.attention import Decay, use_engine
from gradformer.attention.tables import Table
from gradformer.errors import ConfigError

pytest.importorskip("triton")
KINDS: list[dict[str, Any]] = [
    {"slope": 0.1, "sets": 3},
    {"learn_decay": True, "sets": 2, "unreachable": "full"},
    {"on": "weight", "unreachable": "blocked"},
    {"on": "weight", "learn_decay": True, "slope": 0.2},
    {"decay": 0.0},
    {"decay": 0.0, "on": "weight"},
    {"decay": 1.0, "profile": True},
]


@pytest.mark.parametrize("kind", KINDS)
def test_tables_jacobians_and_gradients(kind: dict[str, Any], device: str) -> None:
    decay = Decay(3, **({"decay": 0.7, "start": 2.3, "spread": 1.0} | kind)).to(device)
    learned = [p for name, p in decay.named_parameters() if name in ("start", "raw_decay")]
    found = []
    for engine in ("fused", "reference"):
        with use_engine(engine):
            tables = [t for both in decay() for t in (both.mul, both.add) if isinstance(t, Table)]
        made = [t for table in tables for t in (table.value, table.parameters, table.jacobian)]
        values = [t.detach() for t in made if t is not None]
        whole = sum(t.value.nan_to_num(neginf=0.0).sin().sum() for t in tables)
        if learned:
            values += torch.autograd.grad(whole, learned)
        found.append(values)
    for got, expected in zip(*found, strict=True):
        torch.testing.assert_close(got, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("sets", [1, 4])
def test_a_table_for_each_use(sets: int, device: str) -> None:
    decay = Decay(2, sets=sets).to(device)
    with use_engine("fused"):
        used = decay(4)
    assert len(used) == 4
    found = [tables.mul for tables in used if tables.mul is not None]
    parameters = [table.parameters for table in found]
    whole = sum((number + 1) * p.sum() for number, p in enumerate(parameters) if p is not None)
    (grad,) = torch.autograd.grad(whole, decay.start)
    expected = [[10.0, 10.0]] if sets == 1 else [[n, n] for n in (1.0, 2.0, 3.0, 4.0)]
    assert grad.tolist() == expected

    summands = torch.arange(5.0, device=device)  # their sum is 10
    spread = [table.spread(5) for table in found]
    assert all(tuple(p.shape) == (2, 1, 5) for p in spread)
    whole = sum((number + 1) * (p * summands).sum() for number, p in enumerate(spread))
    again = found[0].spread(5) + found[0].spread(1)
    (grad,) = torch.autograd.grad(whole + again.sum(), decay.start)
    first = 10.0 * torch.tensor(expected) + torch.tensor([[10.0]] + [[0.0]] * (sets - 1))
    assert torch.equal(grad.cpu(), first)


def test_a_second_derivative_is_refused(device: str) -> None:
    decay = Decay(2).to(device)
    with use_engine("fused"):
        (tables,) = decay()
    assert tables.mul is not None
    (grad,) = torch.autograd.grad(tables.mul.value.sum(), decay.start, create_graph=True)
    with pytest.raises(ConfigError, match="fused decay has no second derivative"):
        torch.autograd.grad(grad.sum(), decay.start)
