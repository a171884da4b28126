"""Message passing in fused kernels: one launch forward and one or two backward for a module.

The plain forms, which the tests compare with, are in :mod:`gradformer.model.local` and
:mod:`gradformer.model.segments`. Nothing is read back from the device, tile sizes follow from the
shapes, and sums run in a fixed order: the kernels can be captured and give the same bits twice.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gradformer.attention.kernels.once import Gradients, once
from gradformer.attention.kernels.tiles import block_of
from gradformer.graphs.batch import Edges

# --- launching ------------------------------------------------------------------------------------


def tile(channels: int, rows: int, segments: int) -> dict[str, int]:
    """Tile of edges and channels: short chunks where nodes have few edges on average."""
    block = block_of(channels, 1)
    chunk = 8 if rows < 12 * segments else 16
    warps = min(max(chunk * block // 256, 1), 8)
    return {"C": channels, "BLOCK_C": block, "CHUNK": chunk, "num_warps": warps}


def edge_rows(e: Tensor) -> tuple[Tensor, int]:
    """``e`` [edges, c] as the kernels read it, and how far apart its rows are: 0 if all are one."""
    if e.stride(0) == 0 and e.stride(1) == 1:
        return e, 0
    return e.contiguous(), e.shape[1]


# --- sums and gathers ---------------------------------------------------------------------------


def segment_sum(values: Tensor, ptr: Tensor, order: Tensor | None) -> Tensor:
    """Sums of values[order[ptr[n] : ptr[n+1]]] for every n: [rows, …] → [len(ptr) − 1, …].

    ``order`` is any list of rows; None is all of them as they are.
    """
    from gradformer.model.kernels.messages import sum_kernel

    values = values.contiguous()
    segments, channels = ptr.numel() - 1, values[:1].numel()
    out = values.new_empty(segments, *values.shape[1:])
    if not len(values):
        return out.zero_()
    if out.numel():
        sum_kernel[(segments,)](
            values, out, None, None, ptr, None, order, None, None,
            E_ROW=0, **tile(channels, len(values if order is None else order), segments),
        )  # fmt: skip
    return out


def gather(x: Tensor, index: Tensor, ptr: Tensor | None = None) -> Tensor:
    """x[index] [rows, …], zero where the index is negative and from row ``ptr[-1]`` on."""
    from gradformer.model.kernels.messages import gather_kernel

    x = x.contiguous()
    rows, nodes = index.numel(), 0 if ptr is None else ptr.numel() - 1
    out = x.new_empty(rows, *x.shape[1:])
    if out.numel():
        size = tile(x[:1].numel(), rows, rows)
        gather_kernel[(-(-rows // size["CHUNK"]),)](x, out, index, ptr, nodes, rows, **size)
    return out


# --- GIN, GCN and GINE ----------------------------------------------------------------------------


def _neighbours(
    x: Tensor, eps: Tensor | None, ptr: Tensor, index: Tensor, order: Tensor | None,
    add: Tensor | None = None, degree_ptr: Tensor | None = None, e: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """(1 + ε) x_n + Σ x[index[k]] over the edges k of node n, + ``add``.

    With ``degree_ptr`` the row m in the sum of node n counts 1 / √(d_m d_n), d = 1 + its edges.
    With edge states ``e`` summands are ReLU(x[index[k]] + e[k]).
    """
    from gradformer.model.kernels.messages import sum_kernel

    x = x.contiguous()
    e, e_row = (None, 0) if e is None else edge_rows(e)
    y = torch.empty_like(x, dtype=x.dtype if e is None else torch.promote_types(x.dtype, e.dtype))
    if x.numel():
        sum_kernel[(len(x),)](
            x, y, None if add is None else add.contiguous(), eps, ptr, index, order, degree_ptr, e,
            E_ROW=e_row, **tile(x.shape[1], len(index), len(x)),
        )  # fmt: skip
    return y


def _eps_gradient(grad: Tensor, x: Tensor, eps: Tensor | None, needed: bool) -> Tensor | None:
    if eps is None or not needed:
        return None
    return (grad.float() * x.float()).sum().to(eps.dtype).view_as(eps)


class _Gin(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: Tensor | None, edges: Edges) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, eps)
        ctx.edges = edges
        ctx.set_materialize_grads(False)
        return _neighbours(x, eps, edges.target_ptr, edges.source, None), x

    @staticmethod
    @once("message passing")
    def backward(ctx: Any, grad: Tensor | None, x_grad: Tensor | None) -> Gradients:
        (x, eps), edges = ctx.saved_tensors, ctx.edges
        if grad is None:
            return x_grad, None, None
        dx = _neighbours(grad, eps, edges.source_ptr, edges.target, edges.by_source, x_grad)
        return dx, _eps_gradient(grad, x, eps, ctx.needs_input_grad[1]), None


def gin(x: Tensor, eps: Tensor | None, edges: Edges) -> tuple[Tensor, Tensor]:
    """(1 + ε) x_t + Σ_{s→t} x_s, and x; x [nodes, c], ε one number or None for 0.

    What is done with the x that is given back sends its gradient through this operation's kernel,
    which adds it to its own.
    """
    return _Gin.apply(x, eps, edges)


class _Gcn(torch.autograd.Function):
    """Linear, so that its derivative is itself with all edges turned round."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, edges: Edges, turned: bool) -> Tensor:
        ctx.edges, ctx.turned = edges, turned
        degrees = edges.target_ptr
        if turned:
            ends = edges.source_ptr, edges.target, edges.by_source
            return _neighbours(x, None, *ends, degree_ptr=degrees)
        return _neighbours(x, None, edges.target_ptr, edges.source, None, degree_ptr=degrees)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        return _Gcn.apply(grad, ctx.edges, not ctx.turned), None, None


def gcn(x: Tensor, edges: Edges) -> Tensor:
    """Σ_{s→t} x_s / √(d_s d_t) + x_t / d_t, d = 1 + in-degree; x [nodes, c]."""
    return _Gcn.apply(x, edges, False)


class _Gine(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, e: Tensor, eps: Tensor | None, edges: Edges
    ) -> tuple[Tensor, Tensor, Tensor]:
        x, rows = x.contiguous(), edge_rows(e)[0]
        ctx.save_for_backward(x, rows, eps)
        ctx.edges = edges
        ctx.set_materialize_grads(False)
        return _neighbours(x, eps, edges.target_ptr, edges.source, None, e=rows), x, e

    @staticmethod
    @once("message passing")
    def backward(
        ctx: Any, grad: Tensor | None, x_grad: Tensor | None, e_grad: Tensor | None
    ) -> Gradients:
        from gradformer.model.kernels.messages import gine_gradient_kernel

        (x, e, eps), edges = ctx.saved_tensors, ctx.edges
        if grad is None:
            return x_grad, e_grad, None, None
        grad, (e, e_row) = grad.contiguous(), edge_rows(e)
        x_grad, e_grad = (None if g is None else g.contiguous() for g in (x_grad, e_grad))
        dx, de = torch.empty_like(x), e.new_empty(e.shape)
        if x.numel():
            gine_gradient_kernel[(len(x),)](
                grad, x_grad, e_grad, x, e, dx, de, eps, edges.target, edges.source_ptr,
                edges.by_source, edges.target_ptr, len(x), len(e),
                E_ROW=e_row, **tile(x.shape[1], len(e), len(x)),
            )  # fmt: skip
        return dx, de, _eps_gradient(grad, x, eps, ctx.needs_input_grad[2]), None


def gine(x: Tensor, e: Tensor, eps: Tensor | None, edges: Edges) -> tuple[Tensor, Tensor, Tensor]:
    """(1 + ε) x_t + Σ_{s→t} ReLU(x_s + e_st), and x and e as :func:`gin` gives x back.

    x [nodes, c]; e [edges, c] or one row expanded.
    """
    return _Gine.apply(x, e, eps, edges)


# --- PNA ------------------------------------------------------------------------------------------


class _SumAndMax(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, e: Tensor | None, edges: Edges
    ) -> tuple[Tensor, Tensor]:
        from gradformer.model.kernels.messages import sum_and_max_kernel

        x, y, e = x.contiguous(), y.contiguous(), None if e is None else e.contiguous()
        total, top = torch.empty_like(x), torch.empty_like(x, dtype=torch.float32)
        if x.numel():
            sum_and_max_kernel[(len(x),)](
                x, y, e, total, top, edges.source, edges.target_ptr,
                **tile(x.shape[1], edges.num_edges, len(x)),
            )  # fmt: skip
        ctx.save_for_backward(x, y, e, top)
        ctx.edges = edges
        return total, top.to(x.dtype)

    @staticmethod
    @once("message passing")
    def backward(ctx: Any, d_total: Tensor, d_top: Tensor) -> Gradients:
        from gradformer.model.kernels.messages import sum_and_max_gradient_kernel

        (x, y, e, top), edges = ctx.saved_tensors, ctx.edges
        count = edges.num_edges
        dx, dm = torch.empty_like(x), x.new_empty(count, x.shape[1])
        if x.numel():
            sum_and_max_gradient_kernel[(len(x),)](
                x, y, e, top, d_total.contiguous(), d_top.contiguous(),
                dx, dm, edges.source, edges.target_ptr, len(x), count,
                **tile(x.shape[1], count, len(x)),
            )  # fmt: skip
        dy = segment_sum(dm, edges.source_ptr, edges.by_source)
        return dx, dy, None if e is None else dm, None


def sum_and_max(x: Tensor, y: Tensor, e: Tensor | None, edges: Edges) -> tuple[Tensor, Tensor]:
    """Sum and largest of x_t + y_s + e_st over the edges s → t into each node; 0 without any.

    All are [rows, c], the results of x's float type; equal messages share the gradient of the
    largest.
    """
    return _SumAndMax.apply(x, y, e, edges)
