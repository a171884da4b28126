r"""KDLGT: linear graph transformers by kernel decomposition (Wu et al., IJCAI 2023).

No code of the authors is public, and this file was written without the paper's full text.

What is established: the paper reorders the products of attention so that its cost is linear in the
nodes; it sorts relative position encodings by how they decompose, and builds two models, one by
"multiplication decomposition" (LSAT, after SAT) and one by "addition decomposition" with anchors
(SAPDGT: shortest anchor path distances).

What is our reading, that is all of the following:

* Scores :math:`q_i \cdot k_j / \sqrt d` become positive random features
  (:mod:`gradformer.zoo.linear_attention`), with directions drawn once when the model is made.
* ``positions="product"`` (multiplication): the score gains :math:`p_i \cdot r_j`, linear maps of
  the random-walk encoding, by concatenating p and r to query and key before the features.
* ``positions="anchors"`` (addition): the weight gains the factor
  :math:`e^{c} + \sum_a e^{f(d(i, a))} e^{f(d(a, j))}` over the anchors a of the graph, a soft form
  of the shortest path through an anchor, with f a learned table over hops and c a learned floor
  that keeps the weight of nodes without a common anchor.
* ``hops`` > 0 takes queries and keys from SAT's subtree extractor, as LSAT does by its name.
  LSAT is (``product``, ``hops`` = 2), the default; SAPDGT is (``anchors``, ``hops`` = 0).
* Anchors, norms (post-norm batch norm), feed-forward block, readout and all sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gradformer.attention.arguments import check_heads
from gradformer.errors import choice
from gradformer.graphs.arrays import Schema
from gradformer.graphs.batch import Batch
from gradformer.model.base import GraphModel, ModelConfig, Needs, option, register
from gradformer.model.encoders import EdgeEncoder, FeatureEncoder, PositionEncoder, encode_nodes
from gradformer.model.heads import Head
from gradformer.model.layer import FeedForward
from gradformer.model.maps import linear, linear_and_input
from gradformer.model.parts import BatchNorm, Dropout
from gradformer.structure.codebook import UNREACHABLE
from gradformer.zoo.anchors import ANCHORS
from gradformer.zoo.linear_attention import Places, key_features, linear_attention, query_features
from gradformer.zoo.sat import Extractor, SATConfig

POSITIONS = ("product", "anchors", "none")


@dataclass(frozen=True)
class KDLGTConfig(ModelConfig):
    """Half a million parameters on ZINC."""

    layers: int = option(7, "number of layers")
    width: int = option(64, "channels of a node")
    heads: int = option(4, "attention heads")
    features: int = option(64, "random features of a head", least=1)
    positions: str = option("product", "product, anchors or none")
    hops: int = option(2, "convolutions before query and key")
    position_width: int = option(4, "product: channels for each head", least=1)
    anchors: int = option(8, "anchors of a graph", least=1)
    levels: int = option(32, "anchors: distances told apart", least=1)
    rwse: int = option(20, "steps of the random-walk encoding", least=1)
    dropout: float = option(0.0, "dropout on all branches")
    pool: str = option("add", "add, mean or max of the nodes")

    def needs(self) -> Needs:
        anchors = (ANCHORS.request(count=self.anchors),) if self.positions == "anchors" else ()
        return Needs(index=None, rwse=self.rwse, extras=anchors)


class ProductPositions(nn.Module):
    """p_i · r_j: channels [rows, heads, c] to concatenate to query and to key."""

    def __init__(self, config: KDLGTConfig) -> None:
        super().__init__()
        self.heads = config.heads
        width = config.heads * config.position_width
        self.query, self.key = nn.Linear(config.rwse, width), nn.Linear(config.rwse, width)

    def forward(self, position: Tensor) -> tuple[Tensor, Tensor]:
        size = (len(position), self.heads, -1)
        return linear(position, self.query).view(size), linear(position, self.key).view(size)


class AnchorPositions(nn.Module):
    """u_i · g_j = e^c + Σ_a e^{f(d(i,a)) + f(d(a,j))}: factors [rows, heads, 1 + anchors] each."""

    def __init__(self, config: KDLGTConfig) -> None:
        super().__init__()
        fall = -0.5 * torch.arange(float(config.levels))
        self.table = nn.Parameter(fall.expand(config.heads, -1).clone())  # f, [heads, levels]
        self.floor = nn.Parameter(torch.full((config.heads,), -2.0))  # c

    def forward(self, distance: Tensor) -> tuple[Tensor, Tensor]:
        level = distance.long().clamp(max=self.table.shape[1] - 1)  # [rows, anchors]
        # A one-hot product: the gradient of the table is a sum in a fixed order.
        pick = nn.functional.one_hot(level, self.table.shape[1]).to(self.table.dtype)
        near = torch.einsum("nal,hl->nha", pick, self.table.exp())
        near = torch.where((distance != UNREACHABLE)[:, None, :], near, 0.0)
        floor = self.floor.exp().expand(len(distance), -1)[:, :, None]
        return torch.cat([floor, near], dim=2), torch.cat([torch.ones_like(floor), near], dim=2)


class Where(NamedTuple):
    """What all layers are told of the nodes: their encoding [nodes, rwse], hops to the anchors
    [nodes, anchors] if positions are told by them, and where rows lie."""

    batch: Batch
    places: Places
    position: Tensor
    anchors: Tensor | None


class LinearAttention(nn.Module):
    """Multi-head attention in linear time; queries and keys from z, values from x."""

    directions: Tensor

    def __init__(self, config: KDLGTConfig) -> None:
        super().__init__()
        check_heads(config.width, config.heads)
        width, self.heads = config.width, config.heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.product = ProductPositions(config) if config.positions == "product" else None
        self.anchor = AnchorPositions(config) if config.positions == "anchors" else None
        channels = width // config.heads + (config.position_width if self.product else 0)
        directions = torch.randn(config.heads, config.features, channels)
        self.register_buffer("directions", directions)

    def features(self, z: Tensor, where: Where) -> tuple[Tensor, Tensor]:
        """Features of queries and keys whose products are the weights, [rows, heads, f] each."""
        size = (len(z), self.heads, -1)
        scale = (z.shape[1] // self.heads) ** -0.25
        query, z = linear_and_input(z, self.query)
        x, y = query.view(size) * scale, linear(z, self.key).view(size) * scale
        if self.product is not None:
            left, right = self.product(where.position)
            x, y = torch.cat([x, left], dim=2), torch.cat([y, right], dim=2)
        query = query_features(x, self.directions)
        key = key_features(y, self.directions, where.batch.layout)
        if self.anchor is not None:
            left, right = self.anchor(where.anchors)
            query = (query[..., None] * left[:, :, None, :]).flatten(2)
            key = (key[..., None] * right[:, :, None, :]).flatten(2)
        return query, key

    def forward(self, x: Tensor, z: Tensor, where: Where) -> Tensor:
        query, key = self.features(z, where)
        value = linear(x, self.value).view(len(x), self.heads, -1)
        return linear(linear_attention(query, key, value, where.places).flatten(1), self.out)


class KDLGTLayer(nn.Module):
    """u = BN(x + attention(x)), x' = BN(u + FFN(u))."""

    def __init__(self, config: KDLGTConfig) -> None:
        super().__init__()
        self.extractor = None
        if config.hops:
            like_sat = SATConfig(
                width=config.width, hops=config.hops, gnn="gine", edge_width=config.width
            )
            self.extractor = Extractor(like_sat, edges=True)
        self.attention = LinearAttention(config)
        self.dropout = Dropout(config.dropout)
        self.feed_forward = FeedForward(config.width, config.dropout)
        self.attention_norm, self.norm = BatchNorm(config.width), BatchNorm(config.width)

    def forward(self, x: Tensor, e: Tensor | None, where: Where) -> Tensor:
        rows, seeds = where.batch.nodes, where.batch.seeds
        z = x if self.extractor is None else self.extractor(x, e, where.batch, None)
        y = self.attention(x, z, where)
        u = self.attention_norm(y, rows, seeds, before=self.dropout, add=x)
        change, dropout, u = self.feed_forward.pass_on(u, where.batch)
        return self.norm(change, rows, seeds, before=dropout, add=u)


@register("kdlgt")
class KDLGT(GraphModel):
    """Attention in linear time; see the module's text for what is certain and what is not."""

    Config = KDLGTConfig
    reference = "none: no public code; the linear form is held to its quadratic form"
    config: KDLGTConfig

    def __init__(self, schema: Schema, config: KDLGTConfig | None = None, **options: Any) -> None:
        super().__init__(schema, config, options)
        c = self.config
        choice("positions", c.positions, POSITIONS)
        self.node = FeatureEncoder(schema.node, c.width)
        self.position = PositionEncoder("rwse", c.rwse, c.width)
        self.edge = EdgeEncoder(schema.edge, c.width) if c.hops else None
        self.layers = nn.ModuleList(KDLGTLayer(c) for _ in range(c.layers))
        self.head = Head(c.width, schema.outputs, schema.level, "mlp", c.pool)

    def anchors(self, batch: Batch) -> Tensor | None:
        """Hops to the anchors, [nodes, anchors], if positions are told by them."""
        if self.config.positions != "anchors":
            return None
        count = self.config.anchors
        return ANCHORS.of(batch, count, count=count)

    def states(self, batch: Batch) -> Tensor:
        x, position = encode_nodes(self.node, self.position, batch, concat=False)
        assert position is not None
        e = None if self.edge is None else self.edge.rows(batch)
        where = Where(batch, Places.of(batch.layout), position, self.anchors(batch))
        for layer in self.layers:
            x = layer(x, e, where)
        return x
