"""Triton kernels of the fused engine: forward and backward over packed graphs.

A graph that fits in one tile takes one program for each head ("small" kernels). For larger ones a
program owns a tile of queries (or of keys, for dk and dv) and walks over the other side; scores
live in registers only. Every output is written by exactly one program and partial sums are stored
one by one, so there are no atomics and the bits are the same every time.

Notation: s = scale·q·k, a = s·mul[byte] + add[byte], p = exp(a − lse), dp = do·v,
da = p·(dp − δ) with δ = Σ do·o, ds = da·mul[byte]·scale; lse is kept in base 2.

Distance rows have no alignment (n is any number), so the tiled kernels fetch four bytes at a time
from the two words they straddle, and take keys four (or two) apart: byte j of the words belongs to
keys start + 4c + j. Lookups and word loads are written in PTX because a plain load would move the
whole tile into another register layout and back; in Triton's interpreter they are plain loads. The
words of the next step are fetched while this one is worked on.
"""

# mypy: ignore-errors
# Triton drops the branch of a constant ``if`` that is not taken, so both are written out:
# ruff: noqa: RET505, SIM108
from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


# --- random draws, as in gradformer.attention.draws --------------------------------------------


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
    trial = tl.load(seed).to(tl.uint32)
    step = tl.load(seed + 1).to(tl.uint32)
    site = tl.load(seed + 2).to(tl.uint32)
    key = _mix(_mix(_mix(trial) + step) + site)
    key = _mix(key + graph.to(tl.uint32))
    return _mix(key + (head.to(tl.uint32) << 24) + rows.to(tl.uint32))


@triton.jit
def _keep(row_key, column, threshold):
    x = _leading(row_key + column.to(tl.uint32) * 0x9E3779B9)
    return x.to(tl.int32, bitcast=True) >= threshold


# --- distances and tables ------------------------------------------------------------------------


@triton.jit
def _lookup(table, place, INTERPRET: tl.constexpr):
    """Entry of a float32 table at byte offset ``place`` = 4·index, in the layout of ``place``."""
    if INTERPRET:
        return tl.load(table + (place >> 2))
    else:
        base = tl.full(place.shape, 0, tl.int64) + table.to(tl.int64)
        return tl.inline_asm_elementwise(
            "{ .reg .u64 a; cvt.u64.u32 a, $2; add.u64 a, a, $1; ld.global.nc.f32 $0, [a]; }",
            "=f,l,r", [base, place], dtype=tl.float32, is_pure=True, pack=1,
        )  # fmt: skip


@triton.jit
def _place(words, J: tl.constexpr):
    """4 · byte J of each word: where its entry lies in a table."""
    if J == 0:
        return (words << 2) & 1020
    else:
        return (words >> (8 * J - 2)) & 1020


@triton.jit
def _words(distance, offset, last, SLACK: tl.constexpr, INTERPRET: tl.constexpr):
    """The four bytes at ``distance + offset`` as uint32; ``last`` is the offset of the last byte.

    With SLACK eight bytes behind the last one may be read; without it addresses are clamped.
    """
    if INTERPRET:
        word = tl.zeros(offset.shape, tl.uint32)
        for j in tl.static_range(4):
            byte = tl.load(distance + offset + j, offset + j <= last, other=255)
            word = word | (byte.to(tl.uint32) << (8 * j))
        return word
    else:
        base = tl.full(offset.shape, 0, tl.int64) + distance.to(tl.int64)
        end = tl.full(offset.shape, 0, tl.int64) + ((distance.to(tl.int64) + last) & -4)
        if SLACK:
            return tl.inline_asm_elementwise(
                """{
                .reg .u64 a; .reg .u32 lo, hi, shift;
                cvt.u64.u32 a, $2;
                add.u64 a, a, $1;
                cvt.u32.u64 shift, a;
                and.b64 a, a, -4;
                ld.global.nc.u32 lo, [a];
                ld.global.nc.u32 hi, [a+4];
                shl.b32 shift, shift, 3;
                and.b32 shift, shift, 24;
                shf.r.wrap.b32 $0, lo, hi, shift;
                }""",
                "=r,l,r", [base, offset], dtype=tl.uint32, is_pure=True, pack=1,
            )  # fmt: skip
        else:
            return tl.inline_asm_elementwise(
                """{
                .reg .u64 a, b; .reg .u32 lo, hi, shift;
                cvt.u64.u32 a, $2;
                add.u64 a, a, $1;
                cvt.u32.u64 shift, a;
                and.b64 a, a, -4;
                add.u64 b, a, 4;
                min.u64 b, b, $3;
                ld.global.nc.u32 lo, [a];
                ld.global.nc.u32 hi, [b];
                shl.b32 shift, shift, 3;
                and.b32 shift, shift, 24;
                shf.r.wrap.b32 $0, lo, hi, shift;
                }""",
                "=r,l,r,l", [base, offset, end], dtype=tl.uint32, is_pure=True, pack=1,
            )  # fmt: skip


@triton.jit
def _tally(table, x, place, diameter):
    """table[b] += Σ x over the pairs whose place is 4·b, for b = 0..diameter and 255."""
    slot = tl.arange(0, 256)
    for b in range(0, diameter + 2):
        value = tl.where(b > diameter, 255, b)
        table += tl.where(slot == value, tl.sum(tl.where(place == 4 * value, x, 0.0)), 0.0)
    return table


@triton.jit
def _store_shares(partial, program, programs, head, table, first, second, COUNT: tl.constexpr):
    """This program's share of a decay gradient: a table, or the sums of one or two vectors.

    partial is [heads, slots, programs], so that the sum over programs runs along memory.
    """
    if COUNT == 256:
        slot = head * 256 + tl.arange(0, 256)
        tl.store(partial + slot.to(tl.int64) * programs + program, table)
    elif COUNT > 0:
        place = partial + head * 2 * programs + program
        tl.store(place, tl.sum(first))
        tl.store(place + programs, tl.sum(second))


# --- graphs of one tile --------------------------------------------------------------------------


@triton.jit
def small_forward_kernel(
    q, k, v, out, lse, node_ptr, pair_ptr, graph_id, distance, mul, add, seed,
    q_row, q_head, k_row, k_head, v_row, v_head, heads, scale, dropout_scale, threshold,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK: tl.constexpr,
    HAS_MUL: tl.constexpr, HAS_ADD: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
    INTERPRET: tl.constexpr,
):  # fmt: skip
    """out [nodes, heads, d] and lse [nodes, heads]; grid (heads, graphs)."""
    head = tl.program_id(0)
    graph = tl.program_id(1)
    first = tl.load(node_ptr + graph).to(tl.int64)
    n = (tl.load(node_ptr + graph + 1) - first).to(tl.int32)
    if n == 0:
        return
    rows = tl.arange(0, BLOCK)
    channel = tl.arange(0, BLOCK_D)
    there = rows < n
    row_in = there[:, None] & (channel < D)[None, :]
    inside = there[:, None] & there[None, :]
    where = (first + rows)[:, None]
    pair = tl.load(pair_ptr + graph) + rows[:, None] * n + rows[None, :]
    place = tl.load(distance + pair, inside, other=255).to(tl.uint32) * 4
    query = tl.load(q + where * q_row + head * q_head + channel[None, :], row_in, other=0.0)
    key = tl.load(k + where * k_row + head * k_head + channel[None, :], row_in, other=0.0)
    value = tl.load(v + where * v_row + head * v_head + channel[None, :], row_in, other=0.0)
    a = tl.dot(query, tl.trans(key), input_precision=PRECISION) * scale
    if HAS_MUL:
        a = a * _lookup(mul + head * 256, place, INTERPRET)
    if HAS_ADD:
        a = a + _lookup(add + head * 256, place, INTERPRET)
    a = tl.where(inside, a * LOG2E, float("-inf"))
    top = tl.max(a, 1)
    p = tl.exp2(a - tl.where(top == float("-inf"), 0.0, top)[:, None])
    total = tl.sum(p, 1)
    if DROPOUT:
        keys = _row_keys(seed, tl.load(graph_id + graph), head, rows)
        p = tl.where(_keep(keys[:, None], rows[None, :], threshold), p * dropout_scale, 0.0)
    empty = total == 0.0
    acc = tl.dot(p.to(value.dtype), value, input_precision=PRECISION)
    acc = acc / tl.where(empty, 1.0, total)[:, None]
    at = (first + rows) * heads + head
    tl.store(lse + at, tl.where(empty, float("inf"), top + tl.log2(total)), there)
    tl.store(out + at[:, None] * D + channel[None, :], acc.to(out.dtype.element_ty), row_in)


@triton.jit
def small_backward_kernel(
    q, k, v, out, lse, grad, dq, dk, dv, partial_mul, partial_add,
    node_ptr, pair_ptr, graph_id, distance, mul, add, mul_jacobian, add_jacobian, seed,
    q_row, q_head, k_row, k_head, v_row, v_head, heads, scale, dropout_scale, threshold, diameter,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK: tl.constexpr,
    HAS_MUL: tl.constexpr, HAS_ADD: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
    MUL_COUNT: tl.constexpr, ADD_COUNT: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """All gradients; grid (heads, graphs). ``*_COUNT``: parameters to contract, 256 = a table."""
    head = tl.program_id(0)
    graph = tl.program_id(1)
    first = tl.load(node_ptr + graph).to(tl.int64)
    n = (tl.load(node_ptr + graph + 1) - first).to(tl.int32)
    rows = tl.arange(0, BLOCK)
    channel = tl.arange(0, BLOCK_D)
    there = rows < n
    row_in = there[:, None] & (channel < D)[None, :]
    inside = there[:, None] & there[None, :]
    where = (first + rows)[:, None]
    pair = tl.load(pair_ptr + graph) + rows[:, None] * n + rows[None, :]
    place = tl.load(distance + pair, inside, other=255).to(tl.uint32) * 4
    query = tl.load(q + where * q_row + head * q_head + channel[None, :], row_in, other=0.0)
    key = tl.load(k + where * k_row + head * k_head + channel[None, :], row_in, other=0.0)
    value = tl.load(v + where * v_row + head * v_head + channel[None, :], row_in, other=0.0)
    at = (first + rows) * heads + head
    slot = at[:, None] * D + channel[None, :]
    do = tl.load(grad + slot, row_in, other=0.0)
    o = tl.load(out + slot, row_in, other=0.0)
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    row_lse = tl.load(lse + at, there, other=float("inf"))
    s = tl.dot(query, tl.trans(key), input_precision=PRECISION) * scale
    a = s
    if HAS_MUL:
        factor = _lookup(mul + head * 256, place, INTERPRET)
        a = a * factor
    if HAS_ADD:
        a = a + _lookup(add + head * 256, place, INTERPRET)
    a = tl.where(inside, a * LOG2E, float("-inf"))
    p = tl.exp2(a - row_lse[:, None])
    dp = tl.dot(do, tl.trans(value), input_precision=PRECISION)
    weight = p
    if DROPOUT:
        keys = _row_keys(seed, tl.load(graph_id + graph), head, rows)
        kept = _keep(keys[:, None], rows[None, :], threshold)
        weight = tl.where(kept, p * dropout_scale, 0.0)
        dp = tl.where(kept, dp * dropout_scale, 0.0)
    dv_acc = tl.dot(tl.trans(weight.to(do.dtype)), do, input_precision=PRECISION)
    tl.store(dv + slot, dv_acc.to(dv.dtype.element_ty), row_in)
    da = p * (dp - delta[:, None])
    table = tl.zeros([256], tl.float32)
    one = tl.zeros([BLOCK], tl.float32)
    two = tl.zeros([BLOCK], tl.float32)
    if MUL_COUNT == 256:
        table = _tally(table, da * s, place, diameter)
    elif MUL_COUNT > 0:
        jacobian = mul_jacobian + head * 256
        one = tl.sum(da * s * _lookup(jacobian, place, INTERPRET), 1)
        if MUL_COUNT > 1:
            two = tl.sum(da * s * _lookup(jacobian + heads * 256, place, INTERPRET), 1)
    _store_shares(partial_mul, graph, tl.num_programs(1), head, table, one, two, MUL_COUNT)
    table = tl.zeros([256], tl.float32)
    if ADD_COUNT == 256:
        table = _tally(table, da, place, diameter)
    elif ADD_COUNT > 0:
        jacobian = add_jacobian + head * 256
        one = tl.sum(da * _lookup(jacobian, place, INTERPRET), 1)
        if ADD_COUNT > 1:
            two = tl.sum(da * _lookup(jacobian + heads * 256, place, INTERPRET), 1)
    _store_shares(partial_add, graph, tl.num_programs(1), head, table, one, two, ADD_COUNT)
    ds = da
    if HAS_MUL:
        ds = da * factor
    dq_acc = tl.dot(ds.to(key.dtype), key, input_precision=PRECISION) * scale
    tl.store(dq + slot, dq_acc.to(dq.dtype.element_ty), row_in)
    dk_acc = tl.dot(tl.trans(ds.to(query.dtype)), query, input_precision=PRECISION) * scale
    tl.store(dk + slot, dk_acc.to(dk.dtype.element_ty), row_in)


# --- larger graphs, tile by tile ---------------------------------------------------------------
# Here ``mul`` comes multiplied by scale·log₂e and ``add`` by log₂e, so that a is in base 2 at once.


@triton.jit
def _forward_step(
    acc, top, total, words, query, k, v, k_row, v_row, start, n, channel, row_keys,
    mul, add, scale, dropout_scale, threshold,
    D: tl.constexpr, BLOCK_N: tl.constexpr, TAIL: tl.constexpr,
    HAS_MUL: tl.constexpr, HAS_ADD: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
    INTERPRET: tl.constexpr,
):  # fmt: skip
    """BLOCK_N keys from ``start`` on, a quarter at a time; only the TAIL can lie beyond n."""
    quads = start + 4 * tl.arange(0, BLOCK_N // 4)
    wide = (channel < D)[None, :]
    for j in tl.static_range(4):
        cols = quads + j
        col_in = (cols < n)[:, None] & wide if TAIL else wide
        key = tl.load(k + cols[:, None] * k_row + channel[None, :], col_in, other=0.0)
        value = tl.load(v + cols[:, None] * v_row + channel[None, :], col_in, other=0.0)
        a = tl.dot(query, tl.trans(key), input_precision=PRECISION)
        if HAS_MUL:
            a = a * _lookup(mul, _place(words, j), INTERPRET)
        else:
            a = a * (scale * LOG2E)
        if HAS_ADD:
            a = a + _lookup(add, _place(words, j), INTERPRET)
        if TAIL:
            a = tl.where((cols < n)[None, :], a, float("-inf"))
        new_top = tl.maximum(top, tl.max(a, 1))
        # only ``add`` can put a whole row at −inf
        safe = tl.where(new_top == float("-inf"), 0.0, new_top) if HAS_ADD else new_top
        p = tl.exp2(a - safe[:, None])
        shrink = tl.exp2(top - safe)
        total = total * shrink + tl.sum(p, 1)
        if DROPOUT:
            p = tl.where(_keep(row_keys[:, None], cols[None, :], threshold), p * dropout_scale, 0.0)
        acc = tl.dot(p.to(value.dtype), value, acc * shrink[:, None], input_precision=PRECISION)
        top = new_top
    return acc, top, total


@triton.jit
def forward_kernel(
    q, k, v, out, lse, node_ptr, pair_ptr, graph_id, distance, mul, add, seed,
    q_row, q_head, k_row, k_head, v_row, v_head, heads, scale, dropout_scale, threshold,
    pairs, tiles,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    HAS_MUL: tl.constexpr, HAS_ADD: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
    SLACK: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """out and lse; grid (heads, graphs · tiles)."""
    head = tl.program_id(0)
    graph = tl.program_id(1) // tiles
    tile = tl.program_id(1) % tiles
    first = tl.load(node_ptr + graph).to(tl.int64)
    n = (tl.load(node_ptr + graph + 1) - first).to(tl.int32)
    if tile * BLOCK_M >= n:
        return
    pair = tl.load(pair_ptr + graph)
    last = pairs - 1 - pair
    distance += pair
    mul += head * 256
    add += head * 256
    k += first * k_row + head * k_head
    v += first * v_row + head * v_head
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    channel = tl.arange(0, BLOCK_D)
    row_in = (rows < n)[:, None] & (channel < D)[None, :]
    query = tl.load(
        q + (first + rows)[:, None] * q_row + head * q_head + channel[None, :], row_in, other=0.0
    )
    row_keys = rows.to(tl.uint32)
    if DROPOUT:
        row_keys = _row_keys(seed, tl.load(graph_id + graph), head, rows)
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    row_start = tl.minimum(rows, n - 1)[:, None] * n
    whole = n // BLOCK_N * BLOCK_N
    quads = 4 * tl.arange(0, BLOCK_N // 4)[None, :]
    words = _words(distance, row_start + tl.minimum(quads, n - 1), last, SLACK, INTERPRET)
    quads += row_start
    for start in range(0, whole, BLOCK_N):
        ahead = tl.minimum(start + BLOCK_N, whole - BLOCK_N)
        next_words = _words(distance, quads + ahead, last, SLACK, INTERPRET)
        acc, top, total = _forward_step(
            acc, top, total, words, query, k, v, k_row, v_row, start, n, channel, row_keys,
            mul, add, scale, dropout_scale, threshold, D, BLOCK_N, False,
            HAS_MUL, HAS_ADD, DROPOUT, PRECISION, INTERPRET,
        )  # fmt: skip
        words = next_words
    if whole < n:
        reach = tl.minimum(whole + 4 * tl.arange(0, BLOCK_N // 4), n - 1)[None, :]
        words = _words(distance, row_start + reach, last, SLACK, INTERPRET)
        acc, top, total = _forward_step(
            acc, top, total, words, query, k, v, k_row, v_row, whole, n, channel, row_keys,
            mul, add, scale, dropout_scale, threshold, D, BLOCK_N, True,
            HAS_MUL, HAS_ADD, DROPOUT, PRECISION, INTERPRET,
        )  # fmt: skip
    empty = total == 0.0
    acc = acc / tl.where(empty, 1.0, total)[:, None]
    at = (first + rows) * heads + head
    tl.store(lse + at, tl.where(empty, float("inf"), top + tl.log2(total)), rows < n)
    tl.store(out + at[:, None] * D + channel[None, :], acc.to(out.dtype.element_ty), row_in)


@triton.jit
def _query_step(
    acc, mul_one, mul_two, add_one, add_two, mul_table, add_table,
    words, query, do, row_lse, row_delta, k, v, k_row, v_row, start, n, channel, row_keys,
    mul, add, mul_jacobian, add_jacobian, heads, scale, dropout_scale, threshold, diameter,
    D: tl.constexpr, BLOCK_N: tl.constexpr, TAIL: tl.constexpr,
    HAS_MUL: tl.constexpr, HAS_ADD: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
    MUL_COUNT: tl.constexpr, ADD_COUNT: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """What BLOCK_N keys from ``start`` on add to dq and to the decay's gradients."""
    quads = start + 4 * tl.arange(0, BLOCK_N // 4)
    wide = (channel < D)[None, :]
    for j in tl.static_range(4):
        cols = quads + j
        col_in = (cols < n)[:, None] & wide if TAIL else wide
        key = tl.load(k + cols[:, None] * k_row + channel[None, :], col_in, other=0.0)
        value = tl.load(v + cols[:, None] * v_row + channel[None, :], col_in, other=0.0)
        place = _place(words, j)
        raw = tl.dot(query, tl.trans(key), input_precision=PRECISION)
        if HAS_MUL:
            factor = _lookup(mul, place, INTERPRET)
            a = raw * factor
        else:
            a = raw * (scale * LOG2E)
        if HAS_ADD:
            a = a + _lookup(add, place, INTERPRET)
        if TAIL:
            a = tl.where((cols < n)[None, :], a, float("-inf"))
        p = tl.exp2(a - row_lse[:, None])
        dp = tl.dot(do, tl.trans(value), input_precision=PRECISION)
        if DROPOUT:
            kept = _keep(row_keys[:, None], cols[None, :], threshold)
            dp = tl.where(kept, dp * dropout_scale, 0.0)
        da = p * (dp - row_delta[:, None])
        if MUL_COUNT == 256:
            mul_table = _tally(mul_table, da * raw, place, diameter)
        elif MUL_COUNT > 0:
            x = da * raw
            mul_one += tl.sum(x * _lookup(mul_jacobian, place, INTERPRET), 1)
            if MUL_COUNT > 1:
                mul_two += tl.sum(x * _lookup(mul_jacobian + heads * 256, place, INTERPRET), 1)
        if ADD_COUNT == 256:
            add_table = _tally(add_table, da, place, diameter)
        elif ADD_COUNT > 0:
            add_one += tl.sum(da * _lookup(add_jacobian, place, INTERPRET), 1)
            if ADD_COUNT > 1:
                add_two += tl.sum(da * _lookup(add_jacobian + heads * 256, place, INTERPRET), 1)
        ds = da * factor if HAS_MUL else da
        acc = tl.dot(ds.to(key.dtype), key, acc, input_precision=PRECISION)
    return acc, mul_one, mul_two, add_one, add_two, mul_table, add_table


@triton.jit
def query_gradient_kernel(
    q, k, v, out, lse, grad, delta, dq, partial_mul, partial_add,
    node_ptr, pair_ptr, graph_id, distance, mul, add, mul_jacobian, add_jacobian, seed,
    q_row, q_head, k_row, k_head, v_row, v_head, heads, scale, dropout_scale, threshold,
    pairs, tiles, diameter,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    HAS_MUL: tl.constexpr, HAS_ADD: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
    MUL_COUNT: tl.constexpr, ADD_COUNT: tl.constexpr,
    SLACK: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """dq, δ, and this tile's share of the decay's gradients; grid (heads, graphs · tiles)."""
    head = tl.program_id(0)
    program = tl.program_id(1)
    graph = program // tiles
    tile = program % tiles
    first = tl.load(node_ptr + graph).to(tl.int64)
    n = (tl.load(node_ptr + graph + 1) - first).to(tl.int32)
    mul_table = tl.zeros([256], tl.float32)
    add_table = tl.zeros([256], tl.float32)
    mul_one = tl.zeros([BLOCK_M], tl.float32)
    mul_two = tl.zeros([BLOCK_M], tl.float32)
    add_one = tl.zeros([BLOCK_M], tl.float32)
    add_two = tl.zeros([BLOCK_M], tl.float32)
    if tile * BLOCK_M < n:
        pair = tl.load(pair_ptr + graph)
        last = pairs - 1 - pair
        distance += pair
        mul += head * 256
        add += head * 256
        mul_jacobian += head * 256
        add_jacobian += head * 256
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
        tl.store(delta + at, row_delta, rows < n)
        row_lse = tl.load(lse + at, rows < n, other=float("inf"))
        row_keys = rows.to(tl.uint32)
        if DROPOUT:
            row_keys = _row_keys(seed, tl.load(graph_id + graph), head, rows)
        acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
        row_start = tl.minimum(rows, n - 1)[:, None] * n
        whole = n // BLOCK_N * BLOCK_N
        quads = 4 * tl.arange(0, BLOCK_N // 4)[None, :]
        words = _words(distance, row_start + tl.minimum(quads, n - 1), last, SLACK, INTERPRET)
        quads += row_start
        for start in range(0, whole, BLOCK_N):
            ahead = tl.minimum(start + BLOCK_N, whole - BLOCK_N)
            next_words = _words(distance, quads + ahead, last, SLACK, INTERPRET)
            acc, mul_one, mul_two, add_one, add_two, mul_table, add_table = _query_step(
                acc, mul_one, mul_two, add_one, add_two, mul_table, add_table,
                words, query, do, row_lse, row_delta, k, v, k_row, v_row, start, n, channel,
                row_keys, mul, add, mul_jacobian, add_jacobian, heads, scale,
                dropout_scale, threshold, diameter, D, BLOCK_N, False,
                HAS_MUL, HAS_ADD, DROPOUT, PRECISION, MUL_COUNT, ADD_COUNT, INTERPRET,
            )  # fmt: skip
            words = next_words
        if whole < n:
            reach = tl.minimum(whole + 4 * tl.arange(0, BLOCK_N // 4), n - 1)[None, :]
            words = _words(distance, row_start + reach, last, SLACK, INTERPRET)
            acc, mul_one, mul_two, add_one, add_two, mul_table, add_table = _query_step(
                acc, mul_one, mul_two, add_one, add_two, mul_table, add_table,
                words, query, do, row_lse, row_delta, k, v, k_row, v_row, whole, n, channel,
                row_keys, mul, add, mul_jacobian, add_jacobian, heads, scale,
                dropout_scale, threshold, diameter, D, BLOCK_N, True,
                HAS_MUL, HAS_ADD, DROPOUT, PRECISION, MUL_COUNT, ADD_COUNT, INTERPRET,
            )  # fmt: skip
        # the scale is in ``factor`` already, with log₂e
        acc = acc * (1.0 / LOG2E if HAS_MUL else scale)
        tl.store(dq + slot, acc.to(dq.dtype.element_ty), row_in)
    _store_shares(
        partial_mul, program, tl.num_programs(1), head,
        mul_table * scale, mul_one * scale, mul_two * scale, MUL_COUNT,
    )  # fmt: skip
    _store_shares(
        partial_add, program, tl.num_programs(1), head, add_table, add_one, add_two, ADD_COUNT
    )


@triton.jit
def _key_step(
    dk, dv, key, value, cols, words, query, do, row_lse, row_delta, row_keys, mul, add,
    scale, dropout_scale, threshold, J: tl.constexpr,
    HAS_MUL: tl.constexpr, HAS_ADD: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
    INTERPRET: tl.constexpr,
):  # fmt: skip
    """dk and dv of every other key, from one tile of queries; tiles are [keys, queries]."""
    a = tl.dot(key, tl.trans(query), input_precision=PRECISION)
    if HAS_MUL:
        factor = _lookup(mul, _place(words, J), INTERPRET)
        a = a * factor
    else:
        a = a * (scale * LOG2E)
    if HAS_ADD:
        a = a + _lookup(add, _place(words, J), INTERPRET)
    p = tl.exp2(a - row_lse[None, :])
    dp = tl.dot(value, tl.trans(do), input_precision=PRECISION)
    weight = p
    if DROPOUT:
        kept = _keep(row_keys[None, :], cols[:, None], threshold)
        weight = tl.where(kept, p * dropout_scale, 0.0)
        dp = tl.where(kept, dp * dropout_scale, 0.0)
    dv = tl.dot(weight.to(do.dtype), do, dv, input_precision=PRECISION)
    ds = p * (dp - row_delta[None, :])
    if HAS_MUL:
        ds = ds * factor
    dk = tl.dot(ds.to(query.dtype), query, dk, input_precision=PRECISION)
    return dk, dv


@triton.jit
def key_gradient_kernel(
    q, k, v, lse, grad, delta, dk, dv,
    node_ptr, pair_ptr, graph_id, distance, mul, add, seed,
    q_row, q_head, k_row, k_head, v_row, v_head, heads, scale, dropout_scale, threshold,
    pairs, tiles,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    HAS_MUL: tl.constexpr, HAS_ADD: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
    SLACK: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """dk and dv; a program owns BLOCK_N keys, even and odd ones apart, and walks over the queries.

    Two of the four bytes of a word are used: with all four the sums would not fit in registers.
    """
    head = tl.program_id(0)
    graph = tl.program_id(1) // tiles
    tile = tl.program_id(1) % tiles
    first = tl.load(node_ptr + graph).to(tl.int64)
    n = (tl.load(node_ptr + graph + 1) - first).to(tl.int32)
    if tile * BLOCK_N >= n:
        return
    HALF: tl.constexpr = BLOCK_N // 2
    pair = tl.load(pair_ptr + graph)
    last = pairs - 1 - pair
    distance += pair
    mul += head * 256
    add += head * 256
    q += first * q_row + head * q_head
    even = tile * BLOCK_N + 2 * tl.arange(0, HALF)
    reach = tl.minimum(even, n - 1)[:, None]
    channel = tl.arange(0, BLOCK_D)
    wide = (channel < D)[None, :]
    even_in = (even < n)[:, None] & wide
    odd_in = (even + 1 < n)[:, None] & wide
    k_at = k + (first + even)[:, None] * k_row + head * k_head + channel[None, :]
    v_at = v + (first + even)[:, None] * v_row + head * v_head + channel[None, :]
    even_key = tl.load(k_at, even_in, other=0.0)
    odd_key = tl.load(k_at + k_row, odd_in, other=0.0)
    even_value = tl.load(v_at, even_in, other=0.0)
    odd_value = tl.load(v_at + v_row, odd_in, other=0.0)
    even_dk = tl.zeros([HALF, BLOCK_D], tl.float32)
    odd_dk = tl.zeros([HALF, BLOCK_D], tl.float32)
    even_dv = tl.zeros([HALF, BLOCK_D], tl.float32)
    odd_dv = tl.zeros([HALF, BLOCK_D], tl.float32)
    graph_number = tl.load(graph_id + graph)
    ahead = tl.minimum(tl.arange(0, BLOCK_M), n - 1)[None, :]
    words = _words(distance, ahead * n + reach, last, SLACK, INTERPRET)
    for start in range(0, n, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        row_in = (rows < n)[:, None] & wide
        ahead = tl.minimum(rows + BLOCK_M, n - 1)[None, :]
        next_words = _words(distance, ahead * n + reach, last, SLACK, INTERPRET)
        query = tl.load(q + rows[:, None] * q_row + channel[None, :], row_in, other=0.0)
        at = (first + rows) * heads + head
        do = tl.load(grad + at[:, None] * D + channel[None, :], row_in, other=0.0)
        row_lse = tl.load(lse + at, rows < n, other=float("inf"))
        row_delta = tl.load(delta + at, rows < n, other=0.0)
        row_keys = rows.to(tl.uint32)
        if DROPOUT:
            row_keys = _row_keys(seed, graph_number, head, rows)
        even_dk, even_dv = _key_step(
            even_dk, even_dv, even_key, even_value, even, words, query, do, row_lse, row_delta,
            row_keys, mul, add, scale, dropout_scale, threshold, 0,
            HAS_MUL, HAS_ADD, DROPOUT, PRECISION, INTERPRET,
        )  # fmt: skip
        odd_dk, odd_dv = _key_step(
            odd_dk, odd_dv, odd_key, odd_value, even + 1, words, query, do, row_lse, row_delta,
            row_keys, mul, add, scale, dropout_scale, threshold, 1,
            HAS_MUL, HAS_ADD, DROPOUT, PRECISION, INTERPRET,
        )  # fmt: skip
        words = next_words
    at = ((first + even) * heads + head)[:, None] * D + channel[None, :]
    step = heads * D
    kind = dk.dtype.element_ty
    scale = 1.0 / LOG2E if HAS_MUL else scale  # with HAS_MUL the scale is in ``mul`` already
    tl.store(dk + at, (even_dk * scale).to(kind), even_in)
    tl.store(dk + at + step, (odd_dk * scale).to(kind), odd_in)
    tl.store(dv + at, even_dv.to(kind), even_in)
    tl.store(dv + at + step, odd_dv.to(kind), odd_in)
