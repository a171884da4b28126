"""The plain transformer layer of LGI-GT and GraphTrans, and what SAT's layer shares with it."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from gradformer.attention import Layout, Rows, Tables
from gradformer.errors import choice
from gradformer.graphs.batch import Batch
from gradformer.model.layer import Attention, FeedForward
from gradformer.model.parts import BatchNorm, Dropout
from gradformer.model.segments import pool

PLAIN = Tables(mul=None, add=None)
NORMS = ("batch", "layer")


class LayerNorm(nn.LayerNorm):
    """Layer norm with the face of :class:`BatchNorm`."""

    def forward(self, x: Tensor, rows: Rows) -> Tensor:  # type: ignore[override]
        return super().forward(x)


def make_norm(kind: str, width: int) -> nn.Module:
    """``batch`` or ``layer`` norm, called as ``norm(x, rows)``."""
    return BatchNorm(width) if choice("norm", kind, NORMS) == "batch" else LayerNorm(width)


def attend_over(batch: Batch, layout: Layout) -> Batch:
    """The batch with the rows of ``layout``, for attention that looks at no distances.

    All graphs share the same zero bytes, so no distance has to be stored or gathered.
    """
    distance = torch.zeros(layout.largest**2, dtype=torch.uint8, device=layout.device)
    layout = replace(layout, pair_ptr=torch.zeros_like(layout.pair_ptr))
    return replace(batch, layout=layout, distance=distance)


def rows_to_read(states: Tensor, batch: Batch, level: str, how: str) -> Tensor:
    """What a head reads of states [nodes, c], or [nodes + graphs, c] with the tokens at the end:
    the nodes, the tokens (``how`` is cls), or the nodes of each graph pooled."""
    if level == "node":
        return states
    if how == "cls":
        return states[batch.num_nodes :]
    return pool(states, batch.layout.node_ptr, how)


class PostNormLayer(nn.Module):
    r"""u = Norm(x + Drop(MHA(x))), x' = Norm(u + Drop(W₂ Drop(ReLU(W₁ u)))).

    Args:
        width, heads: channels and attention heads.
        inner: width inside the feed-forward block.
        norm: ``batch`` (over all rows of the batch, tokens included) or ``layer``.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        inner: int,
        *,
        norm: str,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.attention = Attention(width, heads, attention_dropout)
        self.dropout = Dropout(dropout)
        self.attention_norm = make_norm(norm, width)
        self.feed_forward = FeedForward(width, dropout, inner)
        self.norm = make_norm(norm, width)

    def forward(self, x: Tensor, batch: Batch) -> Tensor:
        y = self.dropout(self.attention(x, PLAIN, batch), batch.nodes, batch.seeds)
        x = self.attention_norm(x + y, batch.nodes)
        z: Tensor = self.norm(x + self.feed_forward(x, batch), batch.nodes)
        return z
