r"""SAN: the spectral attention network of Kreuzer et al. (2021), with node-wise learned encodings.

Each node reads the m smallest eigenpairs of the normalised Laplacian as a sequence: token k is
:math:`A [v_k(i), \lambda_k] + b`, with node i's entries :math:`v_1(i) \dots v_m(i)` scaled to unit
length. A small transformer works on the tokens; their sum joins the node's embedding.

Attention runs over the real edges and, with weights of its own, over all other pairs of the graph.
Per head with d channels,

.. math::
    c_{st} &= \tfrac{1}{\sqrt d}\, K h_s \odot Q h_t \odot E e_{st} \quad\text{(real)}, \qquad
    c_{st} = \tfrac{1}{\sqrt d}\, K_2 h_s \odot Q_2 h_t \odot E_2 f \quad\text{(other)}, \\
    w_{st} &= \exp(\operatorname{clamp}(\textstyle\sum c_{st}, -5, 5)) \cdot
        \begin{cases} 1 / (1 + \gamma) & \text{real} \\ \gamma / (1 + \gamma) & \text{other}
        \end{cases}, \qquad
    m_t = \frac{\sum_s w_{st} V h_s}{\sum_s w_{st} + 10^{-6}},

f one learned vector. Both kinds share one normaliser, as in the reference code (the paper writes
two softmaxes). With ``full_graph`` off only real edges count, without γ. Nodes then pass the
post-norm block of GT; edge states stay as they are.

Signs of eigenvectors are drawn anew in training, as the paper has it; the reference draws them for
ZINC and the SBM data but does not apply them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gradformer.attention.arguments import check_heads
from gradformer.errors import ConfigError
from gradformer.graphs.arrays import Schema
from gradformer.graphs.batch import Batch, Edges
from gradformer.model.base import GraphModel, ModelConfig, Needs, option, register
from gradformer.model.edge_attention import head_products, sum_heads
from gradformer.model.encoders import EdgeEncoder, FeatureEncoder, SignFlip
from gradformer.model.heads import Head
from gradformer.model.maps import linear, linear_and_input
from gradformer.model.parts import Dropout
from gradformer.model.segments import from_source, from_target
from gradformer.zoo.clamped import Block, clamped_weights, weighted_sums
from gradformer.zoo.complete_graph import complete_edges, unlinked
from gradformer.zoo.eigenpairs import NORMALISED, real_slots


@dataclass(frozen=True)
class SANConfig(ModelConfig):
    """Half a million parameters on ZINC."""

    layers: int = option(6, "number of layers")
    width: int = option(64, "channels of a node")
    heads: int = option(8, "attention heads")
    gamma: float = option(1e-5, "weight of pairs that no edge joins")
    full_graph: bool = option(True, "attend to all nodes of the graph")
    eigenpairs: int = option(10, "eigenpairs that a node reads", least=1)
    lpe_width: int = option(16, "channels of the learned encoding", least=1)
    lpe_heads: int = option(4, "heads over the eigenpairs")
    lpe_layers: int = option(3, "layers over the eigenpairs")
    lpe_inner: int = option(2048, "inner width over the eigenpairs", least=1)
    lpe_dropout: float = option(0.1, "dropout over the eigenpairs")
    flip_signs: bool = option(True, "random signs of eigenvectors")
    layer_norm: bool = option(False, "layer norm in every block")
    batch_norm: bool = option(True, "batch norm in every block")
    dropout: float = option(0.0, "dropout in every block")
    pool: str = option("mean", "add, mean or max of the nodes")

    def needs(self) -> Needs:
        return Needs(index=None, extras=(NORMALISED.request(count=self.eigenpairs),))


class SpectrumLayer(nn.Module):
    """Post-norm transformer layer on sequences [nodes, count, width]; absent tokens are no keys."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.drops = nn.ModuleList(Dropout(dropout) for _ in range(4))

    def drop(self, number: int, x: Tensor, batch: Batch) -> Tensor:
        y: Tensor = self.drops[number](x.flatten(1), batch.nodes, batch.seeds)
        return y.view_as(x)

    def forward(self, x: Tensor, real: Tensor, batch: Batch) -> Tensor:
        nodes, count, width = x.shape
        size = (nodes, count, 3, self.heads, width // self.heads)
        q, k, v = self.qkv(x).view(size).permute(2, 0, 3, 1, 4)  # [nodes, heads, count, d] each
        score = q @ k.transpose(2, 3) * (width // self.heads) ** -0.5
        weight = score.masked_fill(~real[:, None, None, :], -torch.inf).softmax(dim=-1)
        mixed = (self.drop(0, weight, batch) @ v).transpose(1, 2).reshape(x.shape)
        x = self.first_norm(x + self.drop(1, self.out(mixed), batch))
        inner = self.drop(2, self.up(x).relu(), batch)
        return self.second_norm(x + self.drop(3, self.down(inner), batch))


class SpectrumEncoder(nn.Module):
    """Eigenpairs [nodes, count, 2] → learned encoding [nodes, width]."""

    def __init__(self, config: SANConfig) -> None:
        super().__init__()
        width = config.lpe_width
        check_heads(width, config.lpe_heads)
        self.flip = SignFlip() if config.flip_signs else None
        self.token = nn.Linear(2, width)
        self.layers = nn.ModuleList(
            SpectrumLayer(width, config.lpe_heads, config.lpe_inner, config.lpe_dropout)
            for _ in range(config.lpe_layers)
        )

    def forward(self, pairs: Tensor, batch: Batch) -> Tensor:
        vectors, values = pairs.to(self.token.weight.dtype).unbind(2)
        vectors = nn.functional.normalize(vectors, dim=1)
        if self.flip is not None:
            vectors = self.flip(vectors, batch.nodes, batch.seeds)
        real = real_slots(batch.layout, vectors.shape[1])
        x = self.token(torch.stack([vectors, values], dim=2))
        for layer in self.layers:
            x = layer(x, real, batch)
        return torch.where(real[:, :, None], x, 0.0).sum(dim=1)


class SANLayer(nn.Module):
    """h [nodes, width] → the same, one layer on; e [edges, width], or one row for all edges, and f
    [width] are read only."""

    def __init__(self, config: SANConfig) -> None:
        super().__init__()
        width = config.width
        self.heads, self.scale = config.heads, (width // config.heads) ** -0.5
        self.real_share = 1.0 / (1.0 + config.gamma) if config.full_graph else 1.0
        self.query, self.key, self.edge, self.value = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )
        if config.full_graph:
            self.other_query, self.other_key, self.other_edge = (
                nn.Linear(width, width, bias=False) for _ in range(3)
            )
        self.block = Block(width, config.dropout, config.layer_norm, config.batch_norm)

    def forward(
        self, h: Tensor, e: Tensor, f: Tensor | None, batch: Batch, others: Others | None
    ) -> Tensor:
        value, h = linear_and_input(h, self.value)
        query, h = linear_and_input(h, self.query)
        key, h = linear_and_input(h, self.key)
        score = self.scores(query, key, linear(e, self.edge), batch.edges)
        weight = clamped_weights(score) * self.real_share
        sums, total = weighted_sums(weight, value, batch.edges)
        if others is not None:
            query, h = linear_and_input(h, self.other_query)
            key, h = linear_and_input(h, self.other_key)
            score = self.scores(query, key, self.other_edge(f)[None], others.pairs)
            weight = clamped_weights(score) * others.share
            more_sums, more_total = weighted_sums(weight, value, others.pairs)
            sums, total = sums + more_sums, total + more_total
        message = (sums / (total + 1e-6)).flatten(1)
        return self.block(h, message, batch.nodes, batch.seeds)

    def scores(self, query: Tensor, key: Tensor, e: Tensor, edges: Edges) -> Tensor:
        """Σ c of each head, [edges, heads]; e [edges, width] or one row for all edges."""
        query = query * self.scale
        if len(e) == 1:
            return head_products(query * e, key, edges, self.heads)
        return sum_heads(from_source(key, edges) * from_target(query, edges) * e, self.heads)


@dataclass(frozen=True, eq=False)
class Others:
    """All pairs of the batch, and the share of each [pairs, 1]: zero where an edge joins it."""

    pairs: Edges
    share: Tensor


@register("san")
class SAN(GraphModel):
    """Attention with learned encodings of the spectrum; see the module's text."""

    Config = SANConfig
    reference = "DevinKreuzer/SAN 6e38329"
    config: SANConfig

    def __init__(self, schema: Schema, config: SANConfig | None = None, **options: Any) -> None:
        super().__init__(schema, config, options)
        c = self.config
        check_heads(c.width, c.heads)
        if c.lpe_width >= c.width:
            raise ConfigError(f"lpe_width: {c.lpe_width} leaves no room for features in {c.width}")
        if c.gamma < 0.0:
            raise ConfigError(f"gamma: got {c.gamma}, expected a weight of at least 0")
        self.node = FeatureEncoder(schema.node, c.width - c.lpe_width)
        self.spectrum = SpectrumEncoder(c)
        self.edge = EdgeEncoder(schema.edge, c.width)
        self.other = nn.Parameter(torch.randn(c.width)) if c.full_graph else None
        self.layers = nn.ModuleList(SANLayer(c) for _ in range(c.layers))
        self.head = Head(c.width, schema.outputs, schema.level, "mlp", c.pool)

    def encode(self, batch: Batch) -> Tensor:
        """What enters the first layer, [nodes, width]."""
        count = self.config.eigenpairs
        pairs = NORMALISED.of(batch, count, 2, count=count)
        return torch.cat([self.node(batch), self.spectrum(pairs, batch)], dim=1)

    def others(self, batch: Batch) -> Others | None:
        """The pairs that no edge joins, if they attend."""
        if self.other is None:
            return None
        pairs, gamma = complete_edges(batch.layout), self.config.gamma
        apart = unlinked(batch.edges, pairs, batch.layout)[:, None]
        return Others(pairs, apart.to(self.other.dtype) * (gamma / (1.0 + gamma)))

    def states(self, batch: Batch) -> Tensor:
        h, e, others = self.encode(batch), self.edge.rows(batch), self.others(batch)
        for layer in self.layers:
            h = layer(h, e, self.other, batch, others)
        return h
