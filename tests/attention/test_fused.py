"""The fused engine is the reference engine: outputs, all gradients, draws, bits.

On a machine without a GPU the kernels run in Triton's interpreter, slowly: sizes are small. Float32
heads of up to 16 channels take the row kernels if all graphs have up to 256 nodes, in the
interpreter only if one has more than 32. Others take the one-tile kernels if all have up to 64
nodes, or the tiled kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from gradformer.attention import Decay, decay_attention, use_engine
from gradformer.attention.kernels.launch import OWN, SMALL
from gradformer.errors import ConfigError
from tests.attention.problems import (
    KINDS,
    LEARNED,
    Problem,
    compare,
    decay_of,
    mirrored,
    moved,
    padded,
    random_problem,
    solve,
)

NARROW, MEDIUM = 6, OWN + 5  # head width and size of a graph that take the row kernels,
BROAD, LARGE = 17, SMALL + 5  # and the tiled ones


@pytest.mark.parametrize(
    ("kind", "dropout"),
    [*((kind, (0.0, 0.3)[number % 2]) for number, kind in enumerate(KINDS)), ("start and λ", 0.3)],
)
def test_graphs_of_one_tile(kind: str, dropout: float, device: str) -> None:
    problem = random_problem((3, 1, 5, 9), heads=2, width=6).to(device)
    compare(problem, decay_of(KINDS[kind], 2, device), dropout)


@pytest.mark.parametrize(
    ("kind", "width"),
    [
        *((kind, BROAD) for kind in ("plain", "start and λ", "weight", "free", "blocked profile")),
        *((kind, NARROW) for kind in ("start and λ", "blocked profile")),
        *(("weight", 4), ("free weight", 13)),
    ],
)
def test_larger_graphs(kind: str, width: int, device: str) -> None:
    n = LARGE if width == BROAD else MEDIUM
    problem = random_problem((n,), heads=1, width=width, diameter=3).to(device)
    compare(problem, decay_of(KINDS[kind], 1, device), dropout=0.2)


@pytest.mark.parametrize(("n", "width"), [(MEDIUM, NARROW), (LARGE, BROAD)])
def test_symmetric_distances(n: int, width: int, device: str) -> None:
    """The promise changes what is read, not what is found."""
    problem = mirrored(random_problem((n, 3), heads=1, width=width), (n, 3))
    compare(problem.to(device), decay_of(LEARNED, 1, device), dropout=0.2)


@pytest.mark.parametrize(
    ("sizes", "heads", "width"),
    [((SMALL, 2), 2, BROAD), ((1, MEDIUM), 1, NARROW), ((3, LARGE), 1, BROAD)],
)
def test_mixed_sizes_in_one_batch(
    sizes: Sequence[int], heads: int, width: int, device: str
) -> None:
    problem = random_problem(sizes, heads=heads, width=width).to(device)
    compare(problem, decay_of(LEARNED, heads, device), dropout=0.0)


@pytest.mark.parametrize("width", [4, 6, 16, 33, 64, 128])
def test_head_widths(width: int, device: str) -> None:
    problem = random_problem((7, 2), heads=2, width=width).to(device)
    compare(problem, decay_of(LEARNED, 2, device), dropout=0.0)


def test_the_widest_head_of_a_small_graph(device: str) -> None:
    """In float32 one program has no room for it: the tiled kernels take it."""
    problem = random_problem((SMALL,), heads=1, width=128).to(device)
    compare(problem, decay_of({}, 1, device), dropout=0.0)


def test_a_wide_head_in_tiles(device: str) -> None:
    problem = random_problem((LARGE + 2,), heads=1, width=33).to(device)
    compare(problem, decay_of({}, 1, device), dropout=0.0)


@pytest.mark.parametrize(
    ("sizes", "kind", "width"),
    [((3, 1, 5), "start and λ", 6), ((9, 2), "plain", 5), ((LARGE, 2), "blocked profile", NARROW)],
)
def test_a_summand_for_each_pair(sizes: Sequence[int], kind: str, width: int, device: str) -> None:
    problem = random_problem(sizes, heads=2, width=width, diameter=3, biased=True)
    assert problem.bias is not None
    problem.bias[5] = -math.inf  # a pair that is closed to all heads
    problem = problem.to(device)
    found = compare(problem, decay_of(KINDS[kind], 2, device), dropout=0.2)
    assert found["bias"][5].abs().sum() == 0.0


def test_a_fixed_summand_with_rows_to_spare(device: str) -> None:
    p = random_problem((4, 3), biased=True).to(device)
    assert p.bias is not None
    longer = torch.cat([p.bias, torch.full((7, 2), math.nan, device=device)]).float()
    q, k, v = (t.float().requires_grad_() for t in (p.q, p.k, p.v))
    found = []
    for bias in (p.bias.float(), longer, longer.clone().requires_grad_()):
        with use_engine("fused"):
            out = decay_attention(q, k, v, p.layout, p.distance, None, None, bias=bias)
        found.append([out, *torch.autograd.grad(out.square().sum(), [q, k, v], retain_graph=True)])
    assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(*found))
    (spare,) = torch.autograd.grad(out.square().sum(), bias)
    assert torch.equal(spare[-7:], torch.zeros_like(spare[-7:]))


def test_one_head_of_a_spread_differs_from_another(device: str) -> None:
    """Every head has a table of its own."""
    problem = random_problem((6, 4), heads=5, width=4).to(device)
    compare(problem, decay_of({"spread": 2.0, "learn_decay": True}, 5, device), dropout=0.0)


@pytest.mark.parametrize("kind", ["start and λ", "free"])
def test_saturated_and_unreachable_distances(kind: str, device: str) -> None:
    problem = random_problem((6, 3), unreachable=0.3, saturated=0.3).to(device)
    assert {254, 255} <= set(problem.distance.tolist())
    # λ so near to 1 that distance 254 still counts
    decay = Decay(2, decay=0.995, **{k: v for k, v in (KINDS[kind] or {}).items() if k != "decay"})
    found = compare(problem, decay.to(device), dropout=0.0)
    if kind == "free":
        assert found["free"][..., 254].abs().min() > 0.0


def path_problem(n: int, heads: int, width: int) -> Problem:
    """Distances |i − j| of a path, up to 253: most tiles hold bytes that others do not."""
    place = torch.arange(n)
    distance = (place[:, None] - place).abs().clamp(max=253).byte().flatten()
    problem = random_problem((n,), heads, width)
    return replace(problem, distance=distance, layout=replace(problem.layout, symmetric=True))


@pytest.mark.parametrize("kind", ["free", "free weight"])
def test_every_distance_of_a_path(kind: str, device: str) -> None:
    """A free table gets the share of every pair, wherever in a tile its distance lies."""
    on_gpu = device == "cuda"
    n, width, dtype = (300, 32, torch.bfloat16) if on_gpu else (LARGE, BROAD, torch.float32)
    decay = Decay(1, **{**(KINDS[kind] or {}), "decay": 0.999}).to(device)
    problem = path_problem(n, 1, width).to(device)
    compare(problem, decay, 0.0, dtype, tolerance=3e-2 if on_gpu else 3e-5)


@pytest.mark.parametrize(
    ("sizes", "width"), [((5, 1), 4), ((MEDIUM, 1), NARROW), ((LARGE, 1), BROAD)]
)
def test_rows_at_minus_infinity(sizes: Sequence[int], width: int, device: str) -> None:
    problem = random_problem(sizes, heads=1, width=width)
    n = sizes[0]
    problem.distance[2 * n : 3 * n] = 255  # row 2 of the first graph
    problem.distance[-1] = 255  # the graph of one node
    problem = problem.to(device)
    decay = decay_of({"unreachable": "blocked", "profile": True}, 1, device)
    found = compare(problem, decay, dropout=0.0)
    dead = torch.tensor([2, n])
    assert found["out"][dead].abs().sum() == 0.0
    assert found["q"][dead].abs().sum() == 0.0


def test_a_given_table_gets_its_gradient(device: str) -> None:
    """Plain tensors for both tables at once, with a scale of one's own."""
    p = random_problem((4, 2, 5), heads=2, width=5).to(device)
    torch.manual_seed(1)
    mul, add = torch.rand(2, 256, dtype=torch.float64), torch.randn(2, 256, dtype=torch.float64)
    found = []
    for engine, dtype in (("reference", torch.float64), ("fused", torch.float32)):
        both = [t.to(device, dtype).requires_grad_() for t in (mul, add)]
        q, k, v = (t.to(dtype) for t in (p.q, p.k, p.v))
        with use_engine(engine):
            out = decay_attention(q, k, v, p.layout, p.distance, *both, scale=0.9)
        found.append(torch.autograd.grad((out * p.cotangent.to(dtype)).sum(), both))
    for exact, fused in zip(*found):
        torch.testing.assert_close(fused.double(), exact, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("n", [16, LARGE])
def test_dropout_takes_the_same_pairs(n: int, device: str) -> None:
    """Values are unit vectors, so that the output is the matrix of kept weights itself."""
    problem = random_problem((n,), heads=1, width=16 if n == 16 else 128).to(device)
    unit = torch.eye(n, problem.v.shape[2], dtype=torch.float64, device=device)
    problem = replace(problem, v=unit[:, None])
    kept = [
        solve(problem, None, engine, dtype, dropout=0.4)["out"][..., :n] != 0.0
        for engine, dtype in (("reference", torch.float64), ("fused", torch.float32))
    ]
    assert torch.equal(*kept)
    assert 0.5 < kept[0].double().mean() < 0.7


@pytest.mark.gpu  # the interpreter runs one program after the other
@pytest.mark.parametrize(
    ("sizes", "width"), [((9, 4, 1), 4), ((MEDIUM, 3), NARROW), ((LARGE, 3), BROAD)]
)
def test_the_same_bits_twice(sizes: Sequence[int], width: int, device: str) -> None:
    problem = random_problem(sizes, heads=1, width=width, diameter=3).to(device)
    decay = decay_of(KINDS["free"] if len(sizes) == 2 else LEARNED, 1, device)
    first, second = (solve(problem, decay, "fused", torch.float32, 0.3) for _ in range(2))
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


@pytest.mark.parametrize(
    ("sizes", "width"), [((5, 9, 2), 4), ((3, MEDIUM), NARROW), ((3, LARGE), BROAD)]
)
def test_distances_inside_a_larger_array(sizes: Sequence[int], width: int, device: str) -> None:
    problem = random_problem(sizes, heads=1, width=width)
    decay = decay_of({}, 1, device)
    expected = solve(problem.to(device), decay, "fused", torch.float32)
    found = solve(moved(problem).to(device), decay, "fused", torch.float32)
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


@pytest.mark.parametrize(
    ("sizes", "width", "largest"),
    [((5, 1, 3), 4, 11), ((5, 3), NARROW, LARGE), ((5, 3), BROAD, LARGE)],
)
def test_padding_is_zero_and_changes_nothing(
    sizes: Sequence[int], width: int, largest: int, device: str
) -> None:
    problem = random_problem(sizes, heads=1, width=width)
    decay = decay_of({"learn_decay": True, "profile": True}, 1, device)
    expected = solve(problem.to(device), decay, "reference", torch.float64, 0.3)
    found = solve(padded(problem, largest, rows=4).to(device), decay, "fused", torch.float32, 0.3)
    for name, value in expected.items():
        rows = found[name][:-4] if name in ("out", "q", "k", "v") else found[name]
        torch.testing.assert_close(rows.double(), value, atol=3e-5, rtol=3e-5)
    for name in ("out", "q", "k", "v"):
        assert torch.equal(found[name][-4:], torch.zeros_like(found[name][-4:])), name


def test_half_precision(device: str) -> None:
    """fp16; Triton's interpreter cannot do bf16, so that is tested on a GPU."""
    problem = random_problem((9, 4), heads=2, width=16).to(device)
    compare(problem, decay_of(LEARNED, 2, device), 0.2, torch.float16, tolerance=4e-3)


def test_nothing_to_do(device: str) -> None:
    for sizes in ((), (0, 0)):
        problem = random_problem(sizes).to(device)
        found = solve(problem, decay_of(LEARNED, 2, device), "fused", torch.float32)
        assert found["out"].shape == (0, 2, 4)
        assert found["start"].abs().sum() == 0.0


def test_empty_graphs_among_others(device: str) -> None:
    problem = random_problem((4, 0, 3)).to(device)
    compare(problem, decay_of(LEARNED | {"profile": True}, 2, device), dropout=0.0)


def test_a_second_derivative_names_the_reference_engine(device: str) -> None:
    p = random_problem((3, 2)).to(device)
    q = p.q.float().requires_grad_()
    with use_engine("fused"):
        out = decay_attention(q, p.k.float(), p.v.float(), p.layout, p.distance, None, None)
    (first,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
    with pytest.raises(ConfigError, match="reference engine"):
        first.sum().backward()
