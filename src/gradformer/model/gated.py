"""The gated graph convolution, the local module with edge states; see :mod:`.local` for its face.

Kernels (:mod:`.fused.gated`) or, on a CPU, loops (:mod:`.loops.gated`) stand in for the plain form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from gradformer.attention.availability import runs_kernels
from gradformer.attention.loops.running import runs_loops
from gradformer.graphs.batch import Batch, Edges
from gradformer.model.fused.edge_norm import Unmade, made
from gradformer.model.fused.gated import gated, updated, updates
from gradformer.model.fused.norm import Norms
from gradformer.model.maps import MLP, is_plain, linear_and_input
from gradformer.model.parts import BatchNorm, Dropout
from gradformer.model.segments import from_source, from_target, sum_to_target

if TYPE_CHECKING:
    from gradformer.model.local import Local, PassedOn


class GatedGCN(nn.Module):
    r"""Gated graph convolution with edge states.

    .. math::
        u_{st} &= D x_t + E x_s + C e_{st}, \qquad g_{st} = \sigma(u_{st})\, r_{st} \\
        x'_t &= x_t + \operatorname{ReLU}\Bigl(\operatorname{BN}\Bigl(A x_t +
            \frac{\sum_s g_{st} \odot B x_s}{\sum_s g_{st} + 10^{-6}}\Bigr)\Bigr), \qquad
        e'_{st} = e_{st} + \operatorname{ReLU}(\operatorname{BN}(u_{st}))

    The maps A, D, B, E of the nodes are the rows of one, in this order.

    Args:
        carry_edges: pass e' on; off, every layer sees the first edge states.
        update_edges: compute e' at all (the last layer of a model need not).
        position_gate: r = σ(MLP(‖p_t − p_s‖²)) of an encoding p [nodes, k] given as ``position``;
            otherwise r = 1.
        residual: whether x is added (here; a layer around it may add it once more).
        out: width of x', for a layer without residual and edge update.
    """

    uses_edges = True

    def __init__(
        self,
        width: int,
        *,
        carry_edges: bool = True,
        update_edges: bool = True,
        position_gate: bool = False,
        residual: bool = True,
        dropout: float = 0.0,
        out: int | None = None,
    ) -> None:
        super().__init__()
        out = out or width
        self.ADBE, self.C = nn.Linear(width, 4 * out), nn.Linear(width, out)
        self.norm = BatchNorm(out)
        self.edge_norm = BatchNorm(width) if carry_edges and update_edges else None
        self.gate = MLP(1, width, 1) if position_gate else None
        self.dropout, self.edge_dropout = Dropout(dropout), Dropout(dropout)
        self.residual = residual

    def forward(
        self, x: Tensor, e: Tensor | None, batch: Batch, position: Tensor | None = None
    ) -> Local:
        y, e, _ = self.pass_on(x, e, batch, position)
        return y, e

    def pass_on(
        self, x: Tensor, e: Tensor | None, batch: Batch, position: Tensor | None = None
    ) -> PassedOn:
        assert e is not None
        terms, x = linear_and_input(x, self.ADBE)
        y, new = self.spread(terms, x, e, batch, position)
        return y, made(new), x

    def spread(
        self, terms: Tensor, x: Tensor, e: Tensor | Unmade, batch: Batch,
        position: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | Unmade]:  # fmt: skip
        """x' and e' of x, whose ``terms`` [nodes, 4 out] are made: what ADBE gives.

        e' may come back unmade: the layer that it is given to next makes it.
        """
        edges, seeds = batch.edges, batch.seeds
        r = None
        if self.gate is not None:
            assert position is not None
            apart = from_target(position, edges) - from_source(position, edges)
            r = self.gate(apart.square().sum(1, keepdim=True)).sigmoid()
        h, e = self._messages(terms, e, r, batch)
        plus = x if self.residual else None
        return self.norm(h, batch.nodes, seeds, relu=True, after=self.dropout, plus=plus), e

    def runs_kernels(self, terms: Tensor) -> bool:
        """Whether kernels take ``terms``; their places in it are 32-bit numbers."""
        plain = is_plain(self.C) and self.C.bias is not None
        return plain and runs_kernels(terms) and terms.numel() < 1 << 31

    def _messages(
        self, terms: Tensor, e: Tensor | Unmade, r: Tensor | None, batch: Batch
    ) -> tuple[Tensor, Tensor | Unmade]:
        """What is normalised [nodes, out], and the edge states that go on."""
        edges, seeds = batch.edges, batch.seeds
        norm, drop = self.edge_norm, self.edge_dropout
        states = e.states if isinstance(e, Unmade) else e
        if not self.runs_kernels(terms):
            e = made(e)
            u, h = self._plain(terms, e, r, batch)
        elif norm is not None and norm.runs_kernels(states) and updates(self.C, len(states)):
            after = drop.draw(edges.rows, seeds)
            update = Norms((norm,), (None,), edges.rows, relu=True, after=after)
            new, h = updated(terms, e, self.C, r, edges, update)
            return h, new
        else:
            u, h, e = gated(terms, e, self.C, r, edges)
        if norm is not None:
            e = norm(u, edges.rows, seeds, relu=True, after=drop, plus=e)
        return h, e

    def _plain(
        self, terms: Tensor, e: Tensor, r: Tensor | None, batch: Batch
    ) -> tuple[Tensor, Tensor]:
        """u [edges, out] and what is normalised [nodes, out]."""
        edges = batch.edges
        floats = terms.dtype == e.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
        fits = floats and is_plain(self.C) and self.C.bias is not None
        if fits and runs_loops(terms, e, r):
            from gradformer.model.loops.gated import looped_gates

            learned = self.C.weight, self.C.bias
            return looped_gates(terms, e, *learned, r, edges, batch.layout.node_ptr)
        return plain_gates(terms, self.C(e), r, edges)


def plain_gates(
    terms: Tensor, mapped: Tensor, r: Tensor | None, edges: Edges
) -> tuple[Tensor, Tensor]:
    """u [edges, c] and what is normalised [nodes, c]; ``mapped`` is C e [edges, c]."""
    a, d, b, s = terms.chunk(4, dim=1)
    u = from_target(d, edges) + from_source(s, edges) + mapped
    gate = u.sigmoid() if r is None else u.sigmoid() * r
    total = sum_to_target(gate * from_source(b, edges), edges)
    return u, a + total / (sum_to_target(gate, edges) + 1e-6)
