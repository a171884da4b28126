"""The fused engine on a GPU: random layouts, larger graphs, and bf16."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from gradformer.attention import Layout, decay_attention
from tests.attention.problems import (
    KINDS,
    compare,
    decay_of,
    mirrored,
    moved,
    padded,
    random_problem,
    solve,
)


@pytest.mark.gpu
@pytest.mark.parametrize("case", range(6))
def test_random_layouts(case: int, device: str) -> None:
    generator = torch.Generator().manual_seed(case)

    def pick(low: int, high: int) -> int:
        return int(torch.randint(low, high, (1,), generator=generator))

    largest, width = ((40, 6), (64, 16), (65, 6), (200, 6), (300, 33), (700, 16))[case]
    sizes = [pick(1, largest + 1) for _ in range(pick(1, 20))]
    heads = pick(2, 5)
    kinds = list(KINDS.values())
    problem = random_problem(sizes, heads, width, diameter=12, seed=case).to(device)
    decay = decay_of(kinds[case % len(kinds)], heads, device)
    compare(problem, decay, (0.0, 0.3)[case % 2], tolerance=2e-4)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("sizes", "width", "kind"),
    [
        ((44, 188, 119, 1), 16, "start and λ"),
        ((300, 77), 6, "blocked profile"),
        ((301, 130), 32, "free"),
        ((130, 70), 64, "weight"),
    ],
)
@pytest.mark.parametrize("symmetric", [False, True])
def test_float32(sizes: Sequence[int], width: int, kind: str, symmetric: bool, device: str) -> None:
    problem = random_problem(sizes, heads=2, width=width)
    problem = mirrored(problem, sizes) if symmetric else problem
    compare(problem.to(device), decay_of(KINDS[kind], 2, device), 0.2)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("sizes", "width", "kind"),
    [
        ((23, 9, 1), 32, "start and λ"),
        ((300, 77), 32, "start and λ"),
        ((320, 203), 64, "start and λ"),
        ((300, 77), 128, "start"),
        ((130, 256), 24, "free"),
        ((300, 77), 32, "weight"),
        ((130, 203), 16, "free weight"),
        ((300, 77), 64, "blocked profile"),
        ((130, 77), 128, "linear"),
    ],
)
@pytest.mark.parametrize("symmetric", [False, True])
def test_bf16(sizes: Sequence[int], width: int, kind: str, symmetric: bool, device: str) -> None:
    problem = random_problem(sizes, heads=2, width=width)
    problem = mirrored(problem, sizes) if symmetric else problem
    decay = decay_of(KINDS[kind], 2, device)
    compare(problem.to(device), decay, 0.2, torch.bfloat16, tolerance=3e-2)


@pytest.mark.gpu
@pytest.mark.parametrize("width", [16, 32, 64, 128])
@pytest.mark.parametrize("symmetric", [False, True])
def test_bf16_with_everything_at_once(width: int, symmetric: bool, device: str) -> None:
    """Padding, distances at odd places, rows at −inf, whole tables; the same bits twice."""
    sizes = (131, 77, 1)
    problem = random_problem(sizes, heads=2, width=width)
    problem = mirrored(problem, sizes) if symmetric else problem
    problem.distance[:131] = 255  # row 0 of the first graph
    problem.distance[: 131 * 131 : 131] = 255
    problem = replace(
        problem, **{name: getattr(problem, name).bfloat16().double() for name in "qkv"}
    )
    problem = replace(problem, cotangent=problem.cotangent.bfloat16().double())
    decay = decay_of(KINDS["blocked profile"], 2, device)
    expected = solve(problem.to(device), decay, "reference", torch.float64, 0.2)
    rough = padded(moved(problem), largest=200, rows=5).to(device)
    found, again = (solve(rough, decay, "fused", torch.bfloat16, 0.2) for _ in range(2))
    for name, value in expected.items():
        assert torch.equal(found[name], again[name]), name
        rows = found[name]
        if name in ("out", "q", "k", "v"):
            assert torch.equal(rows[-5:], torch.zeros_like(rows[-5:])), name
            rows = rows[:-5]
        error = (rows.double() - value).abs().max()
        assert error <= 3e-2 * max(1.0, float(value.abs().max())), name
    assert found["out"][0].abs().sum() == 0.0


@pytest.mark.gpu
@pytest.mark.parametrize(("largest", "width"), [(1, 20), (1, 6), (200, 6), (300, 20)])
def test_more_programs_than_an_axis_of_a_grid_holds(largest: int, width: int, device: str) -> None:
    """Graphs of one node: the output is v, and all of its gradient goes there."""
    graphs = 70_000
    layout = replace(Layout.from_sizes([1] * graphs, device=device), largest=largest)
    q, k, v, cotangent = torch.randn(4, graphs, 2, width, device=device).unbind()
    distance = torch.zeros(graphs, dtype=torch.uint8, device=device)
    mul = torch.ones(2, 256, device=device, requires_grad=True)
    wanted = [t.requires_grad_() for t in (q, k, v)]
    out = decay_attention(q, k, v, layout, distance, mul, None)
    dq, dk, dv, dmul = torch.autograd.grad(out, [*wanted, mul], cotangent)
    torch.testing.assert_close(out, v)
    torch.testing.assert_close(dv, cotangent)
    for zero in (dq, dk):
        assert zero.abs().max() < 1e-4
    assert dmul.abs().max() < 1.0
