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
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from attention_ways import (
    CASES,
    DEVICE,
    Call,
    Case,
    Inputs,
    check,
    dense_way,
    exact,
    flex,
    make_inputs,
    ours,
    sdpa,
)
from common import gpu_ms, write_record

from gradformer.training.records import environment

ROTATE, CALLS = 4, 20
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


def eager_ms(call: Call, sets: list[Inputs], repeats: int) -> float:
    turns = (sets[number % len(sets)] for number in range(repeats))
    return statistics.median(gpu_ms(partial(call, x)) for x in turns)


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
    return statistics.median(gpu_ms(graph.replay) / CALLS for _ in range(1 if slow else 7))


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
        found[name] = amount / (gpu_ms(run, times=10) / 1e3)
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
