"""The fused engine as an operator of torch: its registration, ``torch.compile``, CUDA graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gradformer.attention import Decay, decay_attention, use_engine
from gradformer.attention.arguments import Call
from gradformer.attention.availability import runs_kernels
from gradformer.attention.compiling import constant_when_compiled
from gradformer.attention.fused import _backward, _forward, fused_attention
from tests.attention.problems import Problem, random_problem


def forward_arguments(p: Problem, shares: int = 1) -> list[Any]:
    (tables,) = Decay(2, decay=0.7, learn_decay=True, profile=True).to(p.q.device)()
    assert tables.mul is not None
    assert tables.add is not None
    assert tables.mul.parameters is not None
    assert p.bias is not None
    q, k, v = (t.float().requires_grad_() for t in (p.q, p.k, p.v))
    layout = p.layout
    return [
        q, k, v, layout.node_ptr, layout.pair_ptr, layout.graph_id, p.distance,
        tables.mul.value.detach(), tables.add.value.detach().requires_grad_(),
        torch.tensor([1, 2, 3], device=q.device), p.bias.float(), layout.packed_ptr,
        tables.mul.jacobian, None, 0.5, 0.2, layout.largest, False, False, shares,
        tables.mul.spread(shares).detach().requires_grad_(), None,
    ]  # fmt: skip


def test_the_operator_is_registered_as_torch_expects(device: str) -> None:
    """Schema, shapes, autograd, and all of it traced with sizes that are symbols."""
    torch.library.opcheck(
        _forward, forward_arguments(random_problem((3, 2), biased=True).to(device))
    )


@pytest.mark.parametrize(
    ("shares", "counts"),
    [(2, (2, 256, True, True)), (1, (2, 0, False, False)), (2, (256, 0, False, True))],
)
def test_the_operator_of_the_gradients(
    shares: int, counts: tuple[int, int, bool, bool], device: str
) -> None:
    given = forward_arguments(random_problem((3, 2), biased=True).to(device), shares)
    given = [x.detach() if isinstance(x, Tensor) else x for x in given]
    out, lse = _forward(*given)
    torch.library.opcheck(
        _backward,
        (torch.randn_like(out), out, lse, *given[:-2], *counts),
        test_utils=("test_schema", "test_faketensor"),
    )


def test_it_compiles_into_one_graph(device: str) -> None:
    """With a summand for each pair, dropout, and gradients to all of it and to the decay."""
    p = random_problem((5, 2), biased=True).to(device)
    assert p.bias is not None
    decay = Decay(2, decay=0.7, learn_decay=True, profile=True).to(device)
    (tables,) = decay()
    seed = torch.tensor([1, 2, 3], device=device)
    inputs = [t.float().requires_grad_() for t in (p.q, p.k, p.v, p.bias)]

    def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        given = p.layout, p.distance, tables.mul, tables.add, bias, 0.5, 0.2, seed
        out = fused_attention(Call(2.0 * q, k, v, *given))
        return out.square().sum()

    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    wanted = [*inputs, *decay.parameters()]
    found = torch.autograd.grad(compiled(*inputs), wanted, retain_graph=True)
    expected = torch.autograd.grad(attend(*inputs), wanted)
    for a, b in zip(expected, found):
        torch.testing.assert_close(a, b)


@pytest.mark.gpu
def test_decay_and_attention_compile_into_one_graph(device: str) -> None:
    """As a user would have it compiled: by Inductor, from the decay on."""
    p = random_problem((23, 70), width=16).to(device)
    inputs = [t.float().requires_grad_() for t in (p.q, p.k, p.v)]
    decay = Decay(2, decay=0.7, learn_decay=True, profile=True).to(device)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        (tables,) = decay()
        return decay_attention(q, k, v, p.layout, p.distance, tables.mul, tables.add)

    wanted, grad = [*inputs, *decay.parameters()], p.cotangent.float()
    with use_engine("fused"):
        compiled = torch.compile(attend, fullgraph=True)(*inputs)
        found = [compiled, *torch.autograd.grad(compiled, wanted, grad)]
        plain = attend(*inputs)
        expected = [plain, *torch.autograd.grad(plain, wanted, grad)]
    for a, b in zip(expected, found):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("width", [3, 129])
def test_auto_takes_the_reference_beyond_its_widths(width: int, device: str) -> None:
    p = random_problem((5, 2), width=width).to(device)
    q, k, v = (t.float() for t in (p.q, p.k, p.v))
    auto = decay_attention(q, k, v, p.layout, p.distance, None, None)
    with use_engine("reference"):
        assert torch.equal(decay_attention(q, k, v, p.layout, p.distance, None, None), auto)


def test_other_kernels_stand_back_inside_a_compiled_graph(device: str) -> None:
    x = torch.ones(3, device=device)
    compiled = torch.compile(lambda x: x if runs_kernels(x) else -x, backend="eager")
    with use_engine("fused"):
        assert runs_kernels(x)
        assert torch.equal(compiled(x), -x)


def test_our_mark_of_constants_is_the_compilers() -> None:
    official = torch.compiler.assume_constant_result(lambda: 1)  # type: ignore[no-untyped-call]
    assert vars(constant_when_compiled(lambda: 1)) == vars(official) != {}


def test_only_what_is_asked_for_has_a_gradient(device: str) -> None:
    """Of the three, and of a decay; by tiled kernels, whose second pass is for k and v alone."""
    p = random_problem((5,), heads=1, width=65).to(device)
    q, k, v = (t.float() for t in (p.q, p.k, p.v))
    decay = Decay(1, decay=0.7).to(device)

    def gradients(wanted: list[Tensor]) -> list[Tensor]:
        for tensor in (q, k, v):
            tensor.requires_grad_(any(tensor is other for other in wanted))
        given = p.layout, p.distance, decay()[0].mul, None, None, 0.5, 0.0, None
        out = fused_attention(Call(q, k, v, *given))
        return list(torch.autograd.grad(out.square().sum(), wanted))

    everything = gradients([q, k, v, decay.start])
    for number, one in enumerate([q, k, v, decay.start]):
        assert torch.equal(gradients([one])[0], everything[number])


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("sizes", "width", "dtype"),
    [
        ((23, 5), 20, torch.float32),  # small kernels
        ((23, 60), 6, torch.float32),  # row kernels
        ((23, 130, 5), 6, torch.float32),  # tiled forward, rows backward
        ((23, 70, 5), 16, torch.float32),  # tiled kernels
        ((23, 70, 5), 32, torch.bfloat16),
    ],
)
def test_both_passes_are_captured_in_a_cuda_graph(
    sizes: tuple[int, ...], width: int, dtype: torch.dtype, device: str
) -> None:
    p = random_problem(sizes, width=width).to(device)
    q, k, v, cotangent = (t.to(dtype) for t in (p.q, p.k, p.v, p.cotangent))
    wanted = [t.requires_grad_() for t in (q, k, v)]
    decay = Decay(2, decay=0.7, learn_decay=True, profile=True).to(device)
    seed = torch.tensor([1, 2, 3], device=device)

    def both() -> list[Tensor]:
        (tables,) = decay()
        out = decay_attention(
            q, k, v, p.layout, p.distance, tables.mul, tables.add, dropout=0.2, seed=seed
        )
        return [out, *torch.autograd.grad(out, [*wanted, *decay.parameters()], cotangent)]

    with use_engine("fused"):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            eager = both()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = both()
    for value in captured:
        value.detach().zero_()
    graph.replay()
    torch.cuda.synchronize()
    for expected, value in zip(eager, captured):
        assert torch.equal(expected, value)
