"""Kernels for float32 heads of 4 to 8 channels and graphs of middle size: no tensor cores.

A program owns 32 queries (or, for dk and dv, keys), one for each lane, and walks over the other
nodes of the graph in chunks that its warps share. Products of so few channels are sums of outer
products of columns, in plain float32; sums over the others stay in registers, [own, chunk], until
the end. The forward kernel walks twice, first for the maximum of each row. Notation as in
:mod:`gradformer.attention.small_kernels`.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.attention.draw_kernels import _keep, _row_keys
from gradformer.attention.pair_kernels import LOG2E, store_shares, tally
from gradformer.attention.small_kernels import _zero_padding

# --- the (up to) eight columns of an operand, as a tuple -----------------------------------------


@triton.jit
def _column(x, row, nodes, n, C: tl.constexpr, D: tl.constexpr):
    if C < D:
        return tl.load(x + nodes * row + C, nodes < n, other=0.0)
    else:  # noqa: RET505
        return tl.zeros([nodes.shape[0]], tl.float32)


@triton.jit
def _columns(x, row, nodes, n, D: tl.constexpr):
    """Columns of x [n, D], rows ``row`` apart, at ``nodes``; 0 outside."""
    return (
        _column(x, row, nodes, n, 0, D), _column(x, row, nodes, n, 1, D),
        _column(x, row, nodes, n, 2, D), _column(x, row, nodes, n, 3, D),
        _column(x, row, nodes, n, 4, D), _column(x, row, nodes, n, 5, D),
        _column(x, row, nodes, n, 6, D), _column(x, row, nodes, n, 7, D),
    )  # fmt: skip


@triton.jit
def _products(own, others, D: tl.constexpr):
    """Products of all pairs, [own, others]."""
    s = own[0][:, None] * others[0][None, :]
    for c in tl.static_range(1, D):
        s += own[c][:, None] * others[c][None, :]
    return s


@triton.jit
def _inner(x, y, D: tl.constexpr):
    """Products row by row."""
    s = x[0] * y[0]
    for c in tl.static_range(1, D):
        s += x[c] * y[c]
    return s


@triton.jit
def _no_sums(OWN: tl.constexpr, CHUNK: tl.constexpr):
    zero = tl.zeros([OWN, CHUNK], tl.float32)
    return zero, zero, zero, zero, zero, zero, zero, zero


@triton.jit
def _add(sums, weight, x, D: tl.constexpr):
    """sums + weight [own, others] · x [others], for each column."""
    return (
        sums[0] + weight * x[0][None, :],
        sums[1] + weight * x[1][None, :],
        sums[2] + weight * x[2][None, :],
        sums[3] + weight * x[3][None, :],
        sums[4] + weight * x[4][None, :] if D > 4 else sums[4],
        sums[5] + weight * x[5][None, :] if D > 5 else sums[5],
        sums[6] + weight * x[6][None, :] if D > 6 else sums[6],
        sums[7] + weight * x[7][None, :] if D > 7 else sums[7],
    )


@triton.jit
def _store(x, row, nodes, n, sums, factor, D: tl.constexpr):
    """x [n, D] at ``nodes`` = factor · sums over the others."""
    for c in tl.static_range(D):
        tl.store(x + nodes * row + c, tl.sum(sums[c], 1) * factor, nodes < n)


# --- forward -------------------------------------------------------------------------------------


@triton.jit
def _pairs(distance, own, others, n, ALONG: tl.constexpr):
    """Bytes [own, others]; ALONG reads where the others are rows."""
    inside = (own < n)[:, None] & (others < n)[None, :]
    across = own[:, None] * n + others[None, :]
    pair = others[None, :] * n + own[:, None] if ALONG else across
    return tl.load(distance + pair, inside, other=255).to(tl.int32), inside


@triton.jit
def _scores(s, byte, inside, mul, add, HAS_MUL: tl.constexpr, HAS_ADD: tl.constexpr):
    """a in base 2, −inf outside the graph."""
    a = s * tl.load(mul + byte) if HAS_MUL else s
    a = a + tl.load(add + byte) if HAS_ADD else a
    return tl.where(inside, a * LOG2E, float("-inf"))


@triton.jit(do_not_specialize=["nodes", "graphs", "tiles"])
def row_forward_kernel(
    q, k, v, out, lse, node_ptr, pair_ptr, graph_id, distance, mul, add, seed,
    q_row, q_head, k_row, k_head, v_row, v_head, heads, scale, dropout_scale, threshold,
    nodes, graphs, tiles,
    D: tl.constexpr, OWN: tl.constexpr, CHUNK: tl.constexpr, SYMMETRIC: tl.constexpr,
    HAS_MUL: tl.constexpr, HAS_ADD: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """out [nodes, heads, d], lse [nodes, heads]; grid (heads, graphs · tiles [+ 1 if padded])."""
    head = tl.program_id(0)
    graph = tl.program_id(1) // tiles
    first = tl.load(node_ptr + graph).to(tl.int64)
    if graph == graphs:
        _zero_padding(out + head * D, heads * D, first.to(tl.int32), nodes, D, OWN, 8)
        return
    n = (tl.load(node_ptr + graph + 1) - first).to(tl.int32)
    start = tl.program_id(1) % tiles * OWN
    if start >= n:
        return
    own = start + tl.arange(0, OWN)
    k += first * k_row + head * k_head
    v += first * v_row + head * v_head
    distance += tl.load(pair_ptr + graph)
    mul += head * 256
    add += head * 256
    query = _columns(q + first * q_row + head * q_head, q_row, own, n, D)
    peak = tl.full([OWN, CHUNK], float("-inf"), tl.float32)
    for begin in range(0, n, CHUNK):
        others = begin + tl.arange(0, CHUNK)
        byte, inside = _pairs(distance, own, others, n, SYMMETRIC)
        s = _products(query, _columns(k, k_row, others, n, D), D) * scale
        peak = tl.maximum(peak, _scores(s, byte, inside, mul, add, HAS_MUL, HAS_ADD))
    top = tl.max(peak, 1)
    safe = tl.where(top == float("-inf"), 0.0, top)
    row_keys = own.to(tl.uint32)
    if DROPOUT:
        row_keys = _row_keys(seed, tl.load(graph_id + graph), head, own)
    total = tl.zeros([OWN, CHUNK], tl.float32)
    sums = _no_sums(OWN, CHUNK)
    for begin in range(0, n, CHUNK):
        others = begin + tl.arange(0, CHUNK)
        byte, inside = _pairs(distance, own, others, n, SYMMETRIC)
        s = _products(query, _columns(k, k_row, others, n, D), D) * scale
        p = tl.exp2(_scores(s, byte, inside, mul, add, HAS_MUL, HAS_ADD) - safe[:, None])
        total += p
        if DROPOUT:
            kept = _keep(row_keys[:, None], others[None, :], threshold)
            p = tl.where(kept, p, 0.0)
        sums = _add(sums, p, _columns(v, v_row, others, n, D), D)
    row_total = tl.sum(total, 1)
    empty = row_total == 0.0
    row_lse = tl.where(empty, float("inf"), top + tl.log2(row_total))
    tl.store(lse + (first + own) * heads + head, row_lse, own < n)
    out += (first * heads + head) * D
    _store(out, heads * D, own, n, sums, dropout_scale / tl.where(empty, 1.0, row_total), D)


# --- backward ------------------------------------------------------------------------------------


@triton.jit
def _query_gradients(
    q, k, v, out, lse, grad, dq, partial_mul, partial_add, program, programs, head,
    distance, mul, add, mul_jacobian, add_jacobian, seed, graph, own, n,
    q_row, k_row, v_row, g_row, heads, scale, dropout_scale, threshold,
    D: tl.constexpr, OWN: tl.constexpr, CHUNK: tl.constexpr, SYMMETRIC: tl.constexpr,
    HAS_MUL: tl.constexpr, HAS_ADD: tl.constexpr, DROPOUT: tl.constexpr,
    MUL_COUNT: tl.constexpr, ADD_COUNT: tl.constexpr,
):  # fmt: skip
    """dq of the queries ``own``, and their share of the decay's gradients."""
    query = _columns(q, q_row, own, n, D)
    do = _columns(grad, heads * D, own, n, D)
    delta = _inner(do, _columns(out, heads * D, own, n, D), D)
    row_lse = tl.load(lse + own * heads, own < n, other=float("inf"))
    row_keys = own.to(tl.uint32)
    if DROPOUT:
        row_keys = _row_keys(seed, graph, head, own)
    mul_table = tl.zeros([256], tl.float32)
    add_table = tl.zeros([256], tl.float32)
    mul_one = tl.zeros([OWN, CHUNK], tl.float32)
    mul_two = tl.zeros([OWN, CHUNK], tl.float32)
    add_one = tl.zeros([OWN, CHUNK], tl.float32)
    add_two = tl.zeros([OWN, CHUNK], tl.float32)
    sums = _no_sums(OWN, CHUNK)
    for begin in range(0, n, CHUNK):
        others = begin + tl.arange(0, CHUNK)
        byte, inside = _pairs(distance, own, others, n, SYMMETRIC)
        key = _columns(k, k_row, others, n, D)
        s = _products(query, key, D) * scale
        p = tl.exp2(_scores(s, byte, inside, mul, add, HAS_MUL, HAS_ADD) - row_lse[:, None])
        dp = _products(do, _columns(v, v_row, others, n, D), D)
        change = dp - delta[:, None]
        if DROPOUT:
            kept = _keep(row_keys[:, None], others[None, :], threshold)
            change = tl.where(kept, dp * dropout_scale - delta[:, None], -delta[:, None])
        da = p * change
        if MUL_COUNT == 256:
            mul_table = tally(mul_table, da * s, byte)
        elif MUL_COUNT > 0:
            mul_one += da * s * tl.load(mul_jacobian + byte)
            if MUL_COUNT > 1:
                mul_two += da * s * tl.load(mul_jacobian + heads * 256 + byte)
        if ADD_COUNT == 256:
            add_table = tally(add_table, da, byte)
        elif ADD_COUNT > 0:
            add_one += da * tl.load(add_jacobian + byte)
            if ADD_COUNT > 1:
                add_two += da * tl.load(add_jacobian + heads * 256 + byte)
        ds = da * tl.load(mul + byte) if HAS_MUL else da
        sums = _add(sums, ds, key, D)
    _store(dq, g_row, own, n, sums, scale, D)
    store_shares(partial_mul, program, programs, head, mul_table, mul_one, mul_two, MUL_COUNT)
    store_shares(partial_add, program, programs, head, add_table, add_one, add_two, ADD_COUNT)


@triton.jit
def _key_gradients(
    q, k, v, out, lse, grad, dk, dv, distance, mul, add, seed, graph, head, own, n,
    q_row, k_row, v_row, g_row, heads, scale, dropout_scale, threshold,
    D: tl.constexpr, OWN: tl.constexpr, CHUNK: tl.constexpr,
    HAS_MUL: tl.constexpr, HAS_ADD: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """dk and dv of the keys ``own``; here the others are queries."""
    key = _columns(k, k_row, own, n, D)
    value = _columns(v, v_row, own, n, D)
    dk_sums = _no_sums(OWN, CHUNK)
    dv_sums = _no_sums(OWN, CHUNK)
    for begin in range(0, n, CHUNK):
        others = begin + tl.arange(0, CHUNK)
        byte, inside = _pairs(distance, own, others, n, True)
        query = _columns(q, q_row, others, n, D)
        do = _columns(grad, heads * D, others, n, D)
        delta = _inner(do, _columns(out, heads * D, others, n, D), D)
        row_lse = tl.load(lse + others * heads, others < n, other=float("inf"))
        s = _products(key, query, D) * scale
        p = tl.exp2(_scores(s, byte, inside, mul, add, HAS_MUL, HAS_ADD) - row_lse[None, :])
        dp = _products(value, do, D)
        weight = p
        change = dp - delta[None, :]
        if DROPOUT:
            row_keys = _row_keys(seed, graph, head, others)
            kept = _keep(row_keys[None, :], own[:, None], threshold)
            weight = tl.where(kept, p, 0.0)
            change = tl.where(kept, dp * dropout_scale - delta[None, :], -delta[None, :])
        dv_sums = _add(dv_sums, weight, do, D)
        ds = p * change
        ds = ds * tl.load(mul + byte) if HAS_MUL else ds
        dk_sums = _add(dk_sums, ds, query, D)
    _store(dk, g_row, own, n, dk_sums, scale, D)
    _store(dv, g_row, own, n, dv_sums, dropout_scale, D)


@triton.jit(do_not_specialize=["nodes", "graphs", "tiles"])
def row_backward_kernel(
    q, k, v, out, lse, grad, dq, dk, dv, partial_mul, partial_add,
    node_ptr, pair_ptr, graph_id, distance, mul, add, mul_jacobian, add_jacobian, seed,
    q_row, q_head, k_row, k_head, v_row, v_head, g_row, heads, scale, dropout_scale, threshold,
    nodes, graphs, tiles,
    D: tl.constexpr, OWN: tl.constexpr, CHUNK: tl.constexpr, SYMMETRIC: tl.constexpr,
    HAS_MUL: tl.constexpr, HAS_ADD: tl.constexpr, DROPOUT: tl.constexpr,
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
            _zero_padding(dq, g_row, begin, nodes, D, OWN, 8)
        else:
            _zero_padding(dk, g_row, begin, nodes, D, OWN, 8)
            _zero_padding(dv, g_row, begin, nodes, D, OWN, 8)
        return
    n = (tl.load(node_ptr + graph + 1) - first).to(tl.int32)
    own = program % tiles * OWN + tl.arange(0, OWN)
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
    if program % tiles * OWN >= n:
        n = 0  # nothing to walk over; the shares of the decay's gradients are zero
    if tl.program_id(2) == 0:
        _query_gradients(
            q, k, v, out, lse, grad, dq + first * g_row, partial_mul, partial_add,
            program, graphs * tiles, head, distance, mul, add,
            mul_jacobian + head * 256, add_jacobian + head * 256, seed, number, own, n,
            q_row, k_row, v_row, g_row, heads, scale, dropout_scale, threshold,
            D, OWN, CHUNK, SYMMETRIC, HAS_MUL, HAS_ADD, DROPOUT, MUL_COUNT, ADD_COUNT,
        )  # fmt: skip
    else:
        _key_gradients(
            q, k, v, out, lse, grad, dk + first * g_row, dv + first * g_row, distance, mul, add,
            seed, number, head, own, n,
            q_row, k_row, v_row, g_row, heads, scale, dropout_scale, threshold,
            D, OWN, CHUNK, HAS_MUL, HAS_ADD, DROPOUT,
        )  # fmt: skip
