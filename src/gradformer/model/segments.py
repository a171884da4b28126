"""Sums and gathers along edges, in a fixed order: the same input gives the same bits twice.

A gather's derivative is a sum and a sum's a gather, so they can be differentiated any number of
times. Edges are sorted (see :class:`gradformer.graphs.batch.Edges`). Plain torch, or one kernel
for each sum and each gather that skips padding where Triton runs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gradformer.attention.availability import exporting, runs_kernels
from gradformer.graphs.batch import Edges
from gradformer.model.fused.messages import gather, gcn, gin, segment_sum


class _Gather(torch.autograd.Function):
    """x [nodes, c] → x[index] [edges, c]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, ptr: Tensor, order: Tensor | None) -> Tensor:
        ctx.indices = index, ptr, order
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return _Sum.apply(grad, *ctx.indices), None, None, None


class _Spread(_Gather):
    """The same, but zero at padded edges, which take no part in sums."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, ptr: Tensor, order: Tensor | None) -> Tensor:
        ctx.indices = index, ptr, order
        if runs_kernels(x):
            return gather(x, index, ptr)
        gathered = x.index_select(0, index)
        if x.device.type == "cpu" and int(ptr[-1]) == len(index):
            return gathered
        place = torch.arange(len(index), device=x.device)
        real = (place < ptr[-1]).view(-1, *(1,) * (x.dim() - 1))
        return torch.where(real, gathered, 0.0)


class _Sum(torch.autograd.Function):
    """values [edges, c] → their sums over the edges of each node [nodes, c]."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, index: Tensor, ptr: Tensor, order: Tensor | None
    ) -> Tensor:
        ctx.indices = index, ptr, order
        if exporting():  # a program takes one graph and has no padding to leave out
            return values.new_zeros(ptr.shape[0] - 1, *values.shape[1:]).index_add(0, index, values)
        if runs_kernels(values):
            return segment_sum(values, ptr, order)
        if values.device.type != "cpu":
            ordered = values if order is None else values.index_select(0, order)
            return torch.segment_reduce(ordered, "sum", offsets=ptr.long(), axis=0, unsafe=True)
        if order is None:
            order = torch.arange(int(ptr[-1]), dtype=ptr.dtype, device=ptr.device)
        return _bags(values.flatten(1), order, ptr).view(-1, *values.shape[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return _Spread.apply(grad, *ctx.indices), None, None, None


class _Rows(torch.autograd.Function):
    """table [rows, c] → table[index] [places, c], for places in any order."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor) -> Tensor:
        ctx.index, ctx.rows = index, len(table)
        return table.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        ordered, order = ctx.index.sort(stable=True)
        rows = torch.arange(ctx.rows + 1, dtype=ordered.dtype, device=ordered.device)
        ptr = torch.searchsorted(ordered, rows, out_int32=True)
        return _Sum.apply(grad.contiguous(), ctx.index, ptr, order.int()), None


class _Move(torch.autograd.Function):
    """x [rows, …] → x[there] [places, …], zero where ``there`` is −1."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, there: Tensor, back: Tensor) -> Tensor:
        ctx.ways = there, back
        if runs_kernels(x):
            return gather(x, there)
        known = (there >= 0).view(-1, *(1,) * (x.dim() - 1))
        return torch.where(known, x.index_select(0, there.clamp(min=0)), 0.0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        there, back = ctx.ways
        return _Move.apply(grad, back, there), None, None


class _Neighbours(torch.autograd.Function):
    """x [nodes, c] → sums of x[near] over the edges of each node [nodes, c].

    ``back`` and ``back_ptr`` are the same edges seen from their other ends.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, near: Tensor, ptr: Tensor, back: Tensor, back_ptr: Tensor
    ) -> Tensor:
        ctx.indices = back, back_ptr, near, ptr
        return segment_sum(x, ptr, near) if runs_kernels(x) else _bags(x, near, ptr)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        return _Neighbours.apply(grad.contiguous(), *ctx.indices), None, None, None, None


def _bags(x: Tensor, order: Tensor, ptr: Tensor) -> Tensor:
    """Sums of the rows x[order[ptr[n] : ptr[n+1]]] of each n, one after the other.

    On a CPU an embedding bag is four times as fast as ``index_add_``.
    """
    bags = order[: int(ptr[-1])].to(ptr.dtype), x, ptr
    return nn.functional.embedding_bag(*bags, mode="sum", include_last_offset=True)


def from_source(x: Tensor, edges: Edges) -> Tensor:
    """x at the source of each edge, [edges, c]."""
    return _Gather.apply(x, edges.source, edges.source_ptr, edges.by_source)


def from_target(x: Tensor, edges: Edges) -> Tensor:
    """x at the target of each edge, [edges, c]."""
    return _Gather.apply(x, edges.target, edges.target_ptr, None)


def sum_to_target(values: Tensor, edges: Edges) -> Tensor:
    """Sums of ``values`` [edges, c] over the edges that enter each node, [nodes, c]."""
    return _Sum.apply(values, edges.target, edges.target_ptr, None)


def moved(x: Tensor, there: Tensor, back: Tensor) -> Tensor:
    """The rows of x [rows, …] in other places: x[there] [places, …], zero where ``there`` is −1.

    No row goes to two places, and ``back`` [rows] says where each went, −1 if nowhere. So the
    derivative is the move back. That of indexing sorts all places and adds up those of one row one
    after another: many that stand for nothing and point at one row take milliseconds.
    """
    return _Move.apply(x, there, back)


def rows_of(table: Tensor, index: Tensor) -> Tensor:
    """table[index] [places, c], of a table [rows, c] and index [places] int64.

    The derivative adds up what meets in a row in the order of the places. torch's own does that on
    a CPU; on a GPU its bits change from run to run.
    """
    if table.device.type == "cpu":
        return nn.functional.embedding(index, table)
    return _Rows.apply(table, index)


def sum_of_sources(x: Tensor, edges: Edges) -> Tensor:
    """Sums of x [nodes, c] at the sources of the edges that enter each node, [nodes, c]."""
    if exporting() or (x.device.type != "cpu" and not runs_kernels(x)):
        return sum_to_target(from_source(x, edges), edges)
    leaving = edges.target.index_select(0, edges.by_source)
    return _Neighbours.apply(x, edges.source, edges.target_ptr, leaving, edges.source_ptr)


def with_sources(x: Tensor, eps: Tensor | None, edges: Edges) -> tuple[Tensor, Tensor]:
    """(1 + ε) x_t + Σ_{s→t} x_s [nodes, c], and x for later use; ε one number or None for 0.

    What is done with that x sends its gradient through this sum's kernel, which adds it up. Kernels
    can be differentiated once.
    """
    if runs_kernels(x):
        return gin(x, eps, edges)
    return (x if eps is None else (1.0 + eps) * x) + sum_of_sources(x, edges), x


def normalised_sum(x: Tensor, edges: Edges) -> Tensor:
    """D^{-1/2} (A + I) D^{-1/2} x, D the in-degrees of A + I; x [nodes, c]."""
    if runs_kernels(x):
        return gcn(x, edges)
    exact = torch.promote_types(x.dtype, torch.float32)
    scale = (in_degree(edges, exact) + 1.0).rsqrt()[:, None]
    y = x * scale
    return ((y + sum_of_sources(y, edges)) * scale).to(x.dtype)


def in_degree(edges: Edges, dtype: torch.dtype = torch.float32) -> Tensor:
    """Number of edges that enter each node, [nodes]."""
    return edges.target_ptr.diff().to(dtype)


def out_degree(edges: Edges, dtype: torch.dtype = torch.float32) -> Tensor:
    """Number of edges that leave each node, [nodes]."""
    return edges.source_ptr.diff().to(dtype)


def pool(x: Tensor, node_ptr: Tensor, how: str) -> Tensor:
    """``add``, ``mean`` or ``max`` of the rows of each graph, [graphs, c]; 0 for an empty graph.

    Shapes: x [rows, c]; node_ptr [graphs + 1]. Rows from ``node_ptr[-1]`` on take no part.
    """
    if how != "max" and runs_kernels(x):
        from gradformer.model.fused.pool import fused_pool

        return fused_pool(x, node_ptr, how == "mean")
    sizes = node_ptr.diff()
    if how == "max":
        top = torch.segment_reduce(x, "max", offsets=node_ptr.long(), axis=0, unsafe=True)
        return torch.where((sizes > 0)[:, None], top, 0.0)
    total = _Sum.apply(x, _graphs(node_ptr, x.shape[0]), node_ptr, None)
    return total / sizes.clamp(min=1)[:, None] if how == "mean" else total


def spread(x: Tensor, node_ptr: Tensor, rows: int) -> Tensor:
    """The row of each graph x [graphs, c] at all of its nodes, [rows, c]; padded rows hold any."""
    return _Gather.apply(x, _graphs(node_ptr, rows), node_ptr, None)


def _graphs(node_ptr: Tensor, rows: int) -> Tensor:
    """Graph of each row, [rows] int32; padded rows count to the last graph."""
    row = torch.arange(rows, device=node_ptr.device, dtype=torch.int32)
    graph = torch.searchsorted(node_ptr[1:].contiguous(), row, right=True, out_int32=True)
    return graph.clamp(max=node_ptr.numel() - 2)
