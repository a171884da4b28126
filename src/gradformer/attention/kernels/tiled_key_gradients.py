"""Second backward kernel for graphs of any size: a program owns a tile of keys.

It makes dk and dv, and walks over the queries. Notation and order of work are those of
:mod:`.tiled_query_gradients`, which leaves lse and δ side by side.
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
from gradformer.attention.kernels.products import (
    add_product,
    product,
    regroup,
    regrouped,
    regrouped_rows,
)


@triton.jit
def _key_step(
    dk, dv, place, key, value, q, grad, stats, q_row, o_row, heads, seed, graph, head,
    rows, sums, cols, n, channel, mul, add, bias, shared, scale, dropout_scale, threshold,
    D: tl.constexpr, TAIL: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """What the queries ``rows``, regrouped ``sums``, add to dk and dv of the keys ``cols``.

    Pairs are [keys, queries].
    """
    wide = (channel < D)[None, :]
    row_in = (rows < n)[:, None] & wide if TAIL else wide
    sum_in = (sums < n)[:, None] & wide if TAIL else wide
    query = tl.load(q + rows[:, None] * q_row + channel[None, :], row_in, other=0.0)
    do = tl.load(grad + rows[:, None] * o_row + channel[None, :], row_in, other=0.0)
    # lse and δ in one load: two would be narrower than the program, and repeated by its threads
    pair = rows[:, None] * (2 * heads) + tl.arange(0, 2)[None, :]
    if TAIL:
        row_lse, row_delta = tl.split(tl.load(stats + pair, (rows < n)[:, None], other=0.0))
        row_lse = tl.where(rows < n, row_lse, float("inf"))
    else:
        row_lse, row_delta = tl.split(tl.load(stats + pair))
    raw = product(key, tl.trans(query), PRECISION)
    dp = product(value, tl.trans(do), PRECISION)
    a, factor = decayed(raw, mul, add, scale, shared, place, WIDE)
    if bias is not None:
        at_pair = (rows[None, :] * n + cols[:, None]).to(tl.int64) * heads
        inside = (rows < n)[None, :] & (cols < n)[:, None]
        a = a + LOG2E * tl.load(bias + at_pair, inside, other=0.0)
    p = tl.exp2(a - row_lse[None, :])
    weight = p  # times dropout_scale, which dv gets in the end
    change = dp - row_delta[None, :]
    if seed is not None:
        row_keys = keys_of_rows(seed, graph, head, rows)
        kept = is_kept(row_keys[None, :], cols[:, None], threshold)
        weight = tl.where(kept, p, 0.0)
        change = tl.where(kept, dp * dropout_scale - row_delta[None, :], -row_delta[None, :])
    at_sums = sums[:, None] * o_row + channel[None, :]
    do = regrouped_rows(do, grad, at_sums, sum_in, PRECISION)
    dv = add_product(dv, regroup(weight.to(do.dtype), PRECISION), do, PRECISION)
    ds = p * change
    if mul is not None:
        ds = ds * factor
    at_sums = sums[:, None] * q_row + channel[None, :]
    query = regrouped_rows(query, q, at_sums, sum_in, PRECISION)
    dk = add_product(dk, regroup(ds.to(query.dtype), PRECISION), query, PRECISION)
    return dk, dv


@triton.jit(do_not_specialize=["nodes", "graphs", "pairs", "tiles"])
def key_gradient_kernel(
    q, k, v, grad, stats, dk, dv,
    node_ptr, pair_ptr, graph_id, distance, mul, add, seed,
    q_row, q_head, k_row, k_head, v_row, v_head, g_row, heads, scale, dropout_scale, threshold,
    nodes, graphs, pairs, tiles, bias, packed_ptr,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    PRECISION: tl.constexpr, SYMMETRIC: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """dk and dv; grid (heads · (graphs · tiles of BLOCK_N keys [+ 1 if padded]),).

    SYMMETRIC distances of a key are read along its row, as the other kernels read theirs; WIDE
    needs that. Otherwise they are read down its column.
    """
    head, _, graph, first, tile = whereabouts(node_ptr, heads, tiles)
    if graph == graphs:
        begin = first.to(tl.int32)
        zero_padding(dk + head * D, g_row, begin, nodes, D, BLOCK_N, BLOCK_D)
        zero_padding(dv + head * D, g_row, begin, nodes, D, BLOCK_N, BLOCK_D)
        return
    n = (tl.load(node_ptr + graph + 1) - first).to(tl.int32)
    if tile * BLOCK_N >= n:
        return
    pair = tl.load(pair_ptr + graph)
    last = pairs - 1 - pair
    distance += pair
    mul = None if mul is None else mul + head * 256
    add = None if add is None else add + head * 256
    shared = stage_decay(mul, add, scale, WIDE)
    tl.debug_barrier()
    cols = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    channel = tl.arange(0, BLOCK_D)
    col_in = (cols < n)[:, None] & (channel < D)[None, :]
    k += first * k_row + head * k_head
    v += first * v_row + head * v_head
    key = tl.load(k + cols[:, None] * k_row + channel[None, :], col_in, other=0.0)
    value = tl.load(v + cols[:, None] * v_row + channel[None, :], col_in, other=0.0)
    q += first * q_row + head * q_head
    grad += (first * heads + head) * D
    stats += 2 * (first * heads + head)
    graph_number = tl.load(graph_id + graph)
    if bias is not None:
        bias += tl.load(packed_ptr + graph) * heads + head
    dk_acc = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    dv_acc = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    along = 1 if SYMMETRIC else n
    key_start = tl.minimum(cols, n - 1)[:, None] * (n if SYMMETRIC else 1)
    whole = n // BLOCK_M * BLOCK_M
    rows = order(tl.arange(0, BLOCK_M), WIDE)
    sums = order(regrouped(BLOCK_M, PRECISION), WIDE)
    place = tl.zeros([BLOCK_N, BLOCK_M], tl.uint32)
    if whole > 0:
        place = fetch(distance, key_start, rows * along, last, False, WIDE)
    for start in range(0, whole, BLOCK_M):
        ahead = tl.minimum(start + BLOCK_M, whole - BLOCK_M)
        next_place = fetch(distance, key_start, (rows + ahead) * along, last, False, WIDE)
        dk_acc, dv_acc = _key_step(
            dk_acc, dv_acc, place, key, value, q, grad, stats, q_row, heads * D, heads,
            seed, graph_number, head, start + rows, start + sums, cols, n, channel,
            mul, add, bias, shared, scale, dropout_scale, threshold, D, False, WIDE,
            PRECISION,
        )  # fmt: skip
        place = next_place
    if whole < n:
        rows += whole
        sums += whole
        place = fetch(distance, key_start, rows * along, last, True, WIDE)
        dk_acc, dv_acc = _key_step(
            dk_acc, dv_acc, place, key, value, q, grad, stats, q_row, heads * D, heads,
            seed, graph_number, head, rows, sums, cols, n, channel,
            mul, add, bias, shared, scale, dropout_scale, threshold, D, True, WIDE,
            PRECISION,
        )  # fmt: skip
    dk_acc *= scale if mul is None else 1.0 / LOG2E  # with ``mul`` came the scale, and log₂e
    if seed is not None:
        dv_acc = dv_acc * dropout_scale
    at = (first + cols)[:, None] * g_row + head * D + channel[None, :]
    tl.store(dk + at, dk_acc.to(dk.dtype.element_ty), col_in)
    tl.store(dv + at, dv_acc.to(dv.dtype.element_ty), col_in)
