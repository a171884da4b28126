"""Row kernel of the forward pass, for small graphs: a program owns 32 queries and is one warp.

It walks over the keys twice, first for the maximum of each row. See :mod:`.row_operands`; notation
as in :mod:`.small`.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.attention.kernels.draws import is_kept, keys_of_rows
from gradformer.attention.kernels.lanes import SIZE, exp2, over_rows, places, read, write
from gradformer.attention.kernels.pairs import LOG2E, whereabouts, zero_padding
from gradformer.attention.kernels.row_operands import (
    OWN,
    add_weighted,
    bytes_of_pairs,
    no_sums,
    other_nodes,
    own_rows,
    products,
    split,
    store,
)


@triton.jit
def _scores(query, key, byte, mul, add, EXACT: tl.constexpr, INTERPRET: tl.constexpr):
    """Scores of pairs in base 2: products, which have the factor already, times and plus tables."""
    a = products(query, key, EXACT, INTERPRET)
    if mul is not None:
        a = a * read(mul, byte, INTERPRET)
    if add is not None:
        a = a + read(add, byte, INTERPRET) * LOG2E
    return a


@triton.jit(do_not_specialize=["nodes", "graphs", "tiles"])
def row_forward_kernel(
    q, k, v, out, lse, node_ptr, pair_ptr, graph_id, distance, mul, add, seed,
    q_row, q_head, k_row, k_head, v_row, v_head, heads, scale, dropout_scale, threshold,
    nodes, graphs, tiles,
    D: tl.constexpr, SYMMETRIC: tl.constexpr, EXACT: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """out [nodes, heads, d] and lse [nodes, heads].

    The grid is (heads · (graphs · tiles [+ 1 if padded]),).
    """
    head, _, graph, first, tile = whereabouts(node_ptr, heads, tiles)
    if graph == graphs:
        zero_padding(out + head * D, heads * D, first.to(tl.int32), nodes, D, OWN, 16)
        return
    n = (tl.load(node_ptr + graph + 1) - first).to(tl.int32)
    start = tile * OWN
    if start >= n:
        return
    own, g, c, side = places()
    own += start
    k += first * k_row + head * k_head
    v += first * v_row + head * v_head
    distance += tl.load(pair_ptr + graph)
    mul = None if mul is None else mul + head * 256
    add = None if add is None else add + head * 256
    query = own_rows(q + first * q_row + head * q_head, q_row, own, c, side, n, D, INTERPRET)
    query = split(query, scale * LOG2E, EXACT)
    peak = tl.full([SIZE], float("-inf"), tl.float32)
    for begin in range(0, n, 8):
        other = begin + 2 * c + side
        node, mate = tl.minimum(begin + g, n - 1), tl.minimum(other, n - 1)
        byte = bytes_of_pairs(distance, own, mate, n, SYMMETRIC, INTERPRET)
        key = split(other_nodes(k, k_row, node, c + 4 * side, D, INTERPRET), 1.0, EXACT)
        a = _scores(query, key, byte, mul, add, EXACT, INTERPRET)
        peak = tl.maximum(peak, tl.where(other < n, a, float("-inf")))
    top = over_rows(peak, True, INTERPRET)
    safe = tl.where(top == float("-inf"), 0.0, top)
    row_keys = own
    if seed is not None:
        row_keys = keys_of_rows(seed, tl.load(graph_id + graph), head, own)
    total = tl.zeros([SIZE], tl.float32)
    sums = no_sums(D)
    for begin in range(0, n, 8):
        other = begin + 2 * c + side
        node, mate = tl.minimum(begin + g, n - 1), tl.minimum(other, n - 1)
        byte = bytes_of_pairs(distance, own, mate, n, SYMMETRIC, INTERPRET)
        key = split(other_nodes(k, k_row, node, c + 4 * side, D, INTERPRET), 1.0, EXACT)
        a = _scores(query, key, byte, mul, add, EXACT, INTERPRET)
        p = exp2(tl.where(other < n, a - safe, float("-inf")), INTERPRET)
        total += p
        if seed is not None:
            p = tl.where(is_kept(row_keys, other, threshold), p, 0.0)
        value = split(other_nodes(v, v_row, mate, g, D, INTERPRET), 1.0, EXACT)
        sums = add_weighted(sums, p, value, EXACT, INTERPRET)
    row_total = over_rows(total, False, INTERPRET)
    empty = row_total == 0.0
    row_lse = tl.where(empty, float("inf"), top + tl.log2(row_total))
    once = (own < n) & (c + side == 0)
    write(lse + first * heads + head, own * heads, row_lse, once, INTERPRET)
    factor = dropout_scale / tl.where(empty, 1.0, row_total)
    out += (first * heads + head) * D
    store(out, heads * D, own, c, side, n, sums, factor, D, INTERPRET)
