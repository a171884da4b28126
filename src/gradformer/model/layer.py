r"""One Gradformer layer: message passing beside decayed attention, then a feed-forward block."""

from __future__ import annotations

from torch import Tensor, nn

from gradformer.attention import Tables, decay_attention
from gradformer.attention.draws import Site, share
from gradformer.errors import ConfigError, InputError
from gradformer.graphs.batch import Batch
from gradformer.model.local import GatedGCN
from gradformer.model.parts import BatchNorm, Dropout, DropPath, linear

Projected = tuple[Tensor, Tensor, Tensor]


class Attention(Site):
    """Multi-head attention over all pairs of a graph, decayed by distance; heads are contiguous."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        if heads < 1 or width < 1:
            raise ConfigError(f"heads, width: got {heads} and {width}, expected at least 1 of each")
        if width % heads:
            raise ConfigError(f"heads: {heads} does not divide the width {width}")
        self.heads, self.dropout = heads, share(dropout)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def project(self, x: Tensor) -> Projected:
        """q, k, v [nodes, heads, d] of node states x [nodes, width]."""
        return self._heads(linear(x, self.qkv))

    def forward(
        self, x: Tensor, tables: Tables, batch: Batch, bias: Tensor | None = None
    ) -> Tensor:
        return self._attend(self.project(x), tables, batch, bias)

    def pass_on(self, x: Tensor, tables: Tables, batch: Batch) -> tuple[Tensor, Tensor]:
        """The result, and x: see :func:`linear`."""
        joint, x = linear(x, self.qkv, pass_on=True)
        return self._attend(self._heads(joint), tables, batch), x

    def _heads(self, joint: Tensor) -> Projected:
        q, k, v = joint.view(joint.shape[0], 3, self.heads, -1).unbind(1)
        return q, k, v

    def _attend(
        self, projected: Projected, tables: Tables, batch: Batch, bias: Tensor | None = None
    ) -> Tensor:
        if batch.distance is None:
            raise InputError("distance: the batch has none; pack the graphs with a pair index")
        q, k, v = projected
        dropout = self.dropout if self.training else 0.0
        y = decay_attention(
            q,
            k,
            v,
            batch.layout,
            batch.distance,
            tables.mul,
            tables.add,
            bias=bias,
            dropout=dropout,
            seed=None if batch.seeds is None else batch.seeds[self.site],
        )
        return linear(y.flatten(1), self.out)


class FeedForward(nn.Module):
    """Linear(inner) – ReLU – dropout – Linear(c) – dropout; ``inner`` is 2c if not given."""

    def __init__(self, width: int, dropout: float = 0.0, inner: int | None = None) -> None:
        super().__init__()
        inner = inner or 2 * width
        self.first, self.second = nn.Linear(width, inner), nn.Linear(inner, width)
        self.inner_dropout, self.dropout = Dropout(dropout), Dropout(dropout)

    def forward(self, x: Tensor, batch: Batch) -> Tensor:
        y = self.inner_dropout(linear(x, self.first, relu=True), batch.nodes, batch.seeds)
        return self.dropout(linear(y, self.second), batch.nodes, batch.seeds)


class GradformerLayer(nn.Module):
    r"""The layer of the paper, post-norm:

    .. math::
        s = \operatorname{BN}(\text{local}(x, e) + x) + \operatorname{BN}(\text{attention}(x) + x),
        \qquad x' = \operatorname{BN}(s + \text{FFN}(s))

    A local module that carries its own residual (GatedGCN) is not given a second one unless
    ``double_residual`` asks for the authors' behaviour.

    Args:
        width, heads: channels and attention heads.
        local: a module ``(x, e, batch) -> (x, e)``, or None.
        attention: leave out the global half if False.
        dropout: after the local module, after the attention and in the feed-forward block.
        attention_dropout: on the attention weights.
        drop_path: stochastic depth on the two branches and the feed-forward block.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        local: nn.Module | None,
        *,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        drop_path: float = 0.0,
        double_residual: bool = False,
    ) -> None:
        super().__init__()
        self.local = local
        self.attention = Attention(width, heads, attention_dropout)
        self.feed_forward = FeedForward(width, dropout)
        self.local_norm = BatchNorm(width) if local is not None else None
        self.attention_norm, self.norm = BatchNorm(width), BatchNorm(width)
        self.local_path, self.attention_path = DropPath(drop_path), DropPath(drop_path)
        self.path = DropPath(drop_path)
        self.add_residual = double_residual or not getattr(local, "residual", False)
        # A module with a residual of its own drops inside, where x is not yet added.
        self.local_dropout = Dropout(dropout if self.add_residual else 0.0)
        self.attention_out_dropout = Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        e: Tensor | None,
        tables: Tables,
        batch: Batch,
        position: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        nodes, seeds = batch.nodes, batch.seeds
        y, x = self.attention.pass_on(x, tables, batch)
        y = self.attention_out_dropout(y, nodes, seeds)
        y = self.attention_norm(self.attention_path(y, nodes, seeds), nodes, add=x)
        if self.local is not None and self.local_norm is not None:
            z, e, x = self._messages(x, e, batch, position)
            z = self.local_path(self.local_dropout(z, nodes, seeds), nodes, seeds)
            y = y + self.local_norm(z, nodes, add=x if self.add_residual else None)
        change = self.path(self.feed_forward(y, batch), nodes, seeds)
        return self.norm(change, nodes, add=y), e

    def _messages(
        self, x: Tensor, e: Tensor | None, batch: Batch, position: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """What the local module makes of x and e, and x.

        A module with a method ``pass_on`` gives x back itself: see :func:`parts.linear`.
        """
        assert self.local is not None
        gated = isinstance(self.local, GatedGCN) and self.local.gate is not None
        given = (x, e, batch, position) if gated else (x, e, batch)
        pass_on = getattr(self.local, "pass_on", None)
        z, e, x = (*self.local(*given), x) if pass_on is None else pass_on(*given)
        return z, e, x
