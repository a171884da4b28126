"""Kernels for graphs of one tile: one program for a graph and head, forward and all of backward.

Notation: s = scale·q·k, a = s·mul[byte] + add[byte] + bias, p = exp(a − lse), dp = do·v,
da = p·(dp − δ) with δ = Σ do·o, ds = da·mul[byte]·scale; lse is kept in base 2. Rows of padding
belong to one more program of each head, which sets them to zero.
"""

# mypy: ignore-errors
# ruff: noqa: RET505
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.attention.kernels.draws import is_kept, keys_of_rows
from gradformer.attention.kernels.pairs import (
    LOG2E,
    no_shares,
    store_shares,
    tally,
    zero_padding,
)


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


@triton.jit(do_not_specialize=["nodes", "graphs"])
def small_forward_kernel(
    q, k, v, out, lse, node_ptr, pair_ptr, graph_id, distance, mul, add, seed,
    q_row, q_head, k_row, k_head, v_row, v_head, heads, scale, dropout_scale, threshold,
    nodes, graphs, bias, packed_ptr,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
    INTERPRET: tl.constexpr,
):  # fmt: skip
    """out [nodes, heads, d] and lse [nodes, heads]; grid (heads · (graphs [+ 1 if padded]),)."""
    head = tl.program_id(0) % heads
    graph = tl.program_id(0) // heads
    first = tl.load(node_ptr + graph).to(tl.int64)
    if graph == graphs:
        zero_padding(out + head * D, heads * D, first.to(tl.int32), nodes, D, BLOCK, BLOCK_D)
        return
    n = (tl.load(node_ptr + graph + 1) - first).to(tl.int32)
    if n == 0:
        return
    rows = tl.arange(0, BLOCK)
    channel = tl.arange(0, BLOCK_D)
    there = rows < n
    row_in = there[:, None] & (channel < D)[None, :]
    inside = there[:, None] & there[None, :]
    where = (first + rows)[:, None]
    pair = rows[:, None] * n + rows[None, :]
    byte = tl.load(distance + tl.load(pair_ptr + graph) + pair, inside, other=255)
    place = byte.to(tl.uint32) * 4
    query = tl.load(q + where * q_row + head * q_head + channel[None, :], row_in, other=0.0)
    key = tl.load(k + where * k_row + head * k_head + channel[None, :], row_in, other=0.0)
    value = tl.load(v + where * v_row + head * v_head + channel[None, :], row_in, other=0.0)
    a = tl.dot(query, tl.trans(key), input_precision=PRECISION) * scale
    if mul is not None:
        a = a * _lookup(mul + head * 256, place, INTERPRET)
    if add is not None:
        a = a + _lookup(add + head * 256, place, INTERPRET)
    if bias is not None:
        at_pair = (tl.load(packed_ptr + graph) + pair) * heads + head
        a = a + tl.load(bias + at_pair, inside, other=0.0)
    a = tl.where(inside, a * LOG2E, float("-inf"))
    top = tl.max(a, 1)
    p = tl.exp2(a - tl.where(top == float("-inf"), 0.0, top)[:, None])
    total = tl.sum(p, 1)
    if seed is not None:
        keys = keys_of_rows(seed, tl.load(graph_id + graph), head, rows)
        p = tl.where(is_kept(keys[:, None], rows[None, :], threshold), p * dropout_scale, 0.0)
    empty = total == 0.0
    acc = tl.dot(p.to(value.dtype), value, input_precision=PRECISION)
    acc = acc / tl.where(empty, 1.0, total)[:, None]
    at = (first + rows) * heads + head
    tl.store(lse + at, tl.where(empty, float("inf"), top + tl.log2(total)), there)
    tl.store(out + at[:, None] * D + channel[None, :], acc.to(out.dtype.element_ty), row_in)


@triton.jit
def _shares(
    x, jacobian, head, heads, place,
    COUNT: tl.constexpr, BLOCK: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """Sums of x of each pair, the gradient of its entry of the table."""
    table, one, two = no_shares(BLOCK)
    if COUNT == 256:
        table = tally(table, x, place >> 2)
    elif COUNT > 0:
        jacobian += head * 256
        one = tl.sum(x * _lookup(jacobian, place, INTERPRET), 1)
        if COUNT > 1:
            two = tl.sum(x * _lookup(jacobian + heads * 256, place, INTERPRET), 1)
    return table, one, two


@triton.jit(do_not_specialize=["nodes", "graphs"])
def small_backward_kernel(
    q, k, v, out, lse, grad, dq, dk, dv, partial_mul, partial_add,
    node_ptr, pair_ptr, graph_id, distance, mul, add, mul_jacobian, add_jacobian, seed,
    q_row, q_head, k_row, k_head, v_row, v_head, g_row, heads, scale, dropout_scale, threshold,
    nodes, graphs, bias, packed_ptr, dbias,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
    MUL_COUNT: tl.constexpr, ADD_COUNT: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """All gradients; ``*_COUNT``: parameters to contract, 256 = a table. The grid is as above."""
    head = tl.program_id(0) % heads
    graph = tl.program_id(0) // heads
    first = tl.load(node_ptr + graph).to(tl.int64)
    dq += head * D
    dk += head * D
    dv += head * D
    if graph == graphs:
        start = first.to(tl.int32)
        zero_padding(dq, g_row, start, nodes, D, BLOCK, BLOCK_D)
        zero_padding(dk, g_row, start, nodes, D, BLOCK, BLOCK_D)
        zero_padding(dv, g_row, start, nodes, D, BLOCK, BLOCK_D)
        return
    n = (tl.load(node_ptr + graph + 1) - first).to(tl.int32)
    rows = tl.arange(0, BLOCK)
    channel = tl.arange(0, BLOCK_D)
    there = rows < n
    row_in = there[:, None] & (channel < D)[None, :]
    inside = there[:, None] & there[None, :]
    where = (first + rows)[:, None]
    pair = rows[:, None] * n + rows[None, :]
    byte = tl.load(distance + tl.load(pair_ptr + graph) + pair, inside, other=255)
    place = byte.to(tl.uint32) * 4
    query = tl.load(q + where * q_row + head * q_head + channel[None, :], row_in, other=0.0)
    key = tl.load(k + where * k_row + head * k_head + channel[None, :], row_in, other=0.0)
    value = tl.load(v + where * v_row + head * v_head + channel[None, :], row_in, other=0.0)
    at = (first + rows) * heads + head
    slot = at[:, None] * D + channel[None, :]
    into = where * g_row + channel[None, :]
    do = tl.load(grad + slot, row_in, other=0.0)
    o = tl.load(out + slot, row_in, other=0.0)
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    row_lse = tl.load(lse + at, there, other=float("inf"))
    s = tl.dot(query, tl.trans(key), input_precision=PRECISION) * scale
    a = s
    if mul is not None:
        factor = _lookup(mul + head * 256, place, INTERPRET)
        a = a * factor
    if add is not None:
        a = a + _lookup(add + head * 256, place, INTERPRET)
    if bias is not None:
        at_pair = (tl.load(packed_ptr + graph) + pair) * heads + head
        a = a + tl.load(bias + at_pair, inside, other=0.0)
    a = tl.where(inside, a * LOG2E, float("-inf"))
    p = tl.exp2(a - row_lse[:, None])
    dp = tl.dot(do, tl.trans(value), input_precision=PRECISION)
    weight = p
    if seed is not None:
        keys = keys_of_rows(seed, tl.load(graph_id + graph), head, rows)
        kept = is_kept(keys[:, None], rows[None, :], threshold)
        weight = tl.where(kept, p * dropout_scale, 0.0)
        dp = tl.where(kept, dp * dropout_scale, 0.0)
    dv_acc = tl.dot(tl.trans(weight.to(do.dtype)), do, input_precision=PRECISION)
    tl.store(dv + into, dv_acc.to(dv.dtype.element_ty), row_in)
    da = p * (dp - delta[:, None])
    if dbias is not None:
        tl.store(dbias + at_pair, da, inside)
    sums = _shares(da * s, mul_jacobian, head, heads, place, MUL_COUNT, BLOCK, INTERPRET)
    store_shares(partial_mul, graph, graphs, head, sums, 1.0, MUL_COUNT)
    sums = _shares(da, add_jacobian, head, heads, place, ADD_COUNT, BLOCK, INTERPRET)
    store_shares(partial_add, graph, graphs, head, sums, 1.0, ADD_COUNT)
    ds = da if mul is None else da * factor
    dq_acc = tl.dot(ds.to(key.dtype), key, input_precision=PRECISION) * scale
    tl.store(dq + into, dq_acc.to(dq.dtype.element_ty), row_in)
    dk_acc = tl.dot(tl.trans(ds.to(query.dtype)), query, input_precision=PRECISION) * scale
    tl.store(dk + into, dk_acc.to(dk.dtype.element_ty), row_in)
