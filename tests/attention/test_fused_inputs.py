"""What the fused engine is given in unusual ways: strides, tables, switches, limits."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gradformer.attention import Decay, Layout, Table, decay_attention, joint_attention, use_engine
from gradformer.attention.kernels.tiles import precision
from gradformer.errors import ConfigError
from tests.attention.problems import LEARNED, decay_of, random_problem, solve
from tests.conftest import Operations


def spread_out(x: Tensor) -> Tensor:
    """The same entries, two apart in memory, with others between them."""
    apart = torch.stack([x, torch.full_like(x, 9)], dim=1)[:, 0]
    assert not apart.is_contiguous()
    return apart


def test_integers_that_are_not_contiguous(device: str) -> None:
    p = random_problem((5, 3, 9), heads=2, width=6).to(device)
    layout = replace(
        p.layout,
        node_ptr=spread_out(p.layout.node_ptr),
        pair_ptr=spread_out(p.layout.pair_ptr),
        graph_id=spread_out(p.layout.graph_id),
    )
    mul = (0.7 ** torch.arange(256.0, device=device)).expand(2, 256)
    seed = torch.tensor([5, 6, 7], device=device)
    q, k, v = (t.float().requires_grad_() for t in (p.q, p.k, p.v))
    found = []
    for where, distance, draws in (
        (p.layout, p.distance, seed),
        (layout, spread_out(p.distance), spread_out(seed)),
    ):
        with use_engine("fused"):
            out = decay_attention(
                q, k, v, where, distance, mul, None, dropout=0.4, seed=draws
            )  # fmt: skip
        found.append([out, *torch.autograd.grad(out.square().sum(), [q, k, v])])
    for expected, value in zip(*found):
        assert torch.equal(expected, value)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("with_jacobian", [False, True])
def test_tables_of_few_parameters(count: int, with_jacobian: bool, device: str) -> None:
    """Without a jacobian, or with more parameters than two, the gradient goes through the value."""
    p = random_problem((4, 3), heads=2, width=4).to(device)
    generator = torch.Generator().manual_seed(0)
    parameters = torch.rand(2, count, generator=generator, dtype=torch.float64)
    basis = torch.rand(count, 2, 256, generator=generator, dtype=torch.float64)
    found = []
    for engine, dtype in (("reference", torch.float64), ("fused", torch.float32)):
        theta = parameters.to(device, dtype).requires_grad_()
        slopes = basis.to(device, dtype)
        mul = torch.einsum("hp,phb->hb", theta, slopes)
        table = Table(mul, theta, slopes if with_jacobian else None)
        q, k, v, cotangent = (t.to(dtype) for t in (p.q, p.k, p.v, p.cotangent))
        with use_engine(engine):
            out = decay_attention(q, k, v, p.layout, p.distance, table, None)
        found.append(torch.autograd.grad(out, theta, cotangent)[0])
    torch.testing.assert_close(found[1].double(), found[0], atol=2e-5, rtol=2e-5)


SWITCHES = {
    "": "ieee",
    "torch.set_float32_matmul_precision('high')": "tf32",
    "torch.set_float32_matmul_precision('highest')": "ieee",
    "torch.backends.cuda.matmul.allow_tf32 = True": "tf32",
    "torch.backends.cuda.matmul.fp32_precision = 'tf32'": "tf32",
    "torch.backends.cuda.matmul.fp32_precision = 'ieee'": "ieee",
    "torch.backends.fp32_precision = 'tf32'": "tf32",
}
SCRIPT = """
import sys, torch
from gradformer.attention.kernels.tiles import precision
from gradformer.training.fit import _precision
for line in sys.stdin.read().splitlines():
    torch.set_float32_matmul_precision('highest')
    torch.backends.fp32_precision = 'none'
    torch.backends.cuda.matmul.fp32_precision = 'none'
    exec(line)
    before = precision()
    for name in ('tf32', 'ieee'):
        with _precision(name):
            assert precision() == name, (line, name, precision())
        assert precision() == before, (line, name, precision())
    print(before)
"""


@pytest.mark.skipif(
    not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="an older torch"
)
def test_all_of_torchs_switches_for_tf32() -> None:
    """In a process of its own, because torch complains where old and new ones are mixed."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input="\n".join(SWITCHES),
        env=os.environ,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == list(SWITCHES.values())


@pytest.mark.parametrize(("sizes", "width"), [((9, 4), 16), ((69,), 9), ((40,), 128)])
def test_tf32(sizes: tuple[int, ...], width: int, device: str) -> None:
    """Factors of 10 bits, sums in float32; the interpreter multiplies exactly."""
    problem = random_problem(sizes, heads=1, width=width).to(device)
    decay = Decay(1, decay=0.7, learn_decay=True).to(device)
    expected = solve(problem, decay, "reference", torch.float64)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        assert precision() == "tf32"
        found = solve(problem, decay, "fused", torch.float32)
    finally:
        torch.set_float32_matmul_precision(before)
    for name, value in expected.items():
        error = (found[name].double() - value).norm() / value.norm()
        assert error < 5e-3, f"{name}: off by {error:.1e}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_reference_under_autocast(dtype: torch.dtype, device: str) -> None:
    """Autocast changes neither engine: both keep the type of q and sum in float32."""
    p = random_problem((9, 4), heads=2, width=16).to(device)
    q, k, v = (t.to(dtype) for t in (p.q, p.k, p.v))
    mul = (0.7 ** torch.arange(256.0, device=device)).expand(2, 256)
    for engine in ("reference", "fused"):
        with use_engine(engine):
            plain = decay_attention(q, k, v, p.layout, p.distance, mul, None)
            with torch.autocast(device, torch.bfloat16):
                cast = decay_attention(q, k, v, p.layout, p.distance, mul, None)
        assert cast.dtype == dtype
        assert torch.equal(plain, cast)


def test_graphs_beyond_the_limit_are_named(device: str) -> None:
    q = torch.zeros(1, 1, 4, device=device)
    layout = replace(Layout.from_sizes([1], device=device), largest=46_341)
    distance = torch.zeros(1, dtype=torch.uint8, device=device)
    with use_engine("fused"), pytest.raises(ConfigError, match=r"at most 46336 nodes.* 46341"):
        decay_attention(q, q, q, layout, distance, None, None)


def test_forward_mode_derivatives_are_not_lost(device: str) -> None:
    """``auto`` takes the reference for them, on any device; the fused engine refuses."""
    p = random_problem((5, 3), heads=2, width=4).to(device)
    q, k, v = (t.float() for t in (p.q, p.k, p.v))

    def attend(x: Tensor) -> Tensor:
        return decay_attention(x, k, v, p.layout, p.distance, None, None)

    _, tangent = torch.func.jvp(attend, (q,), (torch.ones_like(q),))
    assert float(tangent.abs().sum()) > 0.0
    with use_engine("fused"), pytest.raises(ConfigError, match="no forward-mode derivative"):
        torch.func.jvp(attend, (q,), (torch.ones_like(q),))


def test_dropout_of_nearly_everything(device: str) -> None:
    p = random_problem((5, 3), heads=2, width=4).to(device)
    q, k, v = (t.float() for t in (p.q, p.k, p.v))
    for engine in ("reference", "fused"):
        with use_engine(engine):
            out = decay_attention(
                q, k, v, p.layout, p.distance, None, None,
                dropout=1.0 - 2.0**-40, seed=torch.tensor([1, 2, 3], device=device),
            )  # fmt: skip
        assert torch.equal(out, torch.zeros_like(out))


def test_views_of_one_projection(device: str) -> None:
    """q, k and v as slices of one matrix, and with channels that are not contiguous."""
    p = random_problem((7, 5), heads=2, width=6).to(device)
    decay = decay_of(LEARNED, 2, device)
    assert decay is not None
    (tables,) = decay()
    joined = torch.stack([p.q, p.k, p.v], dim=1).float().requires_grad_()  # [nodes, 3, heads, d]
    plain = [t.float().requires_grad_() for t in (p.q, p.k, p.v)]
    swapped = [t.float().transpose(1, 2).contiguous().requires_grad_() for t in (p.q, p.k, p.v)]
    with use_engine("fused"):
        calls = [
            decay_attention(*inputs, p.layout, p.distance, tables.mul, tables.add)
            for inputs in (plain, joined.unbind(1), [t.transpose(1, 2) for t in swapped])
        ]
    cotangent = p.cotangent.float()
    expected = torch.autograd.grad((calls[0] * cotangent).sum(), plain, retain_graph=True)
    (by_slices,) = torch.autograd.grad((calls[1] * cotangent).sum(), joined, retain_graph=True)
    by_strides = torch.autograd.grad((calls[2] * cotangent).sum(), swapped)
    assert torch.equal(calls[0], calls[1])
    assert torch.equal(calls[0], calls[2])
    for number, value in enumerate(expected):
        assert torch.equal(by_slices[:, number], value)
        assert torch.equal(by_strides[number].transpose(1, 2), value)


@pytest.mark.parametrize("engine", ["reference", "fused"])
def test_q_k_v_side_by_side(engine: str, device: str) -> None:
    """The same bits as from three tensors; the fused engine copies nothing apart or together."""
    p = random_problem((7, 5), heads=2, width=6).to(device)
    (tables,) = Decay(2, decay=0.7, start=2.3).to(device)()
    apart = [t.float().requires_grad_() for t in (p.q, p.k, p.v)]
    joint = torch.cat(apart, dim=1).detach().requires_grad_()
    where = (p.layout, p.distance, tables.mul, tables.add)
    cotangent = p.cotangent.float()
    with use_engine(engine):
        out = decay_attention(*apart, *where)
        with Operations() as run:
            same = joint_attention(joint, *where)
            (found,) = torch.autograd.grad(same, joint, cotangent)
    assert torch.equal(out, same)
    expected = torch.autograd.grad(out, apart, cotangent)
    assert torch.equal(found, torch.cat(expected, dim=1))
    if engine == "fused":
        assert not run.names & {"cat", "clone", "stack", "zeros"}
