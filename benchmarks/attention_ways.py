"""What ``attention.py`` times: cases and their inputs, our call held to float64, and its peers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from gradformer.attention import Decay, Layout, Table, decay_attention
from gradformer.attention.draws import keep, row_keys

DEVICE = "cuda"
DROPOUT = 0.5


@dataclass(frozen=True)
class Case:
    name: str
    sizes: tuple[int, ...]
    heads: int
    d: int
    dtype: torch.dtype
    distances: int = 12

    @property
    def pairs(self) -> int:
        return sum(n * n for n in self.sizes)

    @property
    def flops(self) -> float:
        """Forward (2 products) and backward (5), 2·d each, for every pair and head."""
        return 7 * 2 * self.d * self.heads * self.pairs

    @property
    def bytes(self) -> float:
        """Each byte of distance once a pass (3 passes), q, k, v, out and their gradients once."""
        return 2 * self.pairs + self.held

    @property
    def held(self) -> int:
        """Bytes of the distances, q, k, v, out and their gradients."""
        width = torch.finfo(self.dtype).bits // 8
        return self.pairs + 8 * sum(self.sizes) * self.heads * self.d * width


def _sizes(low: int, high: int, count: int) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randint(low, high + 1, (count,), generator=generator).tolist())


CASES = [
    Case("1 graph, N 7680, H 8, d 32, bf16", (7680,), 8, 32, torch.bfloat16),
    Case("1 graph, N 7603, H 8, d 32, bf16", (7603,), 8, 32, torch.bfloat16),
    Case("16 graphs, N 1024, H 4, d 64, bf16", (1024,) * 16, 4, 64, torch.bfloat16),
    Case(
        "16 CLUSTER graphs, H 8, d 6, float32", (*_sizes(60, 174, 14), 30, 204), 8, 6, torch.float32
    ),
    Case("32 ZINC graphs, H 4, d 16, float32", (*_sizes(12, 34, 31), 37), 4, 16, torch.float32),
]


@dataclass
class Inputs:
    """One set of inputs, packed and padded."""

    q: Tensor
    k: Tensor
    v: Tensor
    grad: Tensor
    distance: Tensor
    layout: Layout
    dense: tuple[Tensor, Tensor, Tensor, Tensor]
    dense_distance: Tensor
    padding: Tensor


def make_inputs(case: Case, seed: int) -> Inputs:
    g = torch.Generator(device=DEVICE).manual_seed(seed)
    layout = Layout.from_sizes(case.sizes, device=DEVICE)
    shape = (layout.capacity, case.heads, case.d)
    q, k, v, grad = (
        torch.randn(shape, generator=g, device=DEVICE).to(case.dtype) for _ in range(4)
    )
    # Distances as in an undirected graph, the same both ways: by chance, and farther where numbers
    # lie apart, so that no two tiles hold the same bytes.
    draw = torch.rand(case.pairs, generator=g, device=DEVICE).sqrt_()
    distance = torch.empty(case.pairs, dtype=torch.uint8, device=DEVICE)
    blocks = (x.split([n * n for n in case.sizes]) for x in (draw, distance))
    for chance, block, n in zip(*blocks, case.sizes):
        place = torch.arange(n, device=DEVICE) / n
        apart = (place[:, None] - place).abs_()
        upper = (apart.add_(chance.view(n, n)) * (case.distances / 2)).to(torch.uint8).triu()
        block.copy_((upper + upper.triu(1).T).flatten())
    layout = replace(layout, symmetric=True)
    count, widest = len(case.sizes), max(case.sizes)
    slot, place = layout.graph.long(), layout.rows.index.long()

    def pad(x: Tensor) -> Tensor:
        out = x.new_zeros(count, widest, case.heads, case.d)
        out[slot, place] = x
        return out.transpose(1, 2).contiguous().requires_grad_()

    dense_distance = torch.full((count, widest, widest), 255, dtype=torch.uint8, device=DEVICE)
    first = 0
    for graph, n in enumerate(case.sizes):
        dense_distance[graph, :n, :n] = distance[first : first + n * n].view(n, n)
        first += n * n
    padding = (
        torch.arange(widest, device=DEVICE) >= torch.tensor(case.sizes, device=DEVICE)[:, None]
    )
    return Inputs(
        q.requires_grad_(), k.requires_grad_(), v.requires_grad_(), grad, distance, layout,
        tuple(pad(x.detach()) for x in (q, k, v, grad)), dense_distance, padding,
    )  # fmt: skip


Call = Callable[[Inputs], tuple[Tensor, ...]]


def ours(case: Case, kind: str = "plain") -> Call:
    """Forward and backward of decay_attention: its output and gradients.

    ``kind`` says what else gets a gradient.
    """
    table = our_table(case, kind)
    assert table.parameters is not None
    parameters = table.parameters.detach().requires_grad_()

    def call(x: Inputs) -> tuple[Tensor, ...]:
        wanted = [x.q, x.k, x.v]
        used: Tensor | Table = table.value.detach()
        if "starts" in kind or "parameters" in kind:
            used = Table(table.value.detach(), parameters, table.jacobian)
            wanted.append(parameters)
        elif "table" in kind:
            used = table.value.detach().requires_grad_()
            wanted.append(used)
        both = (None, used) if "add" in kind else (used, None)
        dropout = DROPOUT if "dropout" in kind else 0.0
        out = decay_attention(
            x.q, x.k, x.v, x.layout, x.distance, *both, dropout=dropout, seed=our_seed()
        )
        return (out.detach(), *torch.autograd.grad(out, wanted, x.grad))

    return call


def our_table(case: Case, kind: str) -> Table:
    """Factors, or summands, of all distances: λ = 0.6 behind start points around 2."""
    decay = Decay(
        case.heads,
        decay=0.6,
        start=2.0,
        spread=1.0,
        learn_decay="parameters" in kind,
        on="weight" if "add" in kind else "logit",
    )
    (tables,) = decay.to(DEVICE)()
    table = tables.add if "add" in kind else tables.mul
    assert table is not None
    return table


@cache
def our_seed() -> Tensor:
    return torch.tensor([1, 2, 3], device=DEVICE)


@cache
def exact(case: Case, seed: int, kind: str) -> list[Tensor]:
    """What ``ours`` returns, in float64: out, dq, dk, dv, and the gradient of the whole table.

    ``kind`` says no more than how it is made: "add", "dropout".
    """
    x, table = make_inputs(case, seed), our_table(case, kind)
    found = [torch.zeros(x.q.shape, dtype=torch.float64, device=DEVICE) for _ in range(4)]
    by_byte = torch.zeros(case.heads, 256, dtype=torch.float64, device=DEVICE)
    node = pair = 0
    for graph, n in enumerate(case.sizes):
        byte = x.distance[pair : pair + n * n].view(n, n).int()
        place = torch.arange(n, device=DEVICE)
        for head in range(case.heads):
            rows = (slice(node, node + n), head)
            q, k, v = (t.detach()[rows].double().requires_grad_() for t in (x.q, x.k, x.v))
            entry = table.value.detach()[head].double()[byte].requires_grad_()
            score = q @ k.T / math.sqrt(case.d)
            weight = (score + entry if "add" in kind else score * entry).softmax(1)
            if "dropout" in kind:
                keys = row_keys(our_seed(), x.layout.graph_id[graph], head, place)
                weight = weight * keep(keys[:, None], place, DROPOUT) / (1.0 - DROPOUT)
            out = weight @ v
            *grads, by_pair = torch.autograd.grad(out, [q, k, v, entry], x.grad[rows].double())
            for whole, part in zip(found, (out.detach(), *grads)):
                whole[rows] = part
            by_byte[head] += torch.bincount(byte.flatten(), by_pair.flatten(), 256)
        node, pair = node + n, pair + n * n
    return [*found, by_byte]


def check(case: Case, kind: str, seed: int = 0) -> float:
    """The largest relative error of output and gradients; raises where it is more than rounding."""
    found = ours(case, kind)(make_inputs(case, seed))
    way = " ".join(word for word in ("add", "dropout") if word in kind)
    *expected, by_byte = exact(case, seed, way)
    if "table" in kind:
        expected.append(by_byte)
    elif "starts" in kind or "parameters" in kind:
        jacobian = our_table(case, kind).jacobian
        assert jacobian is not None
        expected.append(torch.einsum("hb,phb->hp", by_byte, jacobian.double()))
    allowed = 2e-2 if case.dtype == torch.bfloat16 else 2e-5
    errors = [float((a.double() - b).norm() / b.norm()) for a, b in zip(found, expected)]
    if not max(errors) <= allowed:
        raise SystemExit(f"{case.name}, {kind}: wrong by {errors}, allowed {allowed}; not timed")
    return max(errors)


def dense_way(case: Case, compiled: bool) -> Call:
    """The authors' way: float distances, a decay matrix for every head, masked softmax."""
    start = torch.full((case.heads, 1, 1), 2.0, device=DEVICE, requires_grad=True)

    def attention(
        q: Tensor, k: Tensor, v: Tensor, distance: Tensor, padding: Tensor, start: Tensor
    ):
        decay = 0.6 ** F.leaky_relu(distance[:, None].float() - start, 0.0)
        score = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        score = (score * decay).masked_fill(padding[:, None, None, :], -math.inf)
        return score.softmax(-1).to(v.dtype) @ v

    run = torch.compile(attention, dynamic=False) if compiled else attention

    def call(x: Inputs) -> tuple[Tensor, ...]:
        q, k, v, grad = x.dense
        out = run(q, k, v, x.dense_distance, x.padding, start)
        return torch.autograd.grad(out, [q, k, v, start], grad.detach())

    return call


def flex(case: Case) -> Call:
    from torch.nn.attention.flex_attention import flex_attention

    start = torch.full((case.heads,), 2.0, device=DEVICE, requires_grad=True)
    run = torch.compile(flex_attention, dynamic=False)

    def call(x: Inputs) -> tuple[Tensor, ...]:
        distance, padding = x.dense_distance, x.padding

        def decayed(score, b, h, i, j):
            hops = distance[b, i, j].to(torch.float32)
            beyond = torch.clamp(hops - start[h], min=0.0)
            return torch.where(padding[b, j], -float("inf"), score * 0.6**beyond)

        q, k, v, grad = x.dense
        out = run(q, k, v, score_mod=decayed)
        return torch.autograd.grad(out, [q, k, v, start], grad.detach())

    return call


def sdpa(case: Case) -> Call:
    def call(x: Inputs) -> tuple[Tensor, ...]:
        q, k, v, grad = x.dense
        out = F.scaled_dot_product_attention(q, k, v)
        return torch.autograd.grad(out, [q, k, v], grad.detach())

    return call
