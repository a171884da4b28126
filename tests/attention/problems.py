"""Random packed graphs with queries, keys, values, distances, and what an engine makes of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gradformer.attention import Decay, Layout, Table, decay_attention, use_engine


@dataclass(frozen=True)
class Problem:
    """Inputs in float64; ``cotangent`` [nodes, heads, d] weighs the outputs in the loss.

    ``bias`` is [Σ n², heads], or None.
    """

    layout: Layout
    q: Tensor
    k: Tensor
    v: Tensor
    distance: Tensor
    cotangent: Tensor
    bias: Tensor | None = None

    def to(self, device: str) -> Problem:
        layout = self.layout
        layout = replace(
            layout,
            node_ptr=layout.node_ptr.to(device),
            pair_ptr=layout.pair_ptr.to(device),
            graph_id=layout.graph_id.to(device),
        )
        tensors = (t.to(device) for t in (self.q, self.k, self.v, self.distance, self.cotangent))
        return Problem(layout, *tensors, None if self.bias is None else self.bias.to(device))


def random_problem(
    sizes: Sequence[int],
    heads: int = 2,
    width: int = 4,
    *,
    diameter: int = 6,
    unreachable: float = 0.1,
    saturated: float = 0.0,
    biased: bool = False,
    seed: int = 0,
) -> Problem:
    """Distances 0..diameter at random, some of them 255 (unreachable) and 254 (saturated)."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.arange(len(sizes)) * 7 + 3
    layout = Layout.from_sizes(sizes, graph_id=ids)
    pairs = sum(n * n for n in sizes)
    distance = torch.randint(0, diameter + 1, (pairs,), generator=generator).byte()
    chance = torch.rand(pairs, generator=generator)
    distance[chance < unreachable + saturated] = 254
    distance[chance < unreachable] = 255
    shape = (layout.capacity, heads, width)
    q, k, v, cotangent = torch.randn(4, *shape, generator=generator, dtype=torch.float64)
    bias = torch.randn(pairs, heads, generator=generator, dtype=torch.float64) if biased else None
    return Problem(layout, q, k, v, distance, cotangent, bias)


def moved(problem: Problem) -> Problem:
    """Distances at odd places, in another order, in a slice that ends where its memory ends."""
    sizes = problem.layout.node_ptr.diff().tolist()
    blocks = problem.distance.split([n * n for n in sizes])
    pieces, starts, place = [], [0] * len(sizes), 3
    for graph in reversed(range(len(sizes))):
        starts[graph] = place
        pieces.append(blocks[graph])
        place += len(blocks[graph])
    array = torch.cat([torch.full((7,), 99, dtype=torch.uint8), *pieces])[4:]
    layout = replace(problem.layout, pair_ptr=torch.tensor(starts))
    return replace(problem, layout=layout, distance=array)


def padded(problem: Problem, largest: int, rows: int) -> Problem:
    """With a graph of no nodes, and rows of NaN behind the last."""
    old = problem.layout
    layout = replace(
        old,
        node_ptr=torch.cat([old.node_ptr, old.node_ptr[-1:]]),
        pair_ptr=torch.cat([old.pair_ptr, torch.zeros(1, dtype=torch.int64)]),
        graph_id=torch.cat([old.graph_id, torch.tensor([-1], dtype=torch.int32)]),
        capacity=old.capacity + rows,
        largest=largest,
        padded=True,
    )
    junk = torch.full((rows, *problem.q.shape[1:]), math.nan, dtype=torch.float64)
    longer = {
        name: torch.cat([getattr(problem, name), junk]) for name in ("q", "k", "v", "cotangent")
    }
    return replace(problem, layout=layout, **longer)


def solve(
    problem: Problem, decay: Decay | None, engine: str, dtype: torch.dtype, dropout: float = 0.0
) -> dict[str, Tensor]:
    """Output, and gradients of q, k, v and the decay's parameters, of one engine in one type.

    The tables are float32 where the engine computes in float32 or less.
    """
    q, k, v = (t.to(dtype, copy=True).requires_grad_() for t in (problem.q, problem.k, problem.v))
    mul: Table | None = None
    add: Table | None = None
    if decay is not None:
        decay = decay.to(torch.float64 if dtype == torch.float64 else torch.float32)
        decay.zero_grad()
        (tables,) = decay()
        mul, add = tables.mul, tables.add
    bias = None if problem.bias is None else problem.bias.to(dtype, copy=True).requires_grad_()
    seed = torch.tensor([5, 6, 7], device=q.device)
    with use_engine(engine):
        out = decay_attention(
            q, k, v, problem.layout, problem.distance, mul, add,
            bias=bias, dropout=dropout, seed=seed,
        )  # fmt: skip
    (out * problem.cotangent.to(dtype)).sum().backward()
    found = {"out": out.detach(), "q": q.grad, "k": k.grad, "v": v.grad}
    if bias is not None:
        found["bias"] = bias.grad
    if decay is not None:
        found |= {name: p.grad for name, p in decay.named_parameters()}
    missing = [name for name, value in found.items() if value is None]
    assert not missing, f"no gradient: {missing}"
    return {name: value.clone() for name, value in found.items() if value is not None}


LEARNED = {"learn_decay": True, "slope": 0.1, "spread": 0.6}


def compare(
    problem: Problem,
    decay: Decay | None,
    dropout: float,
    dtype: torch.dtype = torch.float32,
    tolerance: float = 3e-5,
) -> dict[str, torch.Tensor]:
    """Hold one call of the fused engine to the reference in float64; returns what it found."""
    rounded = replace(
        problem, **{name: getattr(problem, name).to(dtype).double() for name in "qkv"}
    )
    rounded = replace(rounded, cotangent=problem.cotangent.to(dtype).double())
    expected = solve(rounded, decay, "reference", torch.float64, dropout)
    found = solve(rounded, decay, "fused", dtype, dropout)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        error = (found[name].double() - value).abs().max()
        allowed = tolerance * max(1.0, float(value.abs().max()))
        assert error <= allowed, f"{name}: off by {error:.1e}, allowed {allowed:.1e}"
    return found


def decay_of(options: dict[str, Any] | None, heads: int, device: str) -> Decay | None:
    if options is None:
        return None
    return Decay(heads, **({"decay": 0.7, "start": 2.3} | options)).to(device)


KINDS: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "start": {},
    "start and λ": LEARNED,
    "weight": {"on": "weight", "learn_decay": True},
    "linear": {"shape": "linear", "end": 5.0},
    "free": {"shape": "free"},
    "free weight": {"shape": "free", "on": "weight", "decay": 0.9},
    "blocked": {"unreachable": "blocked"},
    "blocked profile": {"unreachable": "blocked", "profile": True},
    "weight blocked": {"unreachable": "blocked", "on": "weight"},
    "step": {"decay": 0.0, "start": 2.0, "on": "weight"},
}


def mirrored(problem: Problem, sizes: Sequence[int]) -> Problem:
    """With distances that are the same both ways, and the promise of it."""
    blocks = problem.distance.split([n * n for n in sizes])
    square = [block.view(n, n) for block, n in zip(blocks, sizes)]
    distance = torch.cat([torch.minimum(block, block.T).flatten() for block in square])
    layout = replace(problem.layout, symmetric=True)
    assert layout.is_symmetric(distance)
    return replace(problem, layout=layout, distance=distance)
