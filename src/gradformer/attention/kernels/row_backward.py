"""Row kernel of the backward pass: a program owns 32 queries, or 32 keys, and is one warp.

See :mod:`.row_operands`; notation as in :mod:`.small`.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.attention.kernels.draws import is_kept, keys_of_rows
from gradformer.attention.kernels.lane_sums import add_by_distance, lane_columns, with_columns
from gradformer.attention.kernels.lanes import SIZE, exp2, over_rows, places, read, read_sides
from gradformer.attention.kernels.pairs import (
    LOG2E,
    no_shares,
    store_shares,
    whereabouts,
    zero_padding,
)
from gradformer.attention.kernels.products import factors
from gradformer.attention.kernels.row_operands import (
    OWN,
    add_weighted,
    bytes_of_pairs,
    inner,
    no_sums,
    other_nodes,
    own_rows,
    products,
    split,
    store,
)


@triton.jit
def _no_shares(COUNT: tl.constexpr, INTERPRET: tl.constexpr):
    """Sums before the first pair, and where lanes have theirs."""
    column = 0
    if COUNT == 256:
        column = lane_columns(INTERPRET)
    return no_shares(SIZE), column


@triton.jit
def _add_shares(
    sums, column, x, byte, jacobian, heads, COUNT: tl.constexpr, INTERPRET: tl.constexpr
):
    """Sums with x of each pair, the gradient of its entry of the table."""
    table, one, two = sums
    if COUNT == 256:
        table = add_by_distance(table, column, x, byte, INTERPRET)
    elif COUNT > 0:
        one += x * read(jacobian, byte, INTERPRET)
        if COUNT > 1:
            two += x * read(jacobian + heads * 256, byte, INTERPRET)
    return table, one, two


@triton.jit
def _all_shares(sums, column, COUNT: tl.constexpr, INTERPRET: tl.constexpr):
    """Sums with those that lanes have."""
    table, one, two = sums
    if COUNT == 256:
        table = with_columns(table, column, INTERPRET)
    return table, one, two


@triton.jit
def _query_gradients(
    q, k, v, out, lse, grad, dq, partial_mul, partial_add, program, programs, head,
    distance, mul, add, mul_jacobian, add_jacobian, seed, number, start, n,
    q_row, k_row, v_row, g_row, heads, scale, dropout_scale, threshold,
    D: tl.constexpr, SYMMETRIC: tl.constexpr, MUL_COUNT: tl.constexpr, ADD_COUNT: tl.constexpr,
    EXACT: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """dq of the queries from ``start`` on, and their share of the decay's gradients."""
    mul_sums, mul_column = _no_shares(MUL_COUNT, INTERPRET)
    add_sums, add_column = _no_shares(ADD_COUNT, INTERPRET)
    if start < n:
        own, g, c, side = places()
        own += start
        query = split(own_rows(q, q_row, own, c, side, n, D, INTERPRET), scale, EXACT)
        do = own_rows(grad, heads * D, own, c, side, n, D, INTERPRET)
        o = own_rows(out, heads * D, own, c, side, n, D, INTERPRET)
        delta = inner(do, o, c + 4 * side, D)
        delta = over_rows(delta, False, INTERPRET)
        do = split(do, dropout_scale, EXACT)
        row_lse = read(lse, tl.minimum(own, n - 1) * heads, INTERPRET)
        row_lse = tl.where(own < n, row_lse, float("inf"))
        row_keys = own
        if seed is not None:
            row_keys = keys_of_rows(seed, number, head, own)
        sums = no_sums(D)
        for begin in range(0, n, 8):
            other = begin + 2 * c + side
            node, mate = tl.minimum(begin + g, n - 1), tl.minimum(other, n - 1)
            byte = bytes_of_pairs(distance, own, mate, n, SYMMETRIC, INTERPRET)
            key = split(other_nodes(k, k_row, node, c + 4 * side, D, INTERPRET), 1.0, EXACT)
            value = split(other_nodes(v, v_row, node, c + 4 * side, D, INTERPRET), 1.0, EXACT)
            s = products(query, key, EXACT, INTERPRET)
            a = s
            if mul is not None:
                factor = read(mul, byte, INTERPRET)
                a = a * factor
            if add is not None:
                a = a + read(add, byte, INTERPRET)
            p = exp2(tl.where(other < n, a * LOG2E - row_lse, float("-inf")), INTERPRET)
            dp = products(do, value, EXACT, INTERPRET)
            if seed is not None:
                dp = tl.where(is_kept(row_keys, other, threshold), dp, 0.0)
            da = p * (dp - delta)
            along = da * s
            mul_sums = _add_shares(
                mul_sums, mul_column, along, byte, mul_jacobian, heads, MUL_COUNT, INTERPRET
            )
            add_sums = _add_shares(
                add_sums, add_column, da, byte, add_jacobian, heads, ADD_COUNT, INTERPRET
            )
            ds = da if mul is None else da * factor
            summed = split(other_nodes(k, k_row, mate, g, D, INTERPRET), 1.0, EXACT)
            sums = add_weighted(sums, ds, summed, EXACT, INTERPRET)
        store(dq, g_row, own, c, side, n, sums, scale, D, INTERPRET)
    mul_sums = _all_shares(mul_sums, mul_column, MUL_COUNT, INTERPRET)
    add_sums = _all_shares(add_sums, add_column, ADD_COUNT, INTERPRET)
    store_shares(partial_mul, program, programs, head, mul_sums, 1.0, MUL_COUNT)
    store_shares(partial_add, program, programs, head, add_sums, 1.0, ADD_COUNT)


@triton.jit
def _key_gradients(
    q, k, v, out, lse, grad, dk, dv, distance, mul, add, seed, number, head, start, n,
    q_row, k_row, v_row, g_row, heads, scale, dropout_scale, threshold,
    D: tl.constexpr, EXACT: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """dk and dv of the keys from ``start`` on; here the others are queries."""
    own, g, c, side = places()
    own += start
    key = split(own_rows(k, k_row, own, c, side, n, D, INTERPRET), scale, EXACT)
    value = split(own_rows(v, v_row, own, c, side, n, D, INTERPRET), dropout_scale, EXACT)
    ones = (tl.full([SIZE], 1.0, tl.float32), tl.zeros([SIZE], tl.float32))
    dk_sums = no_sums(D)
    dv_sums = no_sums(D)
    for begin in range(0, n, 8):
        other = begin + 2 * c + side
        node, mate = tl.minimum(begin + g, n - 1), tl.minimum(other, n - 1)
        byte = bytes_of_pairs(distance, own, mate, n, True, INTERPRET)
        query = split(other_nodes(q, q_row, node, c + 4 * side, D, INTERPRET), 1.0, EXACT)
        do = other_nodes(grad, heads * D, node, c + 4 * side, D, INTERPRET)
        o = other_nodes(out, heads * D, node, c + 4 * side, D, INTERPRET)
        delta = factors(inner(do, o, c + 4 * side, D), EXACT)
        # as a product with ones, δ comes to the lanes that hold the pairs of its query
        delta = products((ones,), (delta,), EXACT, INTERPRET)
        do = split(do, 1.0, EXACT)
        row_lse = read_sides(lse, mate * heads, INTERPRET)
        row_lse = tl.where(other < n, row_lse, float("inf"))
        s = products(key, query, EXACT, INTERPRET)
        a = s
        if mul is not None:
            factor = read(mul, byte, INTERPRET)
            a = a * factor
        if add is not None:
            a = a + read(add, byte, INTERPRET)
        p = exp2(a * LOG2E - row_lse, INTERPRET)
        dp = products(value, do, EXACT, INTERPRET)
        weight = p
        if seed is not None:
            kept = is_kept(keys_of_rows(seed, number, head, other), own, threshold)
            weight = tl.where(kept, p, 0.0)
            dp = tl.where(kept, dp, 0.0)
        summed = split(other_nodes(grad, heads * D, mate, g, D, INTERPRET), 1.0, EXACT)
        dv_sums = add_weighted(dv_sums, weight, summed, EXACT, INTERPRET)
        ds = p * (dp - delta)
        ds = ds if mul is None else ds * factor
        summed = split(other_nodes(q, q_row, mate, g, D, INTERPRET), 1.0, EXACT)
        dk_sums = add_weighted(dk_sums, ds, summed, EXACT, INTERPRET)
    store(dk, g_row, own, c, side, n, dk_sums, scale, D, INTERPRET)
    store(dv, g_row, own, c, side, n, dv_sums, dropout_scale, D, INTERPRET)


@triton.jit(do_not_specialize=["nodes", "graphs", "tiles"])
def row_backward_kernel(
    q, k, v, out, lse, grad, dq, dk, dv, partial_mul, partial_add,
    node_ptr, pair_ptr, graph_id, distance, mul, add, mul_jacobian, add_jacobian, seed,
    q_row, q_head, k_row, k_head, v_row, v_head, g_row, heads, scale, dropout_scale, threshold,
    nodes, graphs, tiles,
    D: tl.constexpr, SYMMETRIC: tl.constexpr, EXACT: tl.constexpr, INTERPRET: tl.constexpr,
    MUL_COUNT: tl.constexpr, ADD_COUNT: tl.constexpr,
):  # fmt: skip
    """All gradients; grid (heads · (graphs · tiles [+ 1 if padded]), 2): queries, then keys."""
    head, program, graph, first, tile = whereabouts(node_ptr, heads, tiles)
    dq += head * D
    dk += head * D
    dv += head * D
    if graph == graphs:
        begin = first.to(tl.int32)
        if tl.program_id(1) == 0:
            zero_padding(dq, g_row, begin, nodes, D, OWN, 16)
        else:
            zero_padding(dk, g_row, begin, nodes, D, OWN, 16)
            zero_padding(dv, g_row, begin, nodes, D, OWN, 16)
        return
    n = (tl.load(node_ptr + graph + 1) - first).to(tl.int32)
    start = tile * OWN
    q += first * q_row + head * q_head
    k += first * k_row + head * k_head
    v += first * v_row + head * v_head
    out += (first * heads + head) * D
    grad += (first * heads + head) * D
    lse += first * heads + head
    distance += tl.load(pair_ptr + graph)
    mul = None if mul is None else mul + head * 256
    add = None if add is None else add + head * 256
    mul_jacobian = None if mul_jacobian is None else mul_jacobian + head * 256
    add_jacobian = None if add_jacobian is None else add_jacobian + head * 256
    number = tl.load(graph_id + graph)
    if tl.program_id(1) == 0:
        _query_gradients(
            q, k, v, out, lse, grad, dq + first * g_row, partial_mul, partial_add,
            program, graphs * tiles, head, distance, mul, add,
            mul_jacobian, add_jacobian, seed, number, start, n,
            q_row, k_row, v_row, g_row, heads, scale, dropout_scale, threshold,
            D, SYMMETRIC, MUL_COUNT, ADD_COUNT, EXACT, INTERPRET,
        )  # fmt: skip
    elif start < n:
        _key_gradients(
            q, k, v, out, lse, grad, dk + first * g_row, dv + first * g_row, distance, mul, add,
            seed, number, head, start, n,
            q_row, k_row, v_row, g_row, heads, scale, dropout_scale, threshold,
            D, EXACT, INTERPRET,
        )  # fmt: skip
