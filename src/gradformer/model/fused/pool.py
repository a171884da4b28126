"""Sums or means over the nodes of each graph, in one kernel each way.

The plain form is :func:`gradformer.model.segments.pool`. A program owns a graph and a tile of
channels; it writes all that belongs to them, so the bits are the same every time.
"""

# The kernels' arguments are untyped.
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gradformer.attention.kernels.tiles import block_of

ROWS = 32  # of a graph at a time


@triton.jit
def pool_kernel(
    x, y, ptr, C: tl.constexpr, MEAN: tl.constexpr, ROWS: tl.constexpr, BLOCK_C: tl.constexpr
):  # fmt: skip
    """y[g] = Σ x over the rows of graph g, over their number with MEAN; grid (graphs, tiles)."""
    graph = tl.program_id(0)
    column = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    first = tl.load(ptr + graph)
    end = tl.load(ptr + graph + 1)
    acc = tl.zeros([ROWS, BLOCK_C], tl.float32)
    for start in range(first, end, ROWS):
        row = (start + tl.arange(0, ROWS)).to(tl.int64)
        inside = (row < end)[:, None] & (column < C)[None, :]
        acc += tl.load(x + row[:, None] * C + column[None, :], inside, other=0.0).to(tl.float32)
    total = tl.sum(acc, 0)
    if MEAN:
        total /= tl.maximum(end - first, 1).to(tl.float32)
    place = graph.to(tl.int64) * C + column
    tl.store(y + place, total.to(y.dtype.element_ty), column < C)


@triton.jit(do_not_specialize=["rows"])
def spread_kernel(
    g, dx, ptr, rows, C: tl.constexpr, MEAN: tl.constexpr, ROWS: tl.constexpr,
    BLOCK_C: tl.constexpr,
):  # fmt: skip
    """dx = g at all rows of its graph (by their number with MEAN); grid (graphs + 1, tiles).

    The last program writes zeros into the padded rows.
    """
    graph = tl.program_id(0)
    column = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    graphs = tl.num_programs(0) - 1
    first = tl.load(ptr + graph)
    value = tl.zeros([BLOCK_C], tl.float32)
    end = rows
    if graph < graphs:
        end = tl.load(ptr + graph + 1)
        value = tl.load(g + graph.to(tl.int64) * C + column, column < C, other=0.0).to(tl.float32)
    if MEAN:
        value /= tl.maximum(end - first, 1).to(tl.float32)
    same = tl.zeros([ROWS, 1], tl.float32) + value[None, :]
    for start in range(first, end, ROWS):
        row = (start + tl.arange(0, ROWS)).to(tl.int64)
        inside = (row < end)[:, None] & (column < C)[None, :]
        place = row[:, None] * C + column[None, :]
        tl.store(dx + place, same.to(dx.dtype.element_ty), inside)


def _tile(channels: int) -> dict[str, int]:
    return {"C": channels, "ROWS": ROWS, "BLOCK_C": min(64, block_of(channels, 4))}


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, ptr: Tensor, mean: bool) -> Tensor:
        ctx.arguments = ptr, mean, len(x)
        (_, channels), graphs = x.shape, len(ptr) - 1
        y, tile = x.new_empty(graphs, channels), _tile(channels)
        grid = graphs, -(-channels // tile["BLOCK_C"])
        pool_kernel[grid](x.contiguous(), y, ptr, MEAN=mean, **tile)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        return _Spread.apply(grad, *ctx.arguments), None, None


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, grad: Tensor, ptr: Tensor, mean: bool, rows: int) -> Tensor:
        ctx.arguments = ptr, mean
        graphs, channels = grad.shape
        dx, tile = grad.new_empty(rows, channels), _tile(channels)
        grid = graphs + 1, -(-channels // tile["BLOCK_C"])
        spread_kernel[grid](grad.contiguous(), dx, ptr, rows, MEAN=mean, **tile)
        return dx

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:  # type: ignore[override]
        return _Pool.apply(grad, *ctx.arguments), None, None, None


def fused_pool(x: Tensor, node_ptr: Tensor, mean: bool) -> Tensor:
    """x [rows, c] → [graphs, c]; rows from ``node_ptr[-1]`` on take no part."""
    return _Pool.apply(x, node_ptr, mean)
