"""Forward kernel for graphs of any size: a program owns a tile of queries and walks over the keys.

Softmax is computed online. Entries of ``mul`` are multiplied by scale·log₂e and those of ``add`` by
log₂e, so that a = (q·k)·mul[byte] + add[byte] is in base 2 at once. Distance bytes of the next step
are fetched while this one is worked on.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.attention.kernels.draws import is_kept, keys_of_rows
from gradformer.attention.kernels.pairs import (
    LOG2E,
    decayed,
    fetch,
    order,
    stage_decay,
    whereabouts,
    zero_padding,
)
from gradformer.attention.kernels.products import add_product, product, regroup, regrouped


@triton.jit
def _forward_step(
    acc, top, total, place, query, k, v, k_row, v_row, cols, sums, n, channel, row_keys,
    mul, add, bias_row, heads, shared, scale, threshold,
    D: tl.constexpr, TAIL: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The keys ``cols``, regrouped ``sums``; only those of the TAIL can lie beyond n."""
    wide = (channel < D)[None, :]
    col_in = (cols < n)[:, None] & wide if TAIL else wide
    sum_in = (sums < n)[:, None] & wide if TAIL else wide
    key = tl.load(k + cols[:, None] * k_row + channel[None, :], col_in, other=0.0)
    value = tl.load(v + sums[:, None] * v_row + channel[None, :], sum_in, other=0.0)
    raw = product(query, tl.trans(key), PRECISION)
    a, _ = decayed(raw, mul, add, scale, shared, place, WIDE)
    if bias_row is not None:
        a = a + LOG2E * tl.load(bias_row + (cols * heads)[None, :], (cols < n)[None, :], other=0.0)
    if TAIL:
        a = tl.where((cols < n)[None, :], a, float("-inf"))
    new_top = tl.maximum(top, tl.max(a, 1))
    # only a summand can put a whole row at −inf
    summed: tl.constexpr = (add is not None) or (bias_row is not None)
    safe = tl.where(new_top == float("-inf"), 0.0, new_top) if summed else new_top
    p = tl.exp2(a - safe[:, None])
    shrink = tl.exp2(top - safe)
    total = total * shrink + tl.sum(p, 1)
    if row_keys is not None:
        p = tl.where(is_kept(row_keys[:, None], cols[None, :], threshold), p, 0.0)
    p = regroup(p.to(value.dtype), PRECISION)
    acc = add_product(acc * shrink[:, None], p, value, PRECISION)
    return acc, new_top, total


@triton.jit(do_not_specialize=["nodes", "graphs", "pairs", "tiles"])
def forward_kernel(
    q, k, v, out, lse, node_ptr, pair_ptr, graph_id, distance, mul, add, seed,
    q_row, q_head, k_row, k_head, v_row, v_head, heads, scale, dropout_scale, threshold,
    nodes, graphs, pairs, tiles, bias, packed_ptr,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    PRECISION: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """out [nodes, heads, d] and lse [nodes, heads] (base 2).

    The grid is (heads · (graphs · tiles [+ 1 if padded]),).
    """
    head, _, graph, first, tile = whereabouts(node_ptr, heads, tiles)
    if graph == graphs:
        begin = first.to(tl.int32)
        zero_padding(out + head * D, heads * D, begin, nodes, D, BLOCK_M, BLOCK_D)
        return
    n = (tl.load(node_ptr + graph + 1) - first).to(tl.int32)
    if tile * BLOCK_M >= n:
        return
    pair = tl.load(pair_ptr + graph)
    last = pairs - 1 - pair
    distance += pair
    mul = None if mul is None else mul + head * 256
    add = None if add is None else add + head * 256
    shared = stage_decay(mul, add, scale, WIDE)
    tl.debug_barrier()
    k += first * k_row + head * k_head
    v += first * v_row + head * v_head
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    channel = tl.arange(0, BLOCK_D)
    row_in = (rows < n)[:, None] & (channel < D)[None, :]
    q += first * q_row + head * q_head
    query = tl.load(q + rows[:, None] * q_row + channel[None, :], row_in, other=0.0)
    row_keys = None
    if seed is not None:
        row_keys = keys_of_rows(seed, tl.load(graph_id + graph), head, rows)
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    row_start = tl.minimum(rows, n - 1)[:, None] * n
    bias_row = None
    if bias is not None:
        bias_row = bias + (tl.load(packed_ptr + graph) + row_start) * heads + head
    whole = n // BLOCK_N * BLOCK_N
    cols = order(tl.arange(0, BLOCK_N), WIDE)
    sums = order(regrouped(BLOCK_N, PRECISION), WIDE)
    place = tl.zeros([BLOCK_M, BLOCK_N], tl.uint32)
    if whole > 0:
        place = fetch(distance, row_start, cols, last, False, WIDE)
    for start in range(0, whole, BLOCK_N):
        ahead = tl.minimum(start + BLOCK_N, whole - BLOCK_N)
        next_place = fetch(distance, row_start, cols + ahead, last, False, WIDE)
        acc, top, total = _forward_step(
            acc, top, total, place, query, k, v, k_row, v_row, start + cols, start + sums, n,
            channel, row_keys, mul, add, bias_row, heads, shared, scale, threshold,
            D, False, WIDE, PRECISION,
        )  # fmt: skip
        place = next_place
    if whole < n:
        cols += whole
        sums += whole
        place = fetch(distance, row_start, cols, last, True, WIDE)
        acc, top, total = _forward_step(
            acc, top, total, place, query, k, v, k_row, v_row, cols, sums, n, channel,
            row_keys, mul, add, bias_row, heads, shared, scale, threshold,
            D, True, WIDE, PRECISION,
        )  # fmt: skip
    empty = total == 0.0
    kept_share = total if seed is None else total / dropout_scale
    acc = acc / tl.where(empty, 1.0, kept_share)[:, None]
    at = (first + rows) * heads + head
    tl.store(lse + at, tl.where(empty, float("inf"), top + tl.log2(total)), rows < n)
    tl.store(out + at[:, None] * D + channel[None, :], acc.to(out.dtype.element_ty), row_in)
