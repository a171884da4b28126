"""The compiled loops for a CPU are the reference: outputs, all gradients, draws, bits."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gradformer.attention import (
    Decay,
    Layout,
    cpu,
    decay_attention,
    joint_attention,
    use_engine,
)
from gradformer.attention.arguments import Call
from gradformer.attention.loops import running
from tests.attention.problems import KINDS, Problem, decay_of, moved, padded, random_problem, solve

SIZES = (3, 1, 40, 16, 17)  # less than the lanes of a row and the rows of a tile, more, just so


def check(problem: Problem, decay: Decay | None, dropout: float) -> dict[str, torch.Tensor]:
    """Hold the loops, in float32, to the reference in float64; returns what they found."""
    expected = solve(problem, decay, "reference", torch.float64, dropout)
    found = solve(problem, decay, "auto", torch.float32, dropout)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        allowed = 3e-5 * max(1.0, float(value.abs().max()))
        torch.testing.assert_close(found[name].double(), value, rtol=0.0, atol=allowed)
    return found


@pytest.fixture(autouse=True)
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The widths of the calls that the loops took."""
    calls: list[int] = []
    known = cpu.cpu_attention

    def note(call: Call) -> torch.Tensor:
        calls.append(call.q.shape[-1])
        return known(call)

    monkeypatch.setattr(cpu, "cpu_attention", note)
    return calls


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("kind", KINDS)
def test_every_decay(kind: str, dropout: float, biased: bool, taken: list[int]) -> None:
    width = 6 if biased else 8
    problem = random_problem(SIZES, heads=2, width=width, biased=biased)
    check(problem, decay_of(KINDS[kind], 2, "cpu"), dropout)
    assert taken == [width]


@pytest.mark.parametrize("width", [16, 20])
def test_channels_of_several_lanes(width: int, taken: list[int]) -> None:
    check(random_problem(SIZES, heads=3, width=width), decay_of({"profile": True}, 3, "cpu"), 0.3)
    assert taken == [width]


def test_distances_anywhere_and_padding() -> None:
    problem = padded(moved(random_problem(SIZES, width=5)), largest=40, rows=3)
    found = check(problem, decay_of({}, 2, "cpu"), 0.2)
    assert not any(found[name][-3:].any() for name in ("out", "q", "k", "v"))


def test_a_row_without_keys_is_zero() -> None:
    problem = random_problem((5, 20))
    problem = replace(problem, distance=torch.full_like(problem.distance, 255))
    found = check(problem, decay_of({"unreachable": "blocked"}, 2, "cpu"), 0.0)
    assert not any(value.any() for value in found.values())


def test_a_row_of_large_scores_keeps_the_digits_of_its_sum() -> None:
    problem = random_problem((5, 20), biased=True)
    assert problem.bias is not None
    found = []
    for bias in (problem.bias * 0.0, torch.full_like(problem.bias, -1e9)):
        alike = replace(problem, q=problem.q * 0.0, bias=bias)
        found.append(solve(alike, None, "auto", torch.float32))
    for name in ("out", "q", "v"):
        torch.testing.assert_close(found[1][name], found[0][name])


def test_a_sum_over_thousands_of_keys_keeps_its_digits() -> None:
    n = 4000
    v = torch.rand(n, 1, 8, generator=torch.Generator().manual_seed(0))
    none, layout = torch.zeros(n, 1, 8), Layout.from_sizes([n])
    distance = torch.zeros(n * n, dtype=torch.uint8)
    out = decay_attention(none, none, v, layout, distance, None, None)
    mean = v.double().mean(0).expand(n, -1, -1)
    torch.testing.assert_close(out.double(), mean, rtol=5e-7, atol=0.0)


def test_what_is_not_a_number_stays_so() -> None:
    problem = random_problem((20, 5))
    problem.q[3] = torch.nan
    out = solve(problem, None, "auto", torch.float32)["out"]
    assert out.isfinite().all(-1).all(-1).tolist() == [i != 3 for i in range(25)]
    assert out[3].isnan().all()


def test_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "LEAST_WORK", 1)
    problem, decay = random_problem(SIZES, heads=3), decay_of({"profile": True}, 3, "cpu")
    threads, found = torch.get_num_threads(), []
    for count in (1, 2):
        torch.set_num_threads(count)
        found.append(solve(problem, decay, "auto", torch.float32, 0.3))
    torch.set_num_threads(threads)
    assert all(torch.equal(x, found[1][name]) for name, x in found[0].items())


def test_second_derivatives_are_the_reference_s() -> None:
    problem = random_problem((4, 2), width=4)
    mul = (0.6 ** torch.arange(256.0)).repeat(2, 1)
    seconds = []
    for engine in ("auto", "reference"):
        q = problem.q.float().requires_grad_()
        k, v = problem.k.float(), problem.v.float()
        with use_engine(engine):
            out = decay_attention(q, k, v, problem.layout, problem.distance, mul, None)
            (first,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
        seconds.append(torch.autograd.grad(first.square().sum(), q)[0])
    torch.testing.assert_close(*seconds)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32(dtype: torch.dtype) -> None:
    problem = random_problem((6, 18), width=8)
    qkv = torch.cat([problem.q, problem.k, problem.v], dim=1).to(dtype).requires_grad_()
    found = []
    for engine in ("auto", "reference"):
        with use_engine(engine):
            out = joint_attention(qkv, problem.layout, problem.distance, None, None)
        (grad,) = torch.autograd.grad(out, qkv, problem.cotangent.to(dtype))
        assert out.dtype == grad.dtype == dtype
        found.append((out, grad))
    for ours, reference in zip(*found):
        torch.testing.assert_close(ours, reference, rtol=1e-2, atol=1e-2)


def test_what_is_written_to_is_seen() -> None:
    problem = random_problem((4, 2))
    q, k, v = (x.float() for x in (problem.q, problem.k, problem.v))
    q.requires_grad_()
    grads = []
    for write in (lambda out: out * 2.0, lambda out: out.mul_(2.0)):  # it does not read its result
        out = decay_attention(q, k, v, problem.layout, problem.distance, None, None)
        grads.append(torch.autograd.grad(write(out).sum(), q)[0])
    assert torch.equal(*grads)
    qkv = torch.cat([q, k, v], dim=1)
    out = joint_attention(qkv, problem.layout, problem.distance, None, None)
    qkv.detach().zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
    for written in (problem.distance, seed := torch.tensor([1, 2, 3])):
        where = problem.layout, problem.distance
        out = decay_attention(q, k, v, *where, None, None, dropout=0.5, seed=seed)
        written.zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


def test_second_derivatives_have_no_part_in_autocast() -> None:
    problem, firsts = random_problem((4, 2)), []
    for dtype in (torch.float32, torch.float64):
        q, k, v = (x.to(dtype) for x in (problem.q, problem.k, problem.v))
        q.requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            out = decay_attention(q, k, v, problem.layout, problem.distance, None, None)
            firsts.append(torch.autograd.grad(out.square().sum(), q, create_graph=True)[0].double())
    torch.testing.assert_close(*firsts, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore")  # of sizes, which a trace takes for constant
def test_a_trace_takes_the_reference(taken: list[int]) -> None:
    problem = random_problem((4, 2))

    def attend(q: torch.Tensor) -> torch.Tensor:
        return decay_attention(q, q, q, problem.layout, problem.distance, None, None)

    q = problem.q.float()
    traced = torch.jit.trace(attend, q, check_trace=False)
    assert taken == []
    torch.testing.assert_close(traced(q.exp()), attend(q.exp()))
