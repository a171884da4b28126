"""What GT and SAN share: attention by clamped exponentials along edges, a post-norm block."""

from __future__ import annotations

from torch import Tensor, nn

from gradformer.attention.layout import Rows
from gradformer.graphs.batch import Edges
from gradformer.model.parts import BatchNorm, Dropout
from gradformer.model.segments import from_source, from_target, sum_to_target


def channel_products(key: Tensor, query: Tensor, edges: Edges, heads: int) -> Tensor:
    r""":math:`k_s \odot q_t / \sqrt d` on each edge s → t, [edges, width]; d = width / heads."""
    scale = (key.shape[1] // heads) ** -0.5
    return from_source(key, edges) * from_target(query, edges) * scale


def clamped_weights(products: Tensor, edges: Edges, heads: int) -> Tensor:
    r""":math:`\exp(\operatorname{clamp}(\sum_c p_c, -5, 5))` for each head, [edges, heads]."""
    score = products.view(-1, heads, products.shape[1] // heads).sum(2)
    return edges.rows.zero_padding(score.clamp(-5.0, 5.0).exp())


def weighted_sums(weight: Tensor, value: Tensor, edges: Edges) -> tuple[Tensor, Tensor]:
    """Sums over the edges that enter each node: of weight · value [nodes, width], of the weights.

    Shapes: weight [edges, heads]; value [nodes, width]; the second result is spread over the
    channels of its head, [nodes, width].
    """
    heads, width = weight.shape[1], value.shape[1]
    share = weight.repeat_interleave(width // heads, dim=1)
    total = sum_to_target(weight, edges).repeat_interleave(width // heads, dim=1)
    return sum_to_target(share * from_source(value, edges), edges), total


class Norm(nn.Module):
    """Layer norm if enabled, then batch norm if enabled."""

    def __init__(self, width: int, layer: bool, batch: bool) -> None:
        super().__init__()
        self.layer = nn.LayerNorm(width) if layer else None
        self.batch = BatchNorm(width) if batch else None

    def forward(self, x: Tensor, rows: Rows) -> Tensor:
        if self.layer is not None:
            x = self.layer(x)
        return x if self.batch is None else self.batch(x, rows)


class Block(nn.Module):
    r"""What follows attention, on node or edge rows:
    :math:`u = N_1(h + O\,m)`, :math:`h' = N_2(u + W_2 \operatorname{relu}(W_1 u))`, inner width 2D.
    """

    def __init__(self, width: int, dropout: float, layer_norm: bool, batch_norm: bool) -> None:
        super().__init__()
        self.out = nn.Linear(width, width)
        self.first_norm = Norm(width, layer_norm, batch_norm)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.second_norm = Norm(width, layer_norm, batch_norm)
        self.message_dropout = Dropout(dropout)
        self.inner_dropout = Dropout(dropout)

    def forward(self, h: Tensor, message: Tensor, rows: Rows, seeds: Tensor | None) -> Tensor:
        u = self.first_norm(h + self.out(self.message_dropout(message, rows, seeds)), rows)
        inner = self.inner_dropout(self.up(u).relu(), rows, seeds)
        y: Tensor = self.second_norm(u + self.down(inner), rows)
        return y
