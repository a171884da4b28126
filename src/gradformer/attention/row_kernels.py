"""Kernels for float32 heads of up to 16 channels and graphs of up to 256 nodes: a warp a program.

A program owns 32 queries (or, for dk and dv, keys) and walks over the other nodes, eight at a time.
The pairs of both are a matrix [32, 8] in pieces, see :mod:`gradformer.attention.lane_kernels`: from
products over weights to factors of the next products they stay in the registers where they are.
The forward kernel walks twice, first for the maximum of each row. Notation as in
:mod:`gradformer.attention.small_kernels`.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.attention.draw_kernels import _keep, _row_keys
from gradformer.attention.lane_kernels import (
    SIZE,
    add_product,
    exp2,
    halves,
    over_rows,
    places,
    read,
    read_bytes,
    read_sides,
    write,
)
from gradformer.attention.pair_kernels import LOG2E, store_shares, tally
from gradformer.attention.small_kernels import _zero_padding

OWN = tl.constexpr(32)

# --- operands: tuples of blocks of eight channels -------------------------------------------------


@triton.jit
def _own(x, row, node, c, s, n, D: tl.constexpr, INTERPRET: tl.constexpr):
    """Own nodes as rows of left factors: x [n, D] at ``node``, rows ``row`` apart, 0 outside."""
    found = ()
    for block in tl.static_range(0, D, 8):
        channel = block + c + 4 * s
        inside = (node < n) & (channel < D)
        value = read(x, tl.where(inside, node * row + channel, 0), INTERPRET)
        found += (tl.where(inside, value, 0.0),)
    return found


@triton.jit
def _others(x, row, node, first, n, D: tl.constexpr, INTERPRET: tl.constexpr):
    """Other nodes as right factors: x [n, D] at ``node`` and, of each eight, channel ``first``."""
    found = ()
    for block in tl.static_range(0, D, 8):
        channel = block + first
        inside = (node < n) & (channel < D)
        value = read_sides(x, tl.where(inside, node * row + channel, 0), INTERPRET)
        found += (tl.where(inside, value, 0.0),)
    return found


@triton.jit
def _split(x, factor, EXACT: tl.constexpr):
    """factor · x in halves."""
    found = ()
    for block in tl.static_range(len(x)):
        value = x[block] * factor
        found += (halves(value, EXACT) if EXACT else (value, value),)
    return found


@triton.jit
def _inner(x, y):
    """x · y over the blocks."""
    total = x[0] * y[0]
    for block in tl.static_range(1, len(x)):
        total += x[block] * y[block]
    return total


@triton.jit
def _products(own, others, EXACT: tl.constexpr, INTERPRET: tl.constexpr):
    """Products of all pairs."""
    sums = tl.full([SIZE], 0.0, tl.float32)
    for block in tl.static_range(len(own)):
        sums = add_product(sums, own[block], others[block], EXACT, INTERPRET)
    return sums


@triton.jit
def _no_sums(D: tl.constexpr):
    sums = ()
    for _ in tl.static_range(0, D, 8):
        sums += (tl.zeros([SIZE], tl.float32),)
    return sums


@triton.jit
def _add(sums, weight, others, EXACT: tl.constexpr, INTERPRET: tl.constexpr):
    """sums + weight of each pair · the others' rows."""
    weight = halves(weight, EXACT)
    more = ()
    for block in tl.static_range(len(sums)):
        more += (add_product(sums[block], weight, others[block], EXACT, INTERPRET),)
    return more


@triton.jit
def _store(x, row, node, c, s, n, sums, factor, D: tl.constexpr, INTERPRET: tl.constexpr):
    """x [n, D] at ``node`` = factor · sums."""
    for block in tl.static_range(len(sums)):
        channel = 8 * block + 2 * c + s
        inside = (node < n) & (channel < D)
        write(x, node * row + channel, sums[block] * factor, inside, INTERPRET)


# --- pairs ----------------------------------------------------------------------------------------


@triton.jit
def _bytes(distance, own, other, n, ALONG: tl.constexpr, INTERPRET: tl.constexpr):
    """Bytes of pairs; ALONG reads where the other is a row. Outside, those of the last node."""
    own, other = tl.minimum(own, n - 1), tl.minimum(other, n - 1)
    return read_bytes(distance, other * n + own if ALONG else own * n + other, INTERPRET)


# --- forward --------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["nodes", "graphs", "tiles"])
def row_forward_kernel(
    q, k, v, out, lse, node_ptr, pair_ptr, graph_id, distance, mul, add, seed,
    q_row, q_head, k_row, k_head, v_row, v_head, heads, scale, dropout_scale, threshold,
    nodes, graphs, tiles,
    D: tl.constexpr, SYMMETRIC: tl.constexpr,
    HAS_MUL: tl.constexpr, HAS_ADD: tl.constexpr, DROPOUT: tl.constexpr,
    EXACT: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """out [nodes, heads, d], lse [nodes, heads]; grid (heads, graphs · tiles [+ 1 if padded])."""
    head = tl.program_id(0)
    graph = tl.program_id(1) // tiles
    first = tl.load(node_ptr + graph).to(tl.int64)
    if graph == graphs:
        _zero_padding(out + head * D, heads * D, first.to(tl.int32), nodes, D, OWN, 16)
        return
    n = (tl.load(node_ptr + graph + 1) - first).to(tl.int32)
    start = tl.program_id(1) % tiles * OWN
    if start >= n:
        return
    own, g, c, side = places()
    own += start
    k += first * k_row + head * k_head
    v += first * v_row + head * v_head
    distance += tl.load(pair_ptr + graph)
    mul += head * 256
    add += head * 256
    query = _own(q + first * q_row + head * q_head, q_row, own, c, side, n, D, INTERPRET)
    query = _split(query, scale * LOG2E, EXACT)
    peak = tl.full([SIZE], float("-inf"), tl.float32)
    for begin in range(0, n, 8):
        other = begin + 2 * c + side
        byte = _bytes(distance, own, other, n, SYMMETRIC, INTERPRET)
        key = _split(_others(k, k_row, begin + g, c + 4 * side, n, D, INTERPRET), 1.0, EXACT)
        a = _products(query, key, EXACT, INTERPRET)
        if HAS_MUL:
            a = a * read(mul, byte, INTERPRET)
        if HAS_ADD:
            a = a + read(add, byte, INTERPRET) * LOG2E
        peak = tl.maximum(peak, tl.where(other < n, a, float("-inf")))
    top = over_rows(peak, True, INTERPRET)
    safe = tl.where(top == float("-inf"), 0.0, top)
    row_keys = own
    if DROPOUT:
        row_keys = _row_keys(seed, tl.load(graph_id + graph), head, own)
    total = tl.zeros([SIZE], tl.float32)
    sums = _no_sums(D)
    for begin in range(0, n, 8):
        other = begin + 2 * c + side
        byte = _bytes(distance, own, other, n, SYMMETRIC, INTERPRET)
        key = _split(_others(k, k_row, begin + g, c + 4 * side, n, D, INTERPRET), 1.0, EXACT)
        a = _products(query, key, EXACT, INTERPRET)
        if HAS_MUL:
            a = a * read(mul, byte, INTERPRET)
        if HAS_ADD:
            a = a + read(add, byte, INTERPRET) * LOG2E
        p = exp2(tl.where(other < n, a - safe, float("-inf")), INTERPRET)
        total += p
        if DROPOUT:
            p = tl.where(_keep(row_keys, other, threshold), p, 0.0)
        value = _split(_others(v, v_row, other, g, n, D, INTERPRET), 1.0, EXACT)
        sums = _add(sums, p, value, EXACT, INTERPRET)
    row_total = over_rows(total, False, INTERPRET)
    empty = row_total == 0.0
    row_lse = tl.where(empty, float("inf"), top + tl.log2(row_total))
    once = (own < n) & (c + side == 0)
    write(lse + first * heads + head, own * heads, row_lse, once, INTERPRET)
    factor = dropout_scale / tl.where(empty, 1.0, row_total)
    out += (first * heads + head) * D
    _store(out, heads * D, own, c, side, n, sums, factor, D, INTERPRET)


# --- backward -------------------------------------------------------------------------------------


@triton.jit
def _query_gradients(
    q, k, v, out, lse, grad, dq, partial_mul, partial_add, program, programs, head,
    distance, mul, add, mul_jacobian, add_jacobian, seed, number, start, n,
    q_row, k_row, v_row, g_row, heads, scale, dropout_scale, threshold,
    D: tl.constexpr, SYMMETRIC: tl.constexpr,
    HAS_MUL: tl.constexpr, HAS_ADD: tl.constexpr, DROPOUT: tl.constexpr,
    MUL_COUNT: tl.constexpr, ADD_COUNT: tl.constexpr,
    EXACT: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """dq of the queries from ``start`` on, and their share of the decay's gradients."""
    mul_table = tl.zeros([256], tl.float32)
    add_table = tl.zeros([256], tl.float32)
    mul_one = tl.zeros([SIZE], tl.float32)
    mul_two = tl.zeros([SIZE], tl.float32)
    add_one = tl.zeros([SIZE], tl.float32)
    add_two = tl.zeros([SIZE], tl.float32)
    if start < n:
        own, g, c, side = places()
        own += start
        query = _split(_own(q, q_row, own, c, side, n, D, INTERPRET), scale, EXACT)
        do = _own(grad, heads * D, own, c, side, n, D, INTERPRET)
        delta = _inner(do, _own(out, heads * D, own, c, side, n, D, INTERPRET))
        delta = over_rows(delta, False, INTERPRET)
        do = _split(do, dropout_scale, EXACT)
        row_lse = read(lse, tl.minimum(own, n - 1) * heads, INTERPRET)
        row_lse = tl.where(own < n, row_lse, float("inf"))
        row_keys = own
        if DROPOUT:
            row_keys = _row_keys(seed, number, head, own)
        sums = _no_sums(D)
        for begin in range(0, n, 8):
            other = begin + 2 * c + side
            byte = _bytes(distance, own, other, n, SYMMETRIC, INTERPRET)
            key = _split(_others(k, k_row, begin + g, c + 4 * side, n, D, INTERPRET), 1.0, EXACT)
            value = _split(_others(v, v_row, begin + g, c + 4 * side, n, D, INTERPRET), 1.0, EXACT)
            s = _products(query, key, EXACT, INTERPRET)
            a = s
            if HAS_MUL:
                factor = read(mul, byte, INTERPRET)
                a = a * factor
            if HAS_ADD:
                a = a + read(add, byte, INTERPRET)
            p = exp2(tl.where(other < n, a * LOG2E - row_lse, float("-inf")), INTERPRET)
            dp = _products(do, value, EXACT, INTERPRET)
            if DROPOUT:
                dp = tl.where(_keep(row_keys, other, threshold), dp, 0.0)
            da = p * (dp - delta)
            if MUL_COUNT == 256:
                mul_table = tally(mul_table, da * s, byte)
            elif MUL_COUNT > 0:
                mul_one += da * s * read(mul_jacobian, byte, INTERPRET)
                if MUL_COUNT > 1:
                    mul_two += da * s * read(mul_jacobian + heads * 256, byte, INTERPRET)
            if ADD_COUNT == 256:
                add_table = tally(add_table, da, byte)
            elif ADD_COUNT > 0:
                add_one += da * read(add_jacobian, byte, INTERPRET)
                if ADD_COUNT > 1:
                    add_two += da * read(add_jacobian + heads * 256, byte, INTERPRET)
            ds = da * factor if HAS_MUL else da
            summed = _split(_others(k, k_row, other, g, n, D, INTERPRET), 1.0, EXACT)
            sums = _add(sums, ds, summed, EXACT, INTERPRET)
        _store(dq, g_row, own, c, side, n, sums, scale, D, INTERPRET)
    store_shares(partial_mul, program, programs, head, mul_table, mul_one, mul_two, MUL_COUNT)
    store_shares(partial_add, program, programs, head, add_table, add_one, add_two, ADD_COUNT)


@triton.jit
def _key_gradients(
    q, k, v, out, lse, grad, dk, dv, distance, mul, add, seed, number, head, start, n,
    q_row, k_row, v_row, g_row, heads, scale, dropout_scale, threshold,
    D: tl.constexpr, HAS_MUL: tl.constexpr, HAS_ADD: tl.constexpr, DROPOUT: tl.constexpr,
    EXACT: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """dk and dv of the keys from ``start`` on; here the others are queries."""
    own, g, c, side = places()
    own += start
    key = _split(_own(k, k_row, own, c, side, n, D, INTERPRET), scale, EXACT)
    value = _split(_own(v, v_row, own, c, side, n, D, INTERPRET), dropout_scale, EXACT)
    ones = (tl.full([SIZE], 1.0, tl.float32), tl.zeros([SIZE], tl.float32))
    dk_sums = _no_sums(D)
    dv_sums = _no_sums(D)
    for begin in range(0, n, 8):
        other = begin + 2 * c + side
        byte = _bytes(distance, own, other, n, True, INTERPRET)
        query = _split(_others(q, q_row, begin + g, c + 4 * side, n, D, INTERPRET), 1.0, EXACT)
        do = _others(grad, heads * D, begin + g, c + 4 * side, n, D, INTERPRET)
        inner = _inner(do, _others(out, heads * D, begin + g, c + 4 * side, n, D, INTERPRET))
        near, rest = halves(inner, EXACT)
        # as a product with ones, δ comes to the lanes that hold the pairs of its query
        delta = _products((ones,), ((near, rest),), EXACT, INTERPRET)
        do = _split(do, 1.0, EXACT)
        row_lse = read_sides(lse, tl.minimum(other, n - 1) * heads, INTERPRET)
        row_lse = tl.where(other < n, row_lse, float("inf"))
        s = _products(key, query, EXACT, INTERPRET)
        a = s
        if HAS_MUL:
            factor = read(mul, byte, INTERPRET)
            a = a * factor
        if HAS_ADD:
            a = a + read(add, byte, INTERPRET)
        p = exp2(a * LOG2E - row_lse, INTERPRET)
        dp = _products(value, do, EXACT, INTERPRET)
        weight = p
        if DROPOUT:
            kept = _keep(_row_keys(seed, number, head, other), own, threshold)
            weight = tl.where(kept, p, 0.0)
            dp = tl.where(kept, dp, 0.0)
        summed = _split(_others(grad, heads * D, other, g, n, D, INTERPRET), 1.0, EXACT)
        dv_sums = _add(dv_sums, weight, summed, EXACT, INTERPRET)
        ds = p * (dp - delta)
        ds = ds * factor if HAS_MUL else ds
        summed = _split(_others(q, q_row, other, g, n, D, INTERPRET), 1.0, EXACT)
        dk_sums = _add(dk_sums, ds, summed, EXACT, INTERPRET)
    _store(dk, g_row, own, c, side, n, dk_sums, scale, D, INTERPRET)
    _store(dv, g_row, own, c, side, n, dv_sums, dropout_scale, D, INTERPRET)


@triton.jit(do_not_specialize=["nodes", "graphs", "tiles"])
def row_backward_kernel(
    q, k, v, out, lse, grad, dq, dk, dv, partial_mul, partial_add,
    node_ptr, pair_ptr, graph_id, distance, mul, add, mul_jacobian, add_jacobian, seed,
    q_row, q_head, k_row, k_head, v_row, v_head, g_row, heads, scale, dropout_scale, threshold,
    nodes, graphs, tiles,
    D: tl.constexpr, SYMMETRIC: tl.constexpr,
    HAS_MUL: tl.constexpr, HAS_ADD: tl.constexpr, DROPOUT: tl.constexpr,
    EXACT: tl.constexpr, INTERPRET: tl.constexpr,
    MUL_COUNT: tl.constexpr, ADD_COUNT: tl.constexpr,
):  # fmt: skip
    """All gradients; grid (heads, graphs · tiles [+ 1 if padded], 2): queries, then keys."""
    head = tl.program_id(0)
    program = tl.program_id(1)
    graph = program // tiles
    first = tl.load(node_ptr + graph).to(tl.int64)
    dq += head * D
    dk += head * D
    dv += head * D
    if graph == graphs:
        begin = first.to(tl.int32)
        if tl.program_id(2) == 0:
            _zero_padding(dq, g_row, begin, nodes, D, OWN, 16)
        else:
            _zero_padding(dk, g_row, begin, nodes, D, OWN, 16)
            _zero_padding(dv, g_row, begin, nodes, D, OWN, 16)
        return
    n = (tl.load(node_ptr + graph + 1) - first).to(tl.int32)
    start = program % tiles * OWN
    q += first * q_row + head * q_head
    k += first * k_row + head * k_head
    v += first * v_row + head * v_head
    out += (first * heads + head) * D
    grad += (first * heads + head) * D
    lse += first * heads + head
    distance += tl.load(pair_ptr + graph)
    mul += head * 256
    add += head * 256
    number = tl.load(graph_id + graph)
    if tl.program_id(2) == 0:
        _query_gradients(
            q, k, v, out, lse, grad, dq + first * g_row, partial_mul, partial_add,
            program, graphs * tiles, head, distance, mul, add,
            mul_jacobian + head * 256, add_jacobian + head * 256, seed, number, start, n,
            q_row, k_row, v_row, g_row, heads, scale, dropout_scale, threshold,
            D, SYMMETRIC, HAS_MUL, HAS_ADD, DROPOUT, MUL_COUNT, ADD_COUNT, EXACT, INTERPRET,
        )  # fmt: skip
    elif start < n:
        _key_gradients(
            q, k, v, out, lse, grad, dk + first * g_row, dv + first * g_row, distance, mul, add,
            seed, number, head, start, n,
            q_row, k_row, v_row, g_row, heads, scale, dropout_scale, threshold,
            D, HAS_MUL, HAS_ADD, DROPOUT, EXACT, INTERPRET,
        )  # fmt: skip
