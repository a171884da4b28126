r"""One Gradformer layer: message passing beside decayed attention, then a feed-forward block."""

from __future__ import annotations

from torch import Tensor, nn

from gradformer.attention import Tables, joint_attention
from gradformer.attention.arguments import check_heads
from gradformer.attention.draws import Site, share
from gradformer.graphs.batch import Batch
from gradformer.model.fused.edge_norm import Unmade, made
from gradformer.model.gated import GatedGCN
from gradformer.model.local import passed_on
from gradformer.model.maps import hooked, linear, linear_and_input, linear_pair
from gradformer.model.parts import BatchNorm, Branch, Dropout, DropPath, norm_pair


class Attention(Site):
    """Multi-head attention over all pairs of a graph, decayed by distance; heads are contiguous."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        check_heads(width, heads)
        self.heads, self.dropout = heads, share(dropout)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def project(self, x: Tensor) -> tuple[Tensor, ...]:
        """q, k, v [nodes, heads, d] of node states x [nodes, width]."""
        return self._heads(self.joint(x)).chunk(3, dim=1)

    def joint(self, x: Tensor) -> Tensor:
        """q, k, v side by side, [nodes, 3 · width]; a subclass may make them in another way, which
        all but :meth:`pass_on` then follow."""
        return linear(x, self.qkv)

    def forward(
        self, x: Tensor, tables: Tables, batch: Batch, bias: Tensor | None = None
    ) -> Tensor:
        return self.attend(self.joint(x), tables, batch, bias)

    def pass_on(self, x: Tensor, tables: Tables, batch: Batch) -> tuple[Tensor, Tensor]:
        """The result, and x: see :func:`linear_and_input`; a hook sees the module called."""
        if hooked(self):
            return self(x, tables, batch), x
        joint, x = linear_and_input(x, self.qkv)
        return self.attend(joint, tables, batch), x

    def _heads(self, joint: Tensor) -> Tensor:
        return joint.unflatten(1, (3 * self.heads, -1))

    def attend(
        self, joint: Tensor, tables: Tables, batch: Batch, bias: Tensor | None = None
    ) -> Tensor:
        """The result, from q, k and v side by side."""
        dropout = self.dropout if self.training else 0.0
        y = joint_attention(
            self._heads(joint),
            batch.layout,
            batch.pair_bytes(),
            tables.mul,
            tables.add,
            bias=bias,
            dropout=dropout,
            seed=self.seed(batch.seeds) if dropout else None,
        )
        return linear(y.flatten(1), self.out)

    def extra_repr(self) -> str:
        return f"heads={self.heads}, dropout={self.dropout}"


class FeedForward(nn.Module):
    """Linear(inner) – ReLU – dropout – Linear(c) – dropout; ``inner`` is 2c if not given."""

    def __init__(self, width: int, dropout: float = 0.0, inner: int | None = None) -> None:
        super().__init__()
        inner = inner or 2 * width
        self.first, self.second = nn.Linear(width, inner), nn.Linear(inner, width)
        self.inner_dropout, self.dropout = Dropout(dropout), Dropout(dropout)

    def forward(self, x: Tensor, batch: Batch) -> Tensor:
        return self.dropout(self._maps(x, batch)[0], batch.nodes, batch.seeds)

    def pass_on(self, x: Tensor, batch: Batch) -> tuple[Tensor, Dropout | None, Tensor]:
        """What enters the last dropout, that dropout, and x: see :func:`linear_and_input`; a
        hook sees the module called, and then no dropout is left."""
        if hooked(self):
            return self(x, batch), None, x
        y, x = self._maps(x, batch)
        return y, self.dropout, x

    def _maps(self, x: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        draw = self.inner_dropout.draw(batch.nodes, batch.seeds)
        y, x = linear_and_input(x, self.first, relu=True, draw=draw)
        return linear(y, self.second), x


class GradformerLayer(nn.Module):
    r"""The layer of the paper, post-norm:

    .. math::
        s = \operatorname{BN}(\text{local}(x, e) + x) + \operatorname{BN}(\text{attention}(x) + x),
        \qquad x' = \operatorname{BN}(s + \text{FFN}(s))

    A local module that carries its own residual (GatedGCN) is given no second one, unless
    ``double_residual`` asks for it, as the authors' code does.

    Args:
        width, heads: channels and attention heads.
        local: a module ``(x, e, batch) -> (x, e)``, or None.
        dropout: after the local module, after the attention and in the feed-forward block.
        attention_dropout: on the attention weights.
        drop_path: stochastic depth on the two branches and the feed-forward block.
        double_residual: add x to the local half also where that has added it.
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
        e: Tensor | Unmade | None,
        tables: Tables,
        batch: Batch,
        position: Tensor | None = None,
        *,
        unmade: bool = False,
    ) -> tuple[Tensor, Tensor | Unmade | None]:
        """Node and edge states; with ``unmade`` the next layer may be left to make the latter."""
        nodes, seeds = batch.nodes, batch.seeds
        y, z, e, x = self._branches(x, e, tables, batch, position)
        y = self.attention_path(y, nodes, seeds)
        attention = Branch(self.attention_norm, y, self.attention_out_dropout)
        if z is None or self.local_norm is None:
            norm, y, dropout, _ = attention
            s = norm(y, nodes, seeds, before=dropout, add=x)
        else:
            z = self.local_path(z, nodes, seeds)
            local = Branch(self.local_norm, z, self.local_dropout, self.add_residual)
            s = norm_pair(attention, local, x, nodes, seeds)
        change, last_dropout, s = self.feed_forward.pass_on(s, batch)
        change = self.path(change, nodes, seeds)
        x = self.norm(change, nodes, seeds, before=last_dropout, add=s)
        return x, e if unmade and not self._forward_hooks else made(e)

    def _branches(
        self, x: Tensor, e: Tensor | Unmade | None, tables: Tables, batch: Batch,
        position: Tensor | None,
    ) -> tuple[Tensor, Tensor | None, Tensor | Unmade | None, Tensor]:  # fmt: skip
        """What the attention makes of x, and the local module of x and e; and x."""
        local = self.local
        if isinstance(local, GatedGCN) and not (hooked(local) or hooked(self.attention)):
            assert e is not None
            joint, terms, x, again = linear_pair(x, self.attention.qkv, local.ADBE)
            y = self.attention.attend(joint, tables, batch)
            return y, *local.spread(terms, again, e, batch, position), x
        y, x = self.attention.pass_on(x, tables, batch)
        if local is None:
            return y, None, e, x
        gate = (position,) if isinstance(local, GatedGCN) else ()
        z, e, x = passed_on(local, x, made(e), batch, *gate)
        return y, z, e, x
