"""What GT and SAN share: attention by clamped exponentials along edges, a post-norm block."""

from __future__ import annotations

from torch import Tensor, nn

from gradformer.attention.layout import Rows
from gradformer.graphs.batch import Edges
from gradformer.model.edge_attention import weighted_sum
from gradformer.model.maps import linear, linear_and_input
from gradformer.model.parts import BatchNorm, Dropout
from gradformer.model.segments import sum_to_target


def clamped_weights(score: Tensor) -> Tensor:
    r""":math:`\exp(\operatorname{clamp}(s, -5, 5))` of scores [edges, heads]."""
    return score.clamp(-5.0, 5.0).exp()


def weighted_sums(weight: Tensor, value: Tensor, edges: Edges) -> tuple[Tensor, Tensor]:
    """Sums over the edges that enter each node: of weight · value [nodes, heads, d], and of the
    weights [nodes, heads, 1].

    Shapes: weight [edges, heads]; value [nodes, heads · d].
    """
    sums = weighted_sum(weight, value, edges).unflatten(1, (weight.shape[1], -1))
    return sums, sum_to_target(weight, edges)[:, :, None]


class Norm(nn.Module):
    """Layer norm if enabled, then batch norm if enabled."""

    def __init__(self, width: int, layer: bool, batch: bool) -> None:
        super().__init__()
        self.layer = nn.LayerNorm(width) if layer else None
        self.batch = BatchNorm(width) if batch else None

    def forward(self, x: Tensor, rows: Rows, add: Tensor) -> Tensor:
        """The norms of ``add`` + x."""
        if self.batch is not None and self.layer is None:
            return self.batch(x, rows, add=add)
        x = add + x
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
        mapped = linear(self.message_dropout(message, rows, seeds), self.out)
        u = self.first_norm(mapped, rows, add=h)
        draw = self.inner_dropout.draw(rows, seeds)
        inner, u = linear_and_input(u, self.up, relu=True, draw=draw)
        return self.second_norm(linear(inner, self.down), rows, add=u)
