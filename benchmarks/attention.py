"""Decay attention against its peers on one GPU: forward + backward, everything in one run.

    python benchmarks/attention.py [--json results/benchmarks/attention.json] [--resume] [--quick]

Peers: the dense padded way (as the authors write it: the decay of every head as a float matrix),
the same compiled, FlexAttention, and SDPA without any mask (a floor, not the same function). Each
is timed eagerly (median over calls) and replayed as a CUDA graph of 20 calls over rotating inputs,
because eager figures are mostly host time. Ours is shown for plain q, k, v gradients, with
gradients to the start points, to λ too, to the full table, of factors and of summands, and with
dropout; before it is timed, outputs and all gradients are held to float64. Beside the machine's
measured ceilings stand what was achieved and what keeps us from them. Last come the bars, met or
missed. The record is written case by case: --resume goes on where a run was cut off.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from common import write_record
from torch import Tensor

from gradformer.attention import Decay, Layout, Table, decay_attention
from gradformer.attention.draws import keep, row_keys
from gradformer.training.records import environment

ROTATE, CALLS = 4, 20
DEVICE = "cuda"
DROPOUT = 0.5
KINDS = {  # what gets a gradient besides q, k, v
    "ours": "plain",
    "ours + sp": "starts",
    "ours + λ, sp": "parameters",
    "ours + dropout": "dropout",
    "ours + λ, sp + dropout": "parameters dropout",
    "ours, add + λ, sp": "add parameters",
}
FLEX_LEAST = 16  # the least head width that FlexAttention takes
SLOW = 100.0  # ms: where a call takes longer, a replay of CALLS is timed once


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


def eager_ms(call: Call, sets: list[Inputs], repeats: int) -> float:
    times = []
    for number in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call(sets[number % len(sets)])
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def graph_ms(call: Call, sets: list[Inputs], slow: bool) -> float:
    """Median over replays of CALLS calls; one replay of a slow call."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for x in sets:
            call(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number in range(CALLS):
            call(sets[number % len(sets)])
    if not slow:
        graph.replay()
    times = []
    for _ in range(1 if slow else 7):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / CALLS)
    return statistics.median(times)


def measure(case: Case, call: Call, sets: list[Inputs]) -> dict:
    """Milliseconds, eager and replayed; bytes and products a second of the replay; peak MiB.

    The peak counts distances, q, k, v, gradient and all that is made.
    """
    x = sets[0]
    given = sum(t.numel() * t.element_size() for t in (x.q, x.k, x.v, x.grad, x.distance))
    try:
        for x in sets:
            call(x)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        slow = eager_ms(call, sets, 1) > SLOW
        peak = torch.cuda.max_memory_allocated() - before + given
        row = {"eager": eager_ms(call, sets, 3 if slow else 20), "peak": peak / 2**20}
    except Exception as error:  # a peer that cannot run this case is a result
        torch.cuda.synchronize()
        return {"failed": f"{type(error).__name__}: {str(error).splitlines()[0][:90]}"}
    try:
        row["graph"] = ms = graph_ms(call, sets, slow)
        row |= {"TB/s": case.bytes / ms / 1e9, "TFLOP/s": case.flops / ms / 1e9}
    except Exception as error:
        torch.cuda.synchronize()
        row["capture failed"] = f"{type(error).__name__}: {str(error).splitlines()[0][:60]}"
    return row


def ceilings() -> dict[str, float]:
    """Copy bandwidth (TB/s, read + written) and products of matrices (TFLOP/s), measured now."""
    a = torch.empty(1 << 30, dtype=torch.uint8, device=DEVICE)
    b = torch.empty_like(a)
    m = torch.randn(8192, 8192, device=DEVICE)
    half = m.bfloat16()
    found = {}
    for name, run, amount in (
        ("copy TB/s", lambda: b.copy_(a), 2 * a.numel() / 1e12),
        ("bf16 TFLOP/s", lambda: half @ half, 2 * 8192**3 / 1e12),
        ("float32 TFLOP/s", lambda: m @ m, 2 * 8192**3 / 1e12),
    ):
        for _ in range(3):
            run()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(10):
            run()
        end.record()
        end.synchronize()
        found[name] = amount / (begin.elapsed_time(end) / 10 / 1e3)
    return found


def compare(case: Case, quick: bool) -> dict[str, dict]:
    """Times of ours, checked, and of its peers."""
    sets = [make_inputs(case, seed) for seed in range(ROTATE if case.pairs < 1e7 else 2)]
    rows = {"SDPA, no mask": measure(case, sdpa(case), sets)}
    for name, kind in KINDS.items():
        error = check(case, kind)
        rows[name] = measure(case, ours(case, kind), sets) | {"error": error}
    for distances in (12, 64):
        far = replace(case, distances=distances)
        some = [make_inputs(far, seed) for seed in range(2)]
        for name, kind in (("ours + table", "table"), ("ours, add + table", "add table")):
            error = check(far, kind)
            row = measure(far, ours(far, kind), some) | {"error": error}
            rows[f"{name}, {distances} distances"] = row
    exact.cache_clear()
    if not quick:
        rows["eager, dense"] = measure(case, dense_way(case, False), sets)
        rows["compiled, dense"] = measure(case, dense_way(case, True), sets)
        rows["FlexAttention"] = measure(case, flex(case), sets)
        if case.d < FLEX_LEAST:
            broad = replace(case, d=FLEX_LEAST)
            some = [make_inputs(broad, seed) for seed in range(ROTATE)]
            rows[f"FlexAttention, d {FLEX_LEAST}"] = measure(broad, flex(broad), some)
    return rows


def limits(case: Case, rows: dict[str, dict], ceilings: dict[str, float]) -> str:
    """What keeps ours from the ceilings, as far as the figures tell."""
    name = "bf16" if case.dtype == torch.bfloat16 else "float32"
    ours_ms, floor_ms = (rows[row].get("graph", math.inf) for row in ("ours", "SDPA, no mask"))
    copy_ms = case.bytes / ceilings["copy TB/s"] / 1e9
    product_ms = case.flops / ceilings[f"{name} TFLOP/s"] / 1e9
    rest = max(0.0, 1.0 - max(copy_ms, product_ms) / ours_ms)
    return (
        f"of {ours_ms:.4f} ms the bytes need {copy_ms:.4f} at the copy's ceiling and the products "
        f"{product_ms:.4f} at that of {name}, so {rest:.0%} goes to neither but to the pairs one "
        f"by one (table entry, exponential, sums) and to waiting; SDPA, without tables, is at "
        f"{product_ms / floor_ms:.0%} of the products' ceiling"
    )


def bars(cases: dict[str, dict[str, dict]]) -> list[dict]:
    """What was asked for, what was found."""
    large, _, middle, cluster, zinc = (case.name for case in CASES)
    found = []

    def bar(case: str, row: str, limit: float, unit: str) -> None:
        value = cases[case][row].get("graph", math.inf)
        if unit == "× SDPA":
            value /= cases[case]["SDPA, no mask"]["graph"]
        found.append({"case": case, "row": row, "limit": limit, "unit": unit, "found": value})

    for case in (large, middle):
        bar(case, "ours", 2.0, "× SDPA")
        bar(case, "ours + λ, sp", 3.0, "× SDPA")
    bar(cluster, "ours + λ, sp", 0.12, "ms")
    bar(zinc, "ours + λ, sp", 0.04, "ms")
    peak = cases[large]["ours + λ, sp"]["peak"] / (CASES[0].held / 2**20)
    memory = {"case": large, "row": "ours + λ, sp", "limit": 1.5, "unit": "× tensors held"}
    return [*found, memory | {"found": peak}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the record here")
    parser.add_argument("--resume", action="store_true", help="keep the cases that it has")
    parser.add_argument("--quick", action="store_true", help="ours and SDPA only")
    options = parser.parse_args()
    known = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    known["ceilings"] = ceilings()
    print(known["device"], {k: round(v, 2) for k, v in known["ceilings"].items()}, flush=True)
    cases, stops, commits = {}, {}, {}
    if options.resume:
        before = json.loads(Path(options.json).read_text())
        cases, stops = before["cases"], before["what stops us"]
        known["ceilings"] = before["ceilings"]  # those that its cases were held to
        commits = before.get("commits", dict.fromkeys(cases, before["commit"]))
    known |= {"what stops us": stops, "commits": commits}
    for case in CASES:
        if case.name in cases:
            continue
        commits[case.name] = environment(torch.device(DEVICE))["commit"]
        cases[case.name] = rows = compare(case, options.quick)
        show(case, rows)
        stops[case.name] = limits(case, rows, known["ceilings"])
        print(f"what stops us: {stops[case.name]}", flush=True)
        write_record(options.json, [], cases=cases, **known)
    print()
    verdicts = bars(cases)
    for bar in verdicts:
        verdict = "met" if bar["found"] <= bar["limit"] else "MISSED"
        limit = f"{bar['found']:.3f} of {bar['limit']} {bar['unit']}"
        print(f"BAR {verdict}: {bar['case']}: {bar['row']}: {limit}")
    write_record(options.json, verdicts, cases=cases, **known)


def show(case: Case, rows: dict[str, dict]) -> None:
    floor = rows["SDPA, no mask"].get("graph")
    size = f"{case.pairs / 1e6:.2f} M pairs; distances + tensors {case.held / 2**20:.1f} MiB"
    print(f"\n{case.name}: {size}")
    columns = ("eager ms", "graph ms", "× SDPA", "TB/s", "TFLOP/s", "peak MiB", "error")
    print(f"{'':34}" + "".join(f"{column:>10}" for column in columns))
    for name, row in rows.items():
        if "failed" in row:
            print(f"{name:34}  {row['failed']}")
            continue
        error = f"{row['error']:.0e}" if "error" in row else ""
        if "graph" in row:
            ratio = f"{row['graph'] / floor:.2f}" if floor else "–"
            achieved = f"{row['graph']:10.4f}{ratio:>10}{row['TB/s']:10.2f}{row['TFLOP/s']:10.1f}"
        else:
            achieved = f"{'–':>10}" * 4
        print(
            f"{name:34}{row['eager']:10.3f}{achieved}{row['peak']:10.1f}{error:>10}"
            f"  {row.get('capture failed', '')}",
            flush=True,
        )


if __name__ == "__main__":
    main()
