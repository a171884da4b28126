"""Derivatives of the reference engine: first and second, forward and backward, over a batch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck

from gradformer.attention import Decay, decay_attention
from gradformer.attention.reference import _sums_by_byte
from gradformer.errors import InputError
from tests.attention.problems import random_problem

DECAYS = {
    "start": {"slope": 0.1},
    "learned": {"learn_decay": True, "spread": 0.7},
    "weight": {"learn_decay": True, "on": "weight"},
    "linear": {"shape": "linear", "end": 4.7},
    "free": {"shape": "free"},
    "free weight": {"shape": "free", "on": "weight", "unreachable": "full"},
    "profile": {"profile": True, "unreachable": "blocked"},
}


@pytest.mark.parametrize("kind", DECAYS)
def test_derivatives_of_inputs_and_decay(kind: str) -> None:
    """First and second derivatives, numerically, of q, k, v and every parameter of the decay."""
    torch.manual_seed(0)
    p = random_problem((3, 1, 2), width=3, diameter=4)
    decay = Decay(2, decay=0.6, start=1.3, **DECAYS[kind]).double()
    names, values = zip(*decay.named_parameters())
    values = tuple(value.detach().clone().requires_grad_() for value in values)
    seed = torch.tensor([1, 2, 3])

    class Tabulate(nn.Module):
        """Both tables of a decay, as tensors."""

        def __init__(self) -> None:
            super().__init__()
            self.decay = decay

        def forward(self) -> tuple[Tensor | None, Tensor | None]:
            (t,) = self.decay()
            return (None if t.mul is None else t.mul.value), (
                None if t.add is None else t.add.value
            )

    def attend(q: Tensor, k: Tensor, v: Tensor, *parameters: Tensor) -> Tensor:
        given = {f"decay.{name}": value for name, value in zip(names, parameters)}
        mul, add = torch.func.functional_call(Tabulate(), given, ())
        return decay_attention(q, k, v, p.layout, p.distance, mul, add, dropout=0.3, seed=seed)

    inputs = tuple(t.clone().requires_grad_() for t in (p.q, p.k, p.v))
    assert gradcheck(attend, (*inputs, *values), fast_mode=True)
    assert gradgradcheck(attend, (*inputs, *values), fast_mode=True)


def test_derivatives_by_torchs_functions() -> None:
    """Forward mode, backward mode, and one over the other, of a table too."""
    p = random_problem((3, 2), width=4)
    table = torch.rand(2, 256, dtype=torch.float64)
    given, along = (p.q, table), (torch.randn_like(p.q), torch.randn_like(table))

    def total(q: Tensor, table: Tensor) -> Tensor:
        return decay_attention(q, p.k, p.v, p.layout, p.distance, table, table).square().sum()

    leaves = [t.clone().requires_grad_() for t in given]
    grads = torch.autograd.grad(total(*leaves), leaves, create_graph=True)
    slope = sum((grad * tangent).sum() for grad, tangent in zip(grads, along))
    assert isinstance(slope, Tensor)
    torch.testing.assert_close(torch.func.grad(total, (0, 1))(*given), grads)
    torch.testing.assert_close(torch.func.jvp(total, given, along)[1], slope)
    twice = torch.func.jvp(torch.func.grad(total, (0, 1)), given, along)[1]
    torch.testing.assert_close(twice, torch.autograd.grad(slope, leaves))


def test_vmap_and_the_hessian_made_with_it() -> None:
    p = random_problem((3, 2), width=4)
    tables = torch.rand(3, 2, 256, dtype=torch.float64)
    seeds = torch.randint(99, (3, 3))

    def attend(table: Tensor, seed: Tensor) -> Tensor:
        given = p.q, p.k, p.v, p.layout, p.distance, table, table
        return decay_attention(*given, dropout=0.3, seed=seed)

    each = torch.stack([attend(table, seed) for table, seed in zip(tables, seeds)])
    torch.testing.assert_close(torch.func.vmap(attend)(tables, seeds), each)

    def total(entries: Tensor) -> Tensor:
        table = torch.cat([entries, tables[0, :, entries.shape[1] :]], dim=1)
        return attend(table, seeds[0]).square().sum()

    near = tables[0, :, :3]
    twice = torch.autograd.functional.hessian(total, near)
    torch.testing.assert_close(torch.func.hessian(total)(near), twice)


def test_derivative_of_the_bias() -> None:
    p = random_problem((3, 1, 2), width=3)
    bias = torch.randn(14, 2, dtype=torch.float64, requires_grad=True)

    def attend(bias: Tensor) -> Tensor:
        return decay_attention(p.q, p.k, p.v, p.layout, p.distance, None, None, bias=bias)

    assert gradcheck(attend, (bias,))


def test_sums_by_byte_in_chunks() -> None:
    """As on a GPU, where ``index_add_`` would add in another order each time."""
    values = torch.randn(2, 11, dtype=torch.float64)
    byte = torch.tensor([3, 255, 3, 0, 9, 9, 9, 1, 254, 3, 0], dtype=torch.int32)
    expected = torch.zeros(2, 256, dtype=torch.float64).index_add_(1, byte, values)
    torch.testing.assert_close(_sums_by_byte(values, byte, chunk=4), expected)


def test_transforms_leave_nothing_of_theirs_in_a_layout() -> None:
    """What the first one made was kept, and failed in the next."""
    p = random_problem((3, 2), width=4)

    def total(q: Tensor) -> Tensor:
        return decay_attention(q, p.k, p.v, p.layout, p.distance, None, None).square().sum()

    expected = torch.autograd.functional.hessian(total, p.q)
    p = random_problem((3, 2), width=4)  # with a layout that has made nothing yet
    for _ in range(2):
        torch.testing.assert_close(torch.func.hessian(total)(p.q), expected)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradients_over_a_batch_of_slopes_of_the_loops(dropout: float) -> None:
    """By ``vmap``, and by autograd itself, which batches in a way of its own."""
    p, seed = random_problem((3, 2), width=4), torch.tensor([1, 2, 3])
    q, k, v = (t.float().requires_grad_() for t in (p.q, p.k, p.v))
    table = torch.rand(2, 256, requires_grad=True)
    given = q, k, v, p.layout, p.distance, table, table
    y = decay_attention(*given, dropout=dropout, seed=seed)
    slopes = torch.randn(3, *y.shape)

    def gradient(slope: Tensor, batched: bool = False) -> list[Tensor]:
        wanted, way = [q, table], {"retain_graph": True, "is_grads_batched": batched}
        return list(torch.autograd.grad(y, wanted, slope, **way))

    each = [torch.stack(grads) for grads in zip(*map(gradient, slopes))]
    torch.testing.assert_close(torch.vmap(gradient)(slopes), each)
    torch.testing.assert_close(gradient(slopes, batched=True), each)


def test_a_scale_that_would_not_be_learned_is_refused() -> None:
    p = random_problem((3, 2), width=4)
    with pytest.raises(InputError, match="scale: expected a number; one that is learned"):
        decay_attention(*(p.q, p.k, p.v, p.layout, p.distance, None, None), scale=torch.tensor(0.5))
