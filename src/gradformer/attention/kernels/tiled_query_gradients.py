"""First backward kernel for graphs of any size: a program owns a tile of queries, as forward.

It makes dq and the decay's gradients, walks over the keys and computes its pairs anew from lse.
Every gradient of the two kernels is written by exactly one program, and shares of the decay's are
stored one by one: no atomics, the same bits every time. Entries of ``mul`` and ``add`` are put in
base 2, as in the forward kernel.

Notation: raw = q·k, a = raw·mul[byte] + add[byte] + bias, p = 2^(a − lse), dp = do·v,
da = p·(dp − δ) with δ = Σ do·o, ds = da·mul[byte].
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.attention.kernels.draws import is_kept, keys_of_rows
from gradformer.attention.kernels.pairs import (
    ADD_JACOBIAN,
    LOG2E,
    MUL_JACOBIAN,
    bytes_of,
    decayed,
    fetch,
    lookup,
    no_shares,
    order,
    stage,
    stage_decay,
    store_shares,
    tally,
    whereabouts,
    zero_padding,
)
from gradformer.attention.kernels.products import (
    add_product,
    product,
    regroup,
    regrouped,
    regrouped_rows,
)


@triton.jit
def _stage_jacobian(
    shared, jacobian, heads, PLACE: tl.constexpr, COUNT: tl.constexpr, WIDE: tl.constexpr
):
    """Stage how a table changes with its one or two parameters, from PLACE on."""
    if COUNT == 1 or COUNT == 2:
        stage(shared, jacobian, 1.0, PLACE, WIDE)
    if COUNT == 2:
        stage(shared, jacobian + heads * 256, 1.0, PLACE + 1, WIDE)


@triton.jit
def _add_shares(
    sums, x, jacobian, heads, shared, place,
    PLACE: tl.constexpr, COUNT: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Sums with x of each pair, the gradient of its entry of the table."""
    table, one, two = sums
    if COUNT == 256:
        table = tally(table, x, bytes_of(place, WIDE))
    elif COUNT > 0:
        one += tl.sum(x * lookup(jacobian, 1.0, shared, place, PLACE, WIDE), 1)
        if COUNT > 1:
            second = lookup(jacobian + heads * 256, 1.0, shared, place, PLACE + 1, WIDE)
            two += tl.sum(x * second, 1)
    return table, one, two


@triton.jit
def _query_step(
    acc, mul_sums, add_sums, place, query, do, row_lse, row_delta, k, v, k_row, v_row,
    rows, cols, sums, n, channel, row_keys, mul, add, bias_row, dbias_row,
    mul_jacobian, add_jacobian, shared, heads, scale, dropout_scale, threshold,
    D: tl.constexpr, TAIL: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr,
    MUL_COUNT: tl.constexpr, ADD_COUNT: tl.constexpr,
):  # fmt: skip
    """What the keys ``cols``, regrouped ``sums``, add to dq and to the decay's gradients."""
    wide = (channel < D)[None, :]
    col_in = (cols < n)[:, None] & wide if TAIL else wide
    sum_in = (sums < n)[:, None] & wide if TAIL else wide
    key = tl.load(k + cols[:, None] * k_row + channel[None, :], col_in, other=0.0)
    value = tl.load(v + cols[:, None] * v_row + channel[None, :], col_in, other=0.0)
    raw = product(query, tl.trans(key), PRECISION)
    dp = product(do, tl.trans(value), PRECISION)
    a, factor = decayed(raw, mul, add, scale, shared, place, WIDE)
    if bias_row is not None:
        a = a + LOG2E * tl.load(bias_row + (cols * heads)[None, :], (cols < n)[None, :], other=0.0)
    if TAIL:
        a = tl.where((cols < n)[None, :], a, float("-inf"))
    p = tl.exp2(a - row_lse[:, None])
    change = dp - row_delta[:, None]
    if row_keys is not None:
        kept = is_kept(row_keys[:, None], cols[None, :], threshold)
        change = tl.where(kept, dp * dropout_scale - row_delta[:, None], -row_delta[:, None])
    da = p * change
    if dbias_row is not None:
        inside = (rows < n)[:, None] & (cols < n)[None, :]
        tl.store(dbias_row + (cols * heads)[None, :], da, inside)
    mul_sums = _add_shares(
        mul_sums, da * raw, mul_jacobian, heads, shared, place, MUL_JACOBIAN, MUL_COUNT, WIDE
    )
    add_sums = _add_shares(
        add_sums, da, add_jacobian, heads, shared, place, ADD_JACOBIAN, ADD_COUNT, WIDE
    )
    ds = da if mul is None else da * factor
    at_sums = sums[:, None] * k_row + channel[None, :]
    key = regrouped_rows(key, k, at_sums, sum_in, PRECISION)
    acc = add_product(acc, regroup(ds.to(key.dtype), PRECISION), key, PRECISION)
    return acc, mul_sums, add_sums


@triton.jit(do_not_specialize=["nodes", "graphs", "pairs", "tiles"])
def query_gradient_kernel(
    q, k, v, out, lse, grad, stats, dq, partial_mul, partial_add,
    node_ptr, pair_ptr, graph_id, distance, mul, add, mul_jacobian, add_jacobian, seed,
    q_row, q_head, k_row, k_head, v_row, v_head, g_row, heads, scale, dropout_scale, threshold,
    nodes, graphs, pairs, tiles, bias, packed_ptr, dbias,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    PRECISION: tl.constexpr, MUL_COUNT: tl.constexpr, ADD_COUNT: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """dq, the decay's gradients from this tile, stats [nodes, heads, 2] = (lse, δ).

    The grid is (heads · (graphs · tiles [+ 1 if padded]),).
    """
    head, program, graph, first, tile = whereabouts(node_ptr, heads, tiles)
    programs = graphs * tiles
    if graph == graphs:
        zero_padding(dq + head * D, g_row, first.to(tl.int32), nodes, D, BLOCK_M, BLOCK_D)
        return
    n = (tl.load(node_ptr + graph + 1) - first).to(tl.int32)
    mul_sums, add_sums = no_shares(BLOCK_M), no_shares(BLOCK_M)
    if tile * BLOCK_M >= n:
        store_shares(partial_mul, program, programs, head, mul_sums, 1.0, MUL_COUNT)
        store_shares(partial_add, program, programs, head, add_sums, 1.0, ADD_COUNT)
        return
    pair = tl.load(pair_ptr + graph)
    last = pairs - 1 - pair
    distance += pair
    mul = None if mul is None else mul + head * 256
    add = None if add is None else add + head * 256
    mul_jacobian = None if mul_jacobian is None else mul_jacobian + head * 256
    add_jacobian = None if add_jacobian is None else add_jacobian + head * 256
    shared = stage_decay(mul, add, scale, WIDE)
    _stage_jacobian(shared, mul_jacobian, heads, MUL_JACOBIAN, MUL_COUNT, WIDE)
    _stage_jacobian(shared, add_jacobian, heads, ADD_JACOBIAN, ADD_COUNT, WIDE)
    tl.debug_barrier()
    k += first * k_row + head * k_head
    v += first * v_row + head * v_head
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    channel = tl.arange(0, BLOCK_D)
    row_in = (rows < n)[:, None] & (channel < D)[None, :]
    q += first * q_row + head * q_head
    query = tl.load(q + rows[:, None] * q_row + channel[None, :], row_in, other=0.0)
    at = (first + rows) * heads + head
    slot = at[:, None] * D + channel[None, :]
    do = tl.load(grad + slot, row_in, other=0.0)
    o = tl.load(out + slot, row_in, other=0.0)
    row_delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    row_lse = tl.load(lse + at, rows < n, other=float("inf"))
    tl.store(stats + 2 * at, row_lse, rows < n)
    tl.store(stats + 2 * at + 1, row_delta, rows < n)
    row_keys = None
    if seed is not None:
        row_keys = keys_of_rows(seed, tl.load(graph_id + graph), head, rows)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    row_start = tl.minimum(rows, n - 1)[:, None] * n
    bias_row = None
    dbias_row = None
    if bias is not None:
        at_row = (tl.load(packed_ptr + graph) + row_start) * heads + head
        bias_row = bias + at_row
        if dbias is not None:
            dbias_row = dbias + at_row
    whole = n // BLOCK_N * BLOCK_N
    cols = order(tl.arange(0, BLOCK_N), WIDE)
    sums = order(regrouped(BLOCK_N, PRECISION), WIDE)
    place = tl.zeros([BLOCK_M, BLOCK_N], tl.uint32)
    if whole > 0:
        place = fetch(distance, row_start, cols, last, False, WIDE)
    for start in range(0, whole, BLOCK_N):
        ahead = tl.minimum(start + BLOCK_N, whole - BLOCK_N)
        next_place = fetch(distance, row_start, cols + ahead, last, False, WIDE)
        acc, mul_sums, add_sums = _query_step(
            acc, mul_sums, add_sums, place, query, do, row_lse, row_delta, k, v, k_row, v_row,
            rows, start + cols, start + sums, n, channel, row_keys, mul, add, bias_row, dbias_row,
            mul_jacobian, add_jacobian, shared, heads, scale, dropout_scale, threshold,
            D, False, WIDE, PRECISION, MUL_COUNT, ADD_COUNT,
        )  # fmt: skip
        place = next_place
    if whole < n:
        cols += whole
        sums += whole
        place = fetch(distance, row_start, cols, last, True, WIDE)
        acc, mul_sums, add_sums = _query_step(
            acc, mul_sums, add_sums, place, query, do, row_lse, row_delta, k, v, k_row, v_row,
            rows, cols, sums, n, channel, row_keys, mul, add, bias_row, dbias_row,
            mul_jacobian, add_jacobian, shared, heads, scale, dropout_scale, threshold,
            D, True, WIDE, PRECISION, MUL_COUNT, ADD_COUNT,
        )  # fmt: skip
    acc *= scale if mul is None else 1.0 / LOG2E  # with ``mul`` came the scale, and log₂e
    at = (first + rows)[:, None] * g_row + head * D + channel[None, :]
    tl.store(dq + at, acc.to(dq.dtype.element_ty), row_in)
    store_shares(partial_mul, program, programs, head, mul_sums, scale, MUL_COUNT)
    store_shares(partial_add, program, programs, head, add_sums, 1.0, ADD_COUNT)
