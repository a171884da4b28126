"""Attention along edges: scores, softmax over the edges into a node, sums of values.

States are [nodes, width] with the channels of each head side by side, numbers of edges are
[edges, heads]. Plain torch, or kernels that make nothing as wide as [edges, width].
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradformer.attention.availability import runs_kernels
from gradformer.graphs.batch import Edges
from gradformer.model.fused import edge_attention as fused
from gradformer.model.segments import from_source, from_target, sum_to_target


def head_products(x: Tensor, y: Tensor, edges: Edges, heads: int) -> Tensor:
    """x_t · y_s of each head on each edge s → t, [edges, heads].

    Shapes: x, y [nodes, width]. What padded edges have takes no part in sums.
    """
    if runs_kernels(x):
        return fused.products(x, y, edges, heads)
    return sum_heads(from_target(x, edges) * from_source(y, edges), heads)


def sum_heads(x: Tensor, heads: int) -> Tensor:
    """The sum of each head's channels, [rows, width] → [rows, heads]."""
    return x.unflatten(1, (heads, -1)).sum(2)


def weighted_sum(weight: Tensor, x: Tensor, edges: Edges) -> Tensor:
    """Σ_{s→t} weight_st x_s of each head, [nodes, width]; weight [edges, heads], x [nodes, width].

    Weights of padded edges take no part.
    """
    if runs_kernels(x):
        return fused.weighted(weight, x, edges)
    found = from_source(x, edges).unflatten(1, (weight.shape[1], -1)) * weight[:, :, None]
    return sum_to_target(found.flatten(1), edges)


def softmax_to_target(score: Tensor, edges: Edges) -> Tensor:
    """Softmax of ``score`` [edges, heads] over the edges that enter each node; 0 where padded."""
    if runs_kernels(score):
        return fused.softmax(score, None, edges)[0]
    size = (edges.target_ptr.numel() - 1, score.shape[1])
    lowest = torch.full(size, -torch.inf, dtype=score.dtype, device=score.device)
    weight = (score - from_target(_highest(score, lowest, edges), edges)).exp()
    weight = edges.rows.zero_padding(weight)
    total = from_target(sum_to_target(weight, edges), edges)
    return weight / torch.where(total > 0.0, total, 1.0)


def softmax_with_own(score: Tensor, own: Tensor, edges: Edges) -> tuple[Tensor, Tensor]:
    """Softmax over the edges into a node [edges, heads] and the node itself [nodes, heads]."""
    if runs_kernels(own):
        weight, own_weight = fused.softmax(score, own, edges)
        assert own_weight is not None
        return weight, own_weight
    top = _highest(score, own.detach(), edges)
    weight, own_weight = (score - from_target(top, edges)).exp(), (own - top).exp()
    total = sum_to_target(weight, edges) + own_weight
    return weight / from_target(total, edges), own_weight / total


def _highest(score: Tensor, least: Tensor, edges: Edges) -> Tensor:
    """The largest of the scores that enter each node and ``least`` [nodes, heads]."""
    index = edges.target.long()[:, None].expand_as(score)
    return least.scatter_reduce(0, index, score.detach(), "amax")
