r"""GT: the graph transformer of Dwivedi and Bresson (2021), attention along the edges.

Per head with d channels, on each edge s → t (no biases in Q, K, V, P):

.. math::
    c_{st} &= \tfrac{1}{\sqrt d}\, K h_s \odot Q h_t \;[\odot\, P e_{st}], \qquad
    a_{st} = \exp(\operatorname{clamp}(\textstyle\sum c_{st}, -5, 5)), \\
    m_t &= \frac{\sum_s a_{st} V h_s}{\sum_s a_{st} \;[+ 10^{-6}]}

(brackets: with edge features only). Nodes, and with edge features the edges from :math:`c_{st}`,
then pass a post-norm block. The last layer updates no edges: nothing would read them.

With ``full_graph`` a node attends to all others of its graph, and all pairs share one learned edge
vector, as in the reference, which drops the bond types there. A node that nothing enters receives a
zero message; the reference gives NaN for it in the variant without edge features.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from gradformer.attention.arguments import check_heads
from gradformer.graphs.arrays import Schema
from gradformer.graphs.batch import Batch
from gradformer.model.base import GraphModel, ModelConfig, Needs, option, register
from gradformer.model.edge_attention import head_products, sum_heads
from gradformer.model.encoders import EdgeEncoder, FeatureEncoder, encode_nodes, make_position
from gradformer.model.heads import Head
from gradformer.model.maps import linear_and_input
from gradformer.model.segments import from_source, from_target
from gradformer.zoo.clamped import Block, clamped_weights, weighted_sums
from gradformer.zoo.complete_graph import complete_edges


@dataclass(frozen=True)
class GTConfig(ModelConfig):
    """The defaults are the paper's for ZINC (0.57 million parameters); PATTERN and CLUSTER take
    ``width`` 80, ``edge_features`` off and 2 and 10 eigenvectors (0.52 million) there.
    """

    layers: int = option(10, "number of layers")
    width: int = option(64, "channels of a node")
    heads: int = option(8, "attention heads")
    lap: int = option(8, "Laplacian eigenvectors added to the input")
    flip_signs: bool = option(True, "random signs of eigenvectors")
    edge_features: bool = option(True, "let edges take part")
    full_graph: bool = option(False, "attend to all nodes of the graph")
    layer_norm: bool = option(False, "layer norm in every block")
    batch_norm: bool = option(True, "batch norm in every block")
    dropout: float = option(0.0, "dropout in every block")
    pool: str = option("mean", "add, mean or max of the nodes")

    def needs(self) -> Needs:
        return Needs(index=None, lap=self.lap)


class GTLayer(nn.Module):
    """h [nodes, width], e [edges, width] or None → the same, one layer on."""

    def __init__(self, config: GTConfig, last: bool) -> None:
        super().__init__()
        width = config.width
        self.heads, self.scale = config.heads, (width // config.heads) ** -0.5
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        norms = config.dropout, config.layer_norm, config.batch_norm
        self.node_block = Block(width, *norms)
        self.edge = nn.Linear(width, width, bias=False) if config.edge_features else None
        self.edge_block = Block(width, *norms) if config.edge_features and not last else None

    def forward(self, h: Tensor, e: Tensor | None, batch: Batch) -> tuple[Tensor, Tensor | None]:
        edges, seeds = batch.edges, batch.seeds
        query, h = linear_and_input(h, self.query)
        key, h = linear_and_input(h, self.key)
        value, h = linear_and_input(h, self.value)
        query = query * self.scale
        if self.edge is None:
            score = head_products(query, key, edges, self.heads)
        else:
            assert e is not None
            factor, e = linear_and_input(e, self.edge)
            products = from_source(key, edges) * from_target(query, edges) * factor
            score = sum_heads(products, self.heads)
            if self.edge_block is not None:
                e = self.edge_block(e, products, edges.rows, seeds)
        sums, total = weighted_sums(clamped_weights(score), value, edges)
        total = total.masked_fill(total == 0.0, 1.0) if self.edge is None else total + 1e-6
        return self.node_block(h, (sums / total).flatten(1), batch.nodes, seeds), e


@register("gt")
class GT(GraphModel):
    """Attention along the edges; see the module's text."""

    Config = GTConfig
    reference = "graphdeeplearning/graphtransformer c9cd493"
    config: GTConfig

    def __init__(self, schema: Schema, config: GTConfig | None = None, **options: Any) -> None:
        super().__init__(schema, config, options)
        c = self.config
        check_heads(c.width, c.heads)
        self.node = FeatureEncoder(schema.node, c.width)
        self.position = make_position("lap", c.lap, c.width, norm=False, flip=c.flip_signs)
        self.edge = None
        if c.edge_features:
            self.edge = EdgeEncoder(() if c.full_graph else schema.edge, c.width)
        self.layers = nn.ModuleList(GTLayer(c, last=i == c.layers - 1) for i in range(c.layers))
        self.head = Head(c.width, schema.outputs, schema.level, "mlp", c.pool)

    def encode(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """What enters the first layer: h [nodes, width], e [edges, width]."""
        h, _ = encode_nodes(self.node, self.position, batch, concat=False)
        return h, None if self.edge is None else self.edge(batch)

    def states(self, batch: Batch) -> Tensor:
        if self.config.full_graph:
            batch = replace(batch, edges=complete_edges(batch.layout), edge_attr=None)
        h, e = self.encode(batch)
        for layer in self.layers:
            h, e = layer(h, e, batch)
        return h
