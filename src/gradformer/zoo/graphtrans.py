r"""GraphTrans: a message-passing network, then a transformer over its nodes (NeurIPS 2021)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from gradformer.attention.layout import Layout, pointer_of
from gradformer.errors import choice
from gradformer.graphs.arrays import Schema
from gradformer.graphs.batch import Batch
from gradformer.model.base import ModelConfig, option, register
from gradformer.model.encoders import EdgeEncoder, FeatureEncoder
from gradformer.model.local import GINE
from gradformer.model.maps import NormMLP
from gradformer.model.parts import BatchNorm, Dropout
from gradformer.model.segments import pool, spread
from gradformer.zoo.convs import EdgeGCN
from gradformer.zoo.postnorm import PostNormLayer, attend_over
from gradformer.zoo.row_reader import RowReader
from gradformer.zoo.tokens import add_tokens

GNNS = ("gcn", "gin")
JOINS = ("last", "cat", "sum")


@dataclass(frozen=True)
class GraphTransConfig(ModelConfig):
    """Options of :class:`GraphTrans`; the defaults give half a million parameters on ZINC."""

    layers: int = option(3, "transformer layers")
    width: int = option(128, "channels of the transformer")
    heads: int = option(4, "attention heads")
    inner: int = option(256, "width inside the feed-forward block", least=1)
    dropout: float = option(0.1, "in the transformer layers and on the attention weights")
    norm_input: bool = option(True, "layer norm before the first transformer layer")
    max_nodes: int = option(1000, "graph tasks: last nodes that the transformer sees", least=1)
    gnn: str = option("gcn", "convolution: gcn or gin")
    gnn_layers: int = option(4, "convolutions", least=1)
    gnn_width: int = option(128, "channels of the message-passing network", least=1)
    gnn_dropout: float = option(0.1, "after each convolution")
    gnn_residual: bool = option(False, "residual around each convolution")
    virtual_node: bool = option(False, "a node joined to all others of its graph")
    join: str = option("last", "what the transformer gets: last, cat (first and last) or sum")
    reference_quirks: bool = option(False, "sum: leave out the last layer, as the reference does")


class GNNLayer(nn.Module):
    """x' = Drop([ReLU] BN(conv(x, e))) [+ x]; e is an encoding of the layer's own."""

    def __init__(self, config: GraphTransConfig, schema: Schema, last: bool) -> None:
        super().__init__()
        c = config
        self.last, self.residual = last, c.gnn_residual
        self.edge = None if schema.edge == () else EdgeEncoder(schema.edge, c.gnn_width)
        if c.gnn == "gcn":
            self.conv: nn.Module = EdgeGCN(c.gnn_width)
        else:
            self.conv = GINE(c.gnn_width, 2 * c.gnn_width, learn_eps=True, norm=True)
        self.norm = BatchNorm(c.gnn_width)
        self.dropout = Dropout(c.gnn_dropout)

    def forward(self, x: Tensor, batch: Batch) -> Tensor:
        e = None if self.edge is None else self.edge(batch)
        y = self.norm(self.conv(x, e, batch)[0], batch.nodes)
        y = self.dropout(y if self.last else y.relu(), batch.nodes, batch.seeds)
        return x + y if self.residual else y


class VirtualNode(nn.Module):
    """v' = Drop(ReLU(BN(NormMLP(v + Σ x)))) [+ v], sums over the nodes of each graph."""

    def __init__(self, config: GraphTransConfig) -> None:
        super().__init__()
        self.residual = config.gnn_residual
        width = config.gnn_width
        self.mlp, self.norm = NormMLP(width, 2 * width), BatchNorm(width)
        self.dropout = Dropout(config.gnn_dropout)

    def forward(self, v: Tensor, x: Tensor, batch: Batch) -> Tensor:
        rows = batch.layout.graph_rows
        y = self.mlp(v + pool(x, batch.layout.node_ptr, "add"), rows)
        y = self.dropout(self.norm(y, rows).relu(), rows, batch.seeds)
        return v + y if self.residual else y


class GNN(nn.Module):
    """The message-passing half: batch → node states [nodes, gnn_width], twice that for ``cat``.

    With a virtual node its vector v is added to what enters each layer. ``join`` is ``last``, or
    ``cat`` of what enters the first layer and what leaves the last one, or the ``sum`` of what
    enters each layer and what leaves the last one.
    """

    def __init__(self, config: GraphTransConfig, schema: Schema) -> None:
        super().__init__()
        c = config
        self.join, self.quirks = c.join, c.reference_quirks
        self.node = FeatureEncoder(schema.node, c.gnn_width)
        self.layers = nn.ModuleList(
            GNNLayer(c, schema, last=number == c.gnn_layers - 1) for number in range(c.gnn_layers)
        )
        self.virtual = nn.Parameter(torch.zeros(1, c.gnn_width)) if c.virtual_node else None
        updates = c.gnn_layers - 1 if c.virtual_node else 0
        self.virtual_nodes = nn.ModuleList(VirtualNode(c) for _ in range(updates))

    def forward(self, batch: Batch) -> Tensor:
        x = batch.nodes.zero_padding(self.node(batch))
        v = None if self.virtual is None else self.virtual.expand(batch.num_graphs, -1)
        entered = []
        for number, layer in enumerate(self.layers):
            if v is not None:
                x = x + spread(v, batch.layout.node_ptr, len(x))
                if number < len(self.virtual_nodes):
                    v = self.virtual_nodes[number](v, x, batch)
            entered.append(x)
            x = layer(x, batch)
        if self.join == "cat":
            return torch.cat([entered[0], x], dim=1)
        if self.join == "sum":
            return torch.stack(entered if self.quirks else [*entered, x]).sum(0)
        return x


@register("graphtrans")
class GraphTrans(RowReader):
    """Convolutions for what is near, a transformer for what is far.

    A learned token joins the attention of each graph and is its embedding. Node tasks, which the
    paper has none of, are read off the nodes, without token and without truncation.
    """

    Config = GraphTransConfig
    reference = "ucbrise/graphtrans 31f5874"
    config: GraphTransConfig

    def __init__(
        self, schema: Schema, config: GraphTransConfig | None = None, **options: Any
    ) -> None:
        super().__init__(schema, config, options)
        c = self.config
        choice("gnn", c.gnn, GNNS)
        self.gnn = GNN(c, schema)
        joined = 2 * c.gnn_width if choice("join", c.join, JOINS) == "cat" else c.gnn_width
        self.enter = nn.Linear(joined, c.width)
        self.token = nn.Parameter(torch.randn(1, c.width)) if schema.level == "graph" else None
        self.norm_input = nn.LayerNorm(c.width) if c.norm_input else None
        self.layers = nn.ModuleList(
            PostNormLayer(
                c.width,
                c.heads,
                c.inner,
                norm="layer",
                dropout=c.dropout,
                attention_dropout=c.dropout,
            )
            for _ in range(c.layers)
        )
        self.norm = nn.LayerNorm(c.width)
        self.head = nn.Linear(c.width, schema.outputs)

    def states(self, batch: Batch) -> Tensor:
        """Final states of the nodes, [nodes, width]; in graph tasks then of the tokens.

        Nodes that the transformer does not see have zeros.
        """
        x = self.enter(self.gnn(batch))
        if self.token is None:
            return self._transform(x, attend_over(batch, batch.layout))
        layout, rows = last_nodes(batch.layout, self.config.max_nodes)
        tokens = add_tokens(layout, first=False)
        kept = x if rows is None else x.index_select(0, rows)
        x = tokens.pack(kept, self.token.expand(batch.num_graphs, -1))
        x = self._transform(x, attend_over(batch, tokens.layout))
        if rows is None:
            return tokens.unpack(x)
        seen = torch.where(layout.graph < layout.num_graphs, rows, batch.num_nodes).long()
        nodes = x.new_zeros(batch.num_nodes + 1, x.shape[1]).index_copy(0, seen, tokens.of_nodes(x))
        return torch.cat([nodes[:-1], tokens.of_tokens(x)])

    def _transform(self, x: Tensor, batch: Batch) -> Tensor:
        if self.norm_input is not None:
            x = self.norm_input(x)
        for layer in self.layers:
            x = layer(x, batch)
        return self.norm(x)


def last_nodes(layout: Layout, most: int) -> tuple[Layout, Tensor | None]:
    """The layout of the last ``most`` nodes of each graph, and their rows; None if all stay.

    The smaller layout keeps its capacity, as padding, so that nothing is read back from a device.
    """
    if layout.largest <= most:
        return layout, None
    sizes = layout.node_ptr.diff()
    kept = sizes.clamp(max=most)
    node_ptr = pointer_of(kept).int()
    smaller = replace(layout, node_ptr=node_ptr, largest=most, padded=True)
    rows = smaller.rows.index + (layout.node_ptr[:-1] + sizes - kept)[smaller.slot]
    return smaller, torch.where(smaller.graph < layout.num_graphs, rows, 0)
