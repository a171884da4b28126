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

PLAIN = Tables(mul=None, add=None)
NORMS = ("batch", "layer")


class LayerNorm(nn.LayerNorm):
    """Layer norm with the face of :class:`BatchNorm`."""

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        rows: Rows,
        seeds: Tensor | None = None,
        *,
        before: Dropout | None = None,
        add: Tensor | None = None,
    ) -> Tensor:
        x = x if before is None else before(x, rows, seeds)
        return super().forward(x if add is None else add + x)


def make_norm(kind: str, width: int) -> nn.Module:
    """``batch`` or ``layer`` norm: ``norm(x, rows, seeds, before=dropout, add=residual)``."""
    return BatchNorm(width) if choice("norm", kind, NORMS) == "batch" else LayerNorm(width)


def attend_over(batch: Batch, layout: Layout) -> Batch:
    """The batch with the rows of ``layout``, for attention that looks at no distances.

    All graphs share the same zero bytes, so no distance has to be stored or gathered.
    """
    distance = torch.zeros(layout.largest**2, dtype=torch.uint8, device=layout.device)
    layout = replace(layout, pair_ptr=torch.zeros_like(layout.pair_ptr))
    return replace(batch, layout=layout, distance=distance)


class PostNormLayer(nn.Module):
    r"""u = Norm(x + Drop(MHA(x))), x' = Norm(u + Drop(W₂ Drop(ReLU(W₁ u)))).

    A batch norm is over all rows of the batch, tokens included.
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
        rows, seeds = batch.nodes, batch.seeds
        y, x = self.attention.pass_on(x, PLAIN, batch)
        x = self.attention_norm(y, rows, seeds, before=self.dropout, add=x)
        y, dropout, x = self.feed_forward.pass_on(x, batch)
        return self.norm(y, rows, seeds, before=dropout, add=x)
