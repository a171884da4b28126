"""Triton kernels of the fused engine: forward and backward over packed graphs.

One program owns a tile of query rows (or key rows, for dk and dv) of one graph and one head, and
walks over the other side tile by tile; scores live in registers only. Every output element is
written by exactly one program and partial sums are stored one by one, so there are no atomics and
the bits are the same every time. Notation: s = scale·q·k, a = s·mul[byte] + add[byte],
p = exp(a − lse), dp = do·v, da = p·(dp − δ) with δ = Σ do·o, ds = da·mul[byte]·scale.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _leading(x):
    x = (x ^ (x >> 16)) * 0x7FEB352D
    return (x ^ (x >> 15)) * 0x846CA68B


@triton.jit
def _mix(x):
    x = _leading(x)
    return x ^ (x >> 16)


@triton.jit
def _row_keys(seed, graph, head, rows):
    """The keys of :func:`gradformer.attention.draws.row_keys`, uint32."""
    trial = tl.load(seed).to(tl.uint32)
    step = tl.load(seed + 1).to(tl.uint32)
    site = tl.load(seed + 2).to(tl.uint32)
    key = _mix(_mix(_mix(trial) + step) + site)
    key = _mix(key + graph.to(tl.uint32))
    return _mix(key + (head.to(tl.uint32) << 24) + rows.to(tl.uint32))


@triton.jit
def _keep(row_key, column, threshold):
    """True where :func:`gradformer.attention.draws.keep` is."""
    x = _leading(row_key + column.to(tl.uint32) * 0x9E3779B9)
    return x.to(tl.int32, bitcast=True) >= threshold


@triton.jit
def _logits(s, byte, inside, mul, add, HAS_MUL: tl.constexpr, HAS_ADD: tl.constexpr):
    """a from s and the bytes; −inf outside the graph."""
    a = s
    if HAS_MUL:
        a = a * tl.load(mul + byte)
    if HAS_ADD:
        a = a + tl.load(add + byte)
    return tl.where(inside, a, float("-inf"))


@triton.jit
def _contract(total, x, jacobian, byte, inside, heads, COUNT: tl.constexpr):
    """total[p] += Σ x · jacobian[p, h, byte] for the ``COUNT`` parameters (slots of ``total``)."""
    slot = tl.arange(0, 2)
    for p in tl.static_range(COUNT):
        factor = tl.load(jacobian + p * heads * 256 + byte, mask=inside, other=0.0)
        total += tl.where(slot == p, tl.sum(x * factor), 0.0)
    return total


@triton.jit
def _tally(table, x, byte, diameter):
    """table[b] += Σ x over the pairs of byte b, for b = 0..diameter and 255."""
    slot = tl.arange(0, 256)
    for b in range(0, diameter + 2):
        value = tl.where(b > diameter, 255, b)
        table += tl.where(slot == value, tl.sum(tl.where(byte == value, x, 0.0)), 0.0)
    return table


@triton.jit
def forward_kernel(
    q, k, v, out, lse, node_ptr, pair_ptr, graph_id, distance, mul, add, seed,
    q_row, q_head, k_row, k_head, v_row, v_head, heads, scale, dropout_scale, threshold, tiles,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    HAS_MUL: tl.constexpr, HAS_ADD: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """out [nodes, heads, d] and lse [nodes, heads]; grid (heads, graphs · tiles)."""
    head = tl.program_id(0)
    graph = tl.program_id(1) // tiles
    tile = tl.program_id(1) % tiles
    first = tl.load(node_ptr + graph).to(tl.int64)
    n = (tl.load(node_ptr + graph + 1) - first).to(tl.int32)
    if tile * BLOCK_M >= n:
        return
    distance += tl.load(pair_ptr + graph)
    mul += head * 256
    add += head * 256
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    channel = tl.arange(0, BLOCK_D)
    row_in = (rows < n)[:, None] & (channel < D)[None, :]
    query = tl.load(
        q + (first + rows)[:, None] * q_row + head * q_head + channel[None, :], row_in, other=0.0
    )
    if DROPOUT:
        keys = _row_keys(seed, tl.load(graph_id + graph), head, rows)
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    byte_row = distance + rows[:, None].to(tl.int64) * n
    for start in range(0, n, BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)
        col_in = (cols < n)[:, None] & (channel < D)[None, :]
        inside = (rows < n)[:, None] & (cols < n)[None, :]
        byte = tl.load(byte_row + cols[None, :], inside, other=255)
        at = (first + cols)[:, None]
        key = tl.load(k + at * k_row + head * k_head + channel[None, :], col_in, other=0.0)
        s = tl.dot(query, tl.trans(key), input_precision=PRECISION) * scale
        a = _logits(s, byte, inside, mul, add, HAS_MUL, HAS_ADD) * LOG2E
        new_top = tl.maximum(top, tl.max(a, 1))
        safe = tl.where(new_top == float("-inf"), 0.0, new_top)
        p = tl.exp2(a - safe[:, None])
        shrink = tl.exp2(top - safe)
        total = total * shrink + tl.sum(p, 1)
        if DROPOUT:
            p = tl.where(_keep(keys[:, None], cols[None, :], threshold), p * dropout_scale, 0.0)
        value = tl.load(v + at * v_row + head * v_head + channel[None, :], col_in, other=0.0)
        acc = acc * shrink[:, None]
        acc = tl.dot(p.to(value.dtype), value, acc, input_precision=PRECISION)
        top = new_top
    empty = total == 0.0
    acc = acc / tl.where(empty, 1.0, total)[:, None]
    at = (first + rows) * heads + head
    tl.store(lse + at, tl.where(empty, float("inf"), top + tl.log2(total)), rows < n)
    tl.store(out + at[:, None] * D + channel[None, :], acc.to(out.dtype.element_ty), row_in)


@triton.jit
def query_gradient_kernel(
    q, k, v, out, lse, grad, delta, dq, partial_mul, partial_add,
    node_ptr, pair_ptr, graph_id, distance, mul, add, mul_jacobian, add_jacobian, seed,
    q_row, q_head, k_row, k_head, v_row, v_head, heads, scale, dropout_scale, threshold, tiles,
    diameter,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    HAS_MUL: tl.constexpr, HAS_ADD: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
    MUL_COUNT: tl.constexpr, ADD_COUNT: tl.constexpr,
):  # fmt: skip
    """dq, δ, and this tile's share of the decay's gradients; grid (heads, graphs · tiles).

    ``*_COUNT`` is the number of parameters to contract with, 0 for none, 256 for the whole table.
    """
    head = tl.program_id(0)
    program = tl.program_id(1)
    graph = program // tiles
    tile = program % tiles
    first = tl.load(node_ptr + graph).to(tl.int64)
    n = (tl.load(node_ptr + graph + 1) - first).to(tl.int32)
    MUL_SLOTS: tl.constexpr = 256 if MUL_COUNT == 256 else 2
    ADD_SLOTS: tl.constexpr = 256 if ADD_COUNT == 256 else 2
    mul_total = tl.zeros([MUL_SLOTS], tl.float32)
    add_total = tl.zeros([ADD_SLOTS], tl.float32)
    if tile * BLOCK_M < n:
        distance += tl.load(pair_ptr + graph)
        mul += head * 256
        add += head * 256
        mul_jacobian += head * 256
        add_jacobian += head * 256
        rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
        channel = tl.arange(0, BLOCK_D)
        row_in = (rows < n)[:, None] & (channel < D)[None, :]
        query = tl.load(
            q + (first + rows)[:, None] * q_row + head * q_head + channel[None, :], row_in, other=0.0
        )
        at = (first + rows) * heads + head
        do = tl.load(grad + at[:, None] * D + channel[None, :], row_in, other=0.0)
        o = tl.load(out + at[:, None] * D + channel[None, :], row_in, other=0.0)
        row_delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
        tl.store(delta + at, row_delta, rows < n)
        row_lse = tl.load(lse + at, rows < n, other=float("inf"))
        if DROPOUT:
            keys = _row_keys(seed, tl.load(graph_id + graph), head, rows)
        acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
        byte_row = distance + rows[:, None].to(tl.int64) * n
        for start in range(0, n, BLOCK_N):
            cols = start + tl.arange(0, BLOCK_N)
            col_in = (cols < n)[:, None] & (channel < D)[None, :]
            inside = (rows < n)[:, None] & (cols < n)[None, :]
            byte = tl.load(byte_row + cols[None, :], inside, other=255)
            there = (first + cols)[:, None]
            key = tl.load(k + there * k_row + head * k_head + channel[None, :], col_in, other=0.0)
            value = tl.load(v + there * v_row + head * v_head + channel[None, :], col_in, other=0.0)
            s = tl.dot(query, tl.trans(key), input_precision=PRECISION) * scale
            a = _logits(s, byte, inside, mul, add, HAS_MUL, HAS_ADD)
            p = tl.exp2(a * LOG2E - row_lse[:, None])
            dp = tl.dot(do, tl.trans(value), input_precision=PRECISION)
            if DROPOUT:
                kept = _keep(keys[:, None], cols[None, :], threshold)
                dp = tl.where(kept, dp * dropout_scale, 0.0)
            da = p * (dp - row_delta[:, None])
            if MUL_COUNT == 256:
                mul_total = _tally(mul_total, da * s, byte, diameter)
            elif MUL_COUNT > 0:
                mul_total = _contract(mul_total, da * s, mul_jacobian, byte, inside, heads, MUL_COUNT)
            if ADD_COUNT == 256:
                add_total = _tally(add_total, da, byte, diameter)
            elif ADD_COUNT > 0:
                add_total = _contract(add_total, da, add_jacobian, byte, inside, heads, ADD_COUNT)
            ds = da
            if HAS_MUL:
                ds = da * tl.load(mul + byte)
            acc = tl.dot(ds.to(key.dtype), key, acc, input_precision=PRECISION)
        tl.store(dq + at[:, None] * D + channel[None, :], (acc * scale).to(dq.dtype.element_ty), row_in)
    if MUL_COUNT > 0:
        slot = tl.arange(0, MUL_SLOTS)
        tl.store(partial_mul + (program * heads + head) * MUL_SLOTS + slot, mul_total)
    if ADD_COUNT > 0:
        slot = tl.arange(0, ADD_SLOTS)
        tl.store(partial_add + (program * heads + head) * ADD_SLOTS + slot, add_total)


@triton.jit
def key_gradient_kernel(
    q, k, v, lse, grad, delta, dk, dv,
    node_ptr, pair_ptr, graph_id, distance, mul, add, seed,
    q_row, q_head, k_row, k_head, v_row, v_head, heads, scale, dropout_scale, threshold, tiles,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    HAS_MUL: tl.constexpr, HAS_ADD: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dk and dv; a program owns BLOCK_N keys and walks over the queries. Tiles are [keys, queries]."""
    head = tl.program_id(0)
    graph = tl.program_id(1) // tiles
    tile = tl.program_id(1) % tiles
    first = tl.load(node_ptr + graph).to(tl.int64)
    n = (tl.load(node_ptr + graph + 1) - first).to(tl.int32)
    if tile * BLOCK_N >= n:
        return
    distance += tl.load(pair_ptr + graph)
    mul += head * 256
    add += head * 256
    cols = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    channel = tl.arange(0, BLOCK_D)
    col_in = (cols < n)[:, None] & (channel < D)[None, :]
    there = (first + cols)[:, None]
    key = tl.load(k + there * k_row + head * k_head + channel[None, :], col_in, other=0.0)
    value = tl.load(v + there * v_row + head * v_head + channel[None, :], col_in, other=0.0)
    if DROPOUT:
        graph_number = tl.load(graph_id + graph)
    dk_acc = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    dv_acc = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    for start in range(0, n, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        row_in = (rows < n)[:, None] & (channel < D)[None, :]
        inside = (cols < n)[:, None] & (rows < n)[None, :]
        byte = tl.load(distance + rows[None, :].to(tl.int64) * n + cols[:, None], inside, other=255)
        query = tl.load(
            q + (first + rows)[:, None] * q_row + head * q_head + channel[None, :], row_in, other=0.0
        )
        at = (first + rows) * heads + head
        do = tl.load(grad + at[:, None] * D + channel[None, :], row_in, other=0.0)
        row_lse = tl.load(lse + at, rows < n, other=float("inf"))
        row_delta = tl.load(delta + at, rows < n, other=0.0)
        s = tl.dot(key, tl.trans(query), input_precision=PRECISION) * scale
        a = _logits(s, byte, inside, mul, add, HAS_MUL, HAS_ADD)
        p = tl.exp2(a * LOG2E - row_lse[None, :])
        dp = tl.dot(value, tl.trans(do), input_precision=PRECISION)
        weight = p
        if DROPOUT:
            keys = _row_keys(seed, graph_number, head, rows)
            kept = _keep(keys[None, :], cols[:, None], threshold)
            weight = tl.where(kept, p * dropout_scale, 0.0)
            dp = tl.where(kept, dp * dropout_scale, 0.0)
        dv_acc = tl.dot(weight.to(do.dtype), do, dv_acc, input_precision=PRECISION)
        ds = p * (dp - row_delta[None, :])
        if HAS_MUL:
            ds = ds * tl.load(mul + byte)
        dk_acc = tl.dot(ds.to(query.dtype), query, dk_acc, input_precision=PRECISION)
    at = ((first + cols) * heads + head)[:, None] * D + channel[None, :]
    tl.store(dk + at, (dk_acc * scale).to(dk.dtype.element_ty), col_in)
    tl.store(dv + at, dv_acc.to(dv.dtype.element_ty), col_in)


@triton.jit
def small_backward_kernel(
    q, k, v, out, lse, grad, dq, dk, dv, partial_mul, partial_add,
    node_ptr, pair_ptr, graph_id, distance, mul, add, mul_jacobian, add_jacobian, seed,
    q_row, q_head, k_row, k_head, v_row, v_head, heads, scale, dropout_scale, threshold, diameter,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK: tl.constexpr,
    HAS_MUL: tl.constexpr, HAS_ADD: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
    MUL_COUNT: tl.constexpr, ADD_COUNT: tl.constexpr,
):  # fmt: skip
    """All gradients of a graph that fits in one tile; grid (heads, graphs)."""
    head = tl.program_id(0)
    graph = tl.program_id(1)
    first = tl.load(node_ptr + graph).to(tl.int64)
    n = (tl.load(node_ptr + graph + 1) - first).to(tl.int32)
    mul += head * 256
    add += head * 256
    rows = tl.arange(0, BLOCK)
    channel = tl.arange(0, BLOCK_D)
    row_in = (rows < n)[:, None] & (channel < D)[None, :]
    inside = (rows < n)[:, None] & (rows < n)[None, :]
    where = (first + rows)[:, None]
    byte = tl.load(
        distance + tl.load(pair_ptr + graph) + rows[:, None] * n + rows[None, :], inside, other=255
    )
    query = tl.load(q + where * q_row + head * q_head + channel[None, :], row_in, other=0.0)
    key = tl.load(k + where * k_row + head * k_head + channel[None, :], row_in, other=0.0)
    value = tl.load(v + where * v_row + head * v_head + channel[None, :], row_in, other=0.0)
    at = (first + rows) * heads + head
    place = at[:, None] * D + channel[None, :]
    do = tl.load(grad + place, row_in, other=0.0)
    o = tl.load(out + place, row_in, other=0.0)
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    row_lse = tl.load(lse + at, rows < n, other=float("inf"))
    s = tl.dot(query, tl.trans(key), input_precision=PRECISION) * scale
    a = _logits(s, byte, inside, mul, add, HAS_MUL, HAS_ADD)
    p = tl.exp2(a * LOG2E - row_lse[:, None])
    dp = tl.dot(do, tl.trans(value), input_precision=PRECISION)
    weight = p
    if DROPOUT:
        keys = _row_keys(seed, tl.load(graph_id + graph), head, rows)
        kept = _keep(keys[:, None], rows[None, :], threshold)
        weight = tl.where(kept, p * dropout_scale, 0.0)
        dp = tl.where(kept, dp * dropout_scale, 0.0)
    dv_acc = tl.dot(tl.trans(weight.to(do.dtype)), do, input_precision=PRECISION)
    tl.store(dv + place, dv_acc.to(dv.dtype.element_ty), row_in)
    da = p * (dp - delta[:, None])
    if MUL_COUNT > 0:
        MUL_SLOTS: tl.constexpr = 256 if MUL_COUNT == 256 else 2
        mul_total = tl.zeros([MUL_SLOTS], tl.float32)
        if MUL_COUNT == 256:
            mul_total = _tally(mul_total, da * s, byte, diameter)
        else:
            jacobian = mul_jacobian + head * 256
            mul_total = _contract(mul_total, da * s, jacobian, byte, inside, heads, MUL_COUNT)
        slot = tl.arange(0, MUL_SLOTS)
        tl.store(partial_mul + (graph * heads + head) * MUL_SLOTS + slot, mul_total)
    if ADD_COUNT > 0:
        ADD_SLOTS: tl.constexpr = 256 if ADD_COUNT == 256 else 2
        add_total = tl.zeros([ADD_SLOTS], tl.float32)
        if ADD_COUNT == 256:
            add_total = _tally(add_total, da, byte, diameter)
        else:
            jacobian = add_jacobian + head * 256
            add_total = _contract(add_total, da, jacobian, byte, inside, heads, ADD_COUNT)
        slot = tl.arange(0, ADD_SLOTS)
        tl.store(partial_add + (graph * heads + head) * ADD_SLOTS + slot, add_total)
    ds = da
    if HAS_MUL:
        ds = da * tl.load(mul + byte)
    dq_acc = tl.dot(ds.to(key.dtype), key, input_precision=PRECISION) * scale
    tl.store(dq + place, dq_acc.to(dq.dtype.element_ty), row_in)
    dk_acc = tl.dot(tl.trans(ds.to(query.dtype)), query, input_precision=PRECISION) * scale
    tl.store(dk + place, dk_acc.to(dk.dtype.element_ty), row_in)
