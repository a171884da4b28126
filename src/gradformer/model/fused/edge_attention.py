"""Attention along edges in kernels; the plain forms are in :mod:`gradformer.model.edge_attention`.

Products of the heads and weighted sums are each other's derivatives, so that both can be
differentiated any number of times. No [edges, width] tensor is made.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gradformer.attention.kernels.once import Gradients, once
from gradformer.attention.kernels.tiles import block_of
from gradformer.graphs.batch import Edges

LANES = 1024  # numbers of a tile


def _tile(heads: int, width: int) -> dict[str, int]:
    """Tile of edges, heads and their channels."""
    d = width // heads
    lanes = block_of(heads, 1) * block_of(d, 1)
    chunk = min(max(LANES // lanes, 4), 32)
    sizes = {"HEADS": heads, "D": d, "BLOCK_H": block_of(heads, 1), "BLOCK_D": block_of(d, 1)}
    return sizes | {"CHUNK": chunk, "num_warps": min(max(chunk * lanes // 256, 1), 8)}


def _kind(x: Tensor, y: Tensor | None = None) -> torch.dtype:
    """Of what is made of both: autocast sums and exponentiates in float32."""
    if torch.is_autocast_enabled(x.device.type):
        return torch.float32
    return x.dtype if y is None else torch.promote_types(x.dtype, y.dtype)


class _Products(torch.autograd.Function):
    """x, y [nodes, c] → x_t · y_s of each head on each edge s → t, [edges, heads]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, edges: Edges, heads: int) -> Tensor:
        from gradformer.model.kernels.edge_attention import products_kernel

        ctx.save_for_backward(x, y)
        ctx.edges = edges
        count, nodes = edges.num_edges, len(x)
        out = x.new_empty(count, heads, dtype=_kind(x, y))
        if out.numel():
            size = _tile(heads, x.shape[1])
            products_kernel[(-(-count // size["CHUNK"]),)](
                x.contiguous(), y.contiguous(), out,
                edges.target, edges.source, edges.target_ptr, nodes, count, **size,
            )  # fmt: skip
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:  # type: ignore[override]
        (x, y), edges = ctx.saved_tensors, ctx.edges
        dx = _Weighted.apply(grad, y, edges, False).to(x.dtype)
        return dx, _Weighted.apply(grad, x, edges, True).to(y.dtype), None, None


class _Weighted(torch.autograd.Function):
    """weight [edges, heads], x [nodes, c] → Σ weight_st x_s over the edges into each node t;
    ``turned``: Σ weight_st x_t over the edges out of each node s. [nodes, c]."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, x: Tensor, edges: Edges, turned: bool) -> Tensor:
        from gradformer.model.kernels.edge_attention import weighted_kernel

        ctx.save_for_backward(weight, x)
        ctx.edges, ctx.turned = edges, turned
        out = torch.empty_like(x, dtype=torch.promote_types(weight.dtype, x.dtype))
        ends = edges.target_ptr, edges.source
        if turned:
            ends = edges.source_ptr, edges.target
        if out.numel():
            weighted_kernel[(len(x),)](
                weight.contiguous(), x.contiguous(), out, *ends,
                edges.by_source if turned else None, **_tile(weight.shape[1], x.shape[1]),
            )  # fmt: skip
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:  # type: ignore[override]
        (weight, x), edges, turned = ctx.saved_tensors, ctx.edges, ctx.turned
        ends = (x, grad) if turned else (grad, x)
        dw = _Products.apply(*ends, edges, weight.shape[1]).to(weight.dtype)
        return dw, _Weighted.apply(weight, grad, edges, not turned).to(x.dtype), None, None


class _Softmax(torch.autograd.Function):
    """score [edges, heads], own [nodes, heads] or None → softmax over both."""

    @staticmethod
    def forward(
        ctx: Any, score: Tensor, own: Tensor | None, edges: Edges
    ) -> tuple[Tensor, Tensor | None]:
        from gradformer.model.kernels.edge_attention import softmax_kernel

        weight = score.new_empty(score.shape, dtype=_kind(score))
        own_weight = None if own is None else own.new_empty(own.shape, dtype=weight.dtype)
        ctx.dtypes = score.dtype, None if own is None else own.dtype
        nodes, score = edges.target_ptr.numel() - 1, score.contiguous()
        softmax_kernel[(nodes,)](
            score, None if own is None else own.contiguous(), weight, own_weight,
            edges.target_ptr, nodes, len(score), **_numbers(score),
        )  # fmt: skip
        ctx.save_for_backward(weight, own_weight)
        ctx.edges = edges
        return weight, own_weight

    @staticmethod
    @once("softmax along edges")
    def backward(ctx: Any, grad: Tensor, own_grad: Tensor | None) -> Gradients:
        from gradformer.model.kernels.edge_attention import softmax_gradient_kernel

        (weight, own_weight), edges = ctx.saved_tensors, ctx.edges
        nodes = edges.target_ptr.numel() - 1
        d_score = torch.empty_like(weight, dtype=ctx.dtypes[0])
        d_own = None if own_weight is None else torch.empty_like(own_weight, dtype=ctx.dtypes[1])
        softmax_gradient_kernel[(nodes,)](
            weight, own_weight,
            grad.contiguous(), None if own_grad is None else own_grad.contiguous(),
            d_score, d_own, edges.target_ptr, nodes, len(weight), **_numbers(weight),
        )  # fmt: skip
        return d_score, d_own, None


def _numbers(x: Tensor) -> dict[str, int]:
    """Tile of edges and heads."""
    heads = x.shape[1]
    return {"HEADS": heads, "BLOCK_H": block_of(heads, 1), "CHUNK": 32, "num_warps": 1}


def products(x: Tensor, y: Tensor, edges: Edges, heads: int) -> Tensor:
    """As :func:`gradformer.model.edge_attention.head_products`."""
    return _Products.apply(x, y, edges, heads)


def weighted(weight: Tensor, x: Tensor, edges: Edges) -> Tensor:
    """As :func:`gradformer.model.edge_attention.weighted_sum`."""
    return _Weighted.apply(weight, x, edges, False)


def softmax(score: Tensor, own: Tensor | None, edges: Edges) -> tuple[Tensor, Tensor | None]:
    """As :func:`gradformer.model.edge_attention.softmax_to_target`, and the weights of the nodes
    themselves."""
    return _Softmax.apply(score, own, edges)
