"""Which engine takes a call, and why."""

from __future__ import annotations

import pytest
import torch

from gradformer.attention import (
    current_engine,
    decay_attention,
    set_engine,
    use_engine,
    why_not_fused,
)
from gradformer.errors import ConfigError
from tests.attention.problems import random_problem


def test_an_engine_is_used_inside_its_block_only() -> None:
    assert current_engine() == "auto"
    with use_engine("reference"):
        assert current_engine() == "reference"
    with pytest.raises(ZeroDivisionError), use_engine("reference"):
        _ = 1 / 0
    assert current_engine() == "auto"


def test_an_unknown_engine_is_named() -> None:
    with pytest.raises(ConfigError, match=r"engine: unknown value 'fuse'; did you mean 'fused'\?"):
        set_engine("fuse")


@pytest.mark.parametrize(
    ("reason", "q", "bias", "weights"),
    [
        ("weights", torch.zeros(1, 1, 4), None, True),
        ("bias", torch.zeros(1, 1, 4), torch.zeros(1, 1), False),
        ("float32", torch.zeros(1, 1, 4, dtype=torch.float64), None, False),
        ("4 to 128, not 3", torch.zeros(1, 1, 3), None, False),
        ("4 to 128, not 129", torch.zeros(1, 1, 129), None, False),
        ("CUDA", torch.zeros(1, 1, 4), None, False),
    ],
)
def test_why_the_fused_engine_cannot(
    reason: str, q: torch.Tensor, bias: torch.Tensor | None, weights: bool
) -> None:
    found = why_not_fused(q, bias, weights)
    assert found is not None
    assert reason in found


def test_the_fused_engine_refuses_what_it_cannot() -> None:
    p = random_problem((3, 2), width=3)
    q, k, v = p.q.float(), p.k.float(), p.v.float()
    with use_engine("fused"), pytest.raises(ConfigError, match=r"^engine: .* not 3"):
        decay_attention(q, k, v, p.layout, p.distance, None, None)


def test_auto_takes_the_reference_on_a_cpu() -> None:
    """To the bit: the interpreter is never chosen by itself."""
    p = random_problem((3, 2), width=4)
    q, k, v = p.q.float(), p.k.float(), p.v.float()
    auto = decay_attention(q, k, v, p.layout, p.distance, None, None)
    with use_engine("reference"):
        assert torch.equal(decay_attention(q, k, v, p.layout, p.distance, None, None), auto)
