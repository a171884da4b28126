"""Triton kernels of attention along edges: products of heads, weighted sums, softmax.

Node states are [nodes, HEADS · D], heads side by side; numbers of edges are [edges, HEADS]. Every
row of an output is written by exactly one program, and sums are float32 and run in a fixed order.
Edges from ``target_ptr[-1]`` on are padding: they enter no sum and get zeros. What is absent is
None.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.model.kernels.messages import write_rest


@triton.jit
def _states(
    x, row, real, HEADS: tl.constexpr, D: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr
):
    """Rows of x as [rows, BLOCK_H, BLOCK_D], zero where not ``real``."""
    head = tl.arange(0, BLOCK_H)[None, :, None]
    channel = tl.arange(0, BLOCK_D)[None, None, :]
    inside = real[:, None, None] & (head < HEADS) & (channel < D)
    place = row[:, None, None] * (HEADS * D) + head * D + channel
    return tl.load(x + place, inside, other=0.0).to(tl.float32)


@triton.jit(do_not_specialize=["nodes", "edges"])
def products_kernel(
    x, y, out, target, source, target_ptr, nodes, edges,
    HEADS: tl.constexpr, D: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    """out_st = x_t · y_s of each head; grid (edges / CHUNK,)."""
    edge = tl.program_id(0).to(tl.int64) * CHUNK + tl.arange(0, CHUNK)
    real = edge < tl.minimum(tl.load(target_ptr + nodes), edges)
    t = tl.load(target + edge, real, other=0).to(tl.int64)
    s = tl.load(source + edge, real, other=0).to(tl.int64)
    product = _states(x, t, real, HEADS, D, BLOCK_H, BLOCK_D)
    product *= _states(y, s, real, HEADS, D, BLOCK_H, BLOCK_D)
    head = tl.arange(0, BLOCK_H)[None, :]
    inside = (edge < edges)[:, None] & (head < HEADS)
    total = tl.sum(product, 2).to(out.dtype.element_ty)
    tl.store(out + edge[:, None] * HEADS + head, total, inside)


@triton.jit
def weighted_kernel(
    weight, x, out, ptr, index, order,
    HEADS: tl.constexpr, D: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    """out_n = Σ weight_k x[index_k] over the edges k of node n, in their ``order``, head by head;
    grid (nodes,)."""
    node = tl.program_id(0).to(tl.int64)
    heads = tl.arange(0, BLOCK_H)
    acc = tl.zeros([CHUNK, BLOCK_H, BLOCK_D], tl.float32)
    end = tl.load(ptr + node + 1)
    for start in range(tl.load(ptr + node), end, CHUNK):
        edge = (start + tl.arange(0, CHUNK)).to(tl.int64)
        real = edge < end
        if order is not None:
            edge = tl.load(order + edge, real, other=0).to(tl.int64)
        other = tl.load(index + edge, real, other=0).to(tl.int64)
        inside = real[:, None] & (heads < HEADS)[None, :]
        share = tl.load(weight + edge[:, None] * HEADS + heads, inside, other=0.0).to(tl.float32)
        acc += share[:, :, None] * _states(x, other, real, HEADS, D, BLOCK_H, BLOCK_D)
    head, channel = heads[:, None], tl.arange(0, BLOCK_D)[None, :]
    here = out + node * (HEADS * D) + head * D + channel
    total = tl.sum(acc, 0).to(out.dtype.element_ty)
    tl.store(here, total, (head < HEADS) & (channel < D))


# --- softmax --------------------------------------------------------------------------------------


@triton.jit
def _numbers(
    x, start, end, HEADS: tl.constexpr, BLOCK_H: tl.constexpr, CHUNK: tl.constexpr, OTHER
):  # fmt: skip
    """Rows ``start`` … of x [·, HEADS] as [CHUNK, BLOCK_H], OTHER from ``end`` on."""
    row = (start + tl.arange(0, CHUNK)).to(tl.int64)[:, None]
    head = tl.arange(0, BLOCK_H)[None, :]
    inside = (row < end) & (head < HEADS)
    return tl.load(x + row * HEADS + head, inside, other=OTHER).to(tl.float32)


@triton.jit
def _store(
    out, value, start, end, HEADS: tl.constexpr, BLOCK_H: tl.constexpr, CHUNK: tl.constexpr
):  # fmt: skip
    """Rows ``start`` … ``end`` − 1 of out [·, HEADS]."""
    row = (start + tl.arange(0, CHUNK)).to(tl.int64)[:, None]
    head = tl.arange(0, BLOCK_H)[None, :]
    inside = (row < end) & (head < HEADS)
    tl.store(out + row * HEADS + head, value.to(out.dtype.element_ty), inside)


@triton.jit(do_not_specialize=["nodes", "edges"])
def softmax_kernel(
    score, own, weight, own_weight, ptr, nodes, edges,
    HEADS: tl.constexpr, BLOCK_H: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Softmax over the edges into a node, and with ``own`` the node itself; grid (nodes,)."""
    node = tl.program_id(0)
    begin, end = tl.load(ptr + node), tl.load(ptr + node + 1)
    top = tl.full([BLOCK_H], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_H], tl.float32)
    mine = tl.zeros([1, BLOCK_H], tl.float32)
    if own is not None:
        mine = _numbers(own, node, node + 1, HEADS, BLOCK_H, 1, 0.0)
        top = tl.sum(mine, 0)
    for start in range(begin, end, CHUNK):
        found = _numbers(score, start, end, HEADS, BLOCK_H, CHUNK, float("-inf"))
        top = tl.maximum(top, tl.max(found, 0))
    if own is not None:
        mine = tl.exp(mine - top[None, :])
        total += tl.sum(mine, 0)
    for start in range(begin, end, CHUNK):
        found = _numbers(score, start, end, HEADS, BLOCK_H, CHUNK, float("-inf"))
        total += tl.sum(tl.exp(found - top[None, :]), 0)
    for start in range(begin, end, CHUNK):
        found = _numbers(score, start, end, HEADS, BLOCK_H, CHUNK, float("-inf"))
        share = tl.exp(found - top[None, :]) / total[None, :]
        _store(weight, share, start, end, HEADS, BLOCK_H, CHUNK)
    if own is not None:
        _store(own_weight, mine / total[None, :], node, node + 1, HEADS, BLOCK_H, 1)
    write_rest(weight, None, tl.load(ptr + nodes), edges, HEADS, BLOCK_H, CHUNK)


@triton.jit(do_not_specialize=["nodes", "edges"])
def softmax_gradient_kernel(
    weight, own_weight, grad, own_grad, d_score, d_own, ptr, nodes, edges,
    HEADS: tl.constexpr, BLOCK_H: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """d score = weight (grad − Σ weight grad), the sum as in :func:`softmax_kernel`."""
    node = tl.program_id(0)
    begin, end = tl.load(ptr + node), tl.load(ptr + node + 1)
    mean = tl.zeros([BLOCK_H], tl.float32)
    for start in range(begin, end, CHUNK):
        found = _numbers(weight, start, end, HEADS, BLOCK_H, CHUNK, 0.0)
        mean += tl.sum(found * _numbers(grad, start, end, HEADS, BLOCK_H, CHUNK, 0.0), 0)
    if own_weight is not None:
        mine = _numbers(own_weight, node, node + 1, HEADS, BLOCK_H, 1, 0.0)
        arrived = _numbers(own_grad, node, node + 1, HEADS, BLOCK_H, 1, 0.0)
        mean += tl.sum(mine * arrived, 0)
        _store(d_own, mine * (arrived - mean[None, :]), node, node + 1, HEADS, BLOCK_H, 1)
    for start in range(begin, end, CHUNK):
        found = _numbers(weight, start, end, HEADS, BLOCK_H, CHUNK, 0.0)
        change = _numbers(grad, start, end, HEADS, BLOCK_H, CHUNK, 0.0) - mean[None, :]
        _store(d_score, found * change, start, end, HEADS, BLOCK_H, CHUNK)
    write_rest(d_score, None, tl.load(ptr + nodes), edges, HEADS, BLOCK_H, CHUNK)
