r"""Graphormer (Ying et al., 2021): a transformer whose scores know distances and the edges between.

A learned token joins each graph. All layers are pre-norm and share one bias
(:mod:`gradformer.zoo.path_bias`):

.. math::
    h_i &= \textstyle\sum_f A_f[x_{if}] + D^-[\deg^-_i] + D^+[\deg^+_i], \\
    h &\leftarrow h + W_o \operatorname{softmax}\bigl(q k^\top / \sqrt d + b\bigr) v, \qquad
    h \leftarrow h + W_2 \operatorname{GELU}(W_1 \operatorname{LN}(h)),

with q, k, v from LN(h). The token's row, after a last layer norm and a linear map, is the
prediction for a graph; at node level, which the reference does not have, the nodes' rows are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from gradformer.attention import Tables
from gradformer.errors import ConfigError
from gradformer.graphs.arrays import Schema
from gradformer.graphs.batch import Batch
from gradformer.model.base import ModelConfig, Needs, option, register
from gradformer.model.encoders import FeatureEncoder, embedded
from gradformer.model.layer import Attention
from gradformer.model.maps import linear
from gradformer.model.parts import Dropout
from gradformer.model.segments import in_degree, out_degree
from gradformer.zoo.all_pairs import Pairs
from gradformer.zoo.path_bias import FIRST_EDGE, DistanceBias, PathBias
from gradformer.zoo.row_reader import RowReader
from gradformer.zoo.tokens import TOKEN, Tokens, add_tokens


@dataclass(frozen=True)
class GraphormerConfig(ModelConfig):
    """The defaults are the reference's "slim" setting for ZINC (0.48 million parameters)."""

    layers: int = option(12, "number of layers")
    width: int = option(80, "channels of a node")
    heads: int = option(8, "attention heads")
    inner: int = option(80, "width inside the feed-forward block", least=1)
    hops: int = option(20, "hops of a path whose edges are looked at; 0: no edge term")
    edge_term: str = option("paths", "edges: paths or adjacent")
    reach: int = option(20, "nodes as far or farther do not attend; 0: all do")
    degrees: int = option(64, "rows of the degree tables", least=1)
    dropout: float = option(0.1, "dropout after both halves of a layer")
    attention_dropout: float = option(0.1, "dropout of the weights")
    input_dropout: float = option(0.0, "dropout of the input")
    reference_quirks: bool = option(False, "with the reference's bugs: outputs depend on the batch")

    def needs(self) -> Needs:
        return Needs(index="hops", extras=(FIRST_EDGE.request(),) if self.hops else ())


class NodeInput(nn.Module):
    """Sum of the embeddings of all features, of the in-degree and of the out-degree.

    The references look up both degree tables with the out-degree (``same_degree``).
    """

    def __init__(self, schema: Schema, width: int, degrees: int, same_degree: bool) -> None:
        super().__init__()
        self.features = FeatureEncoder(schema.node, width) if schema.node else None
        self.in_degree = nn.Embedding(degrees, width)
        self.out_degree = nn.Embedding(degrees, width)
        self.same_degree = same_degree

    def forward(self, batch: Batch) -> Tensor:
        leaving = out_degree(batch.edges, torch.int64)
        entering = leaving if self.same_degree else in_degree(batch.edges, torch.int64)
        tables = [self.in_degree.weight, self.out_degree.weight]
        degrees = torch.stack([entering, leaving], dim=1).clamp(max=len(tables[0]) - 1)
        h = embedded(degrees, tables, batch.nodes.mask, exact=True)
        return h if self.features is None else h + self.features(batch)


class GraphormerLayer(nn.Module):
    """Pre-norm attention and feed-forward block on rows [rows, width]."""

    def __init__(self, config: GraphormerConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention = Attention(config.width, config.heads, config.attention_dropout)
        self.norm = nn.LayerNorm(config.width)
        self.first = nn.Linear(config.width, config.inner)
        self.second = nn.Linear(config.inner, config.width)
        self.attention_out_dropout = Dropout(config.dropout)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, tables: Tables, batch: Batch, bias: Tensor | None) -> Tensor:
        y: Tensor = self.attention(self.attention_norm(x), tables, batch, bias)
        x = x + self.attention_out_dropout(y, batch.nodes, batch.seeds)
        y = linear(gelu(linear(self.norm(x), self.first)), self.second)
        x = x + self.dropout(y, batch.nodes, batch.seeds)
        return x


@register("graphormer")
class Graphormer(RowReader):
    """Attention biased by distances and by the edges between; see the module's text.

    With ``reference_quirks`` three errors of the reference are reproduced: empty places of paths
    add to the bias, up to the longest path of the batch; paths lose node 0 inside them; one degree
    is read for both tables.
    """

    Config = GraphormerConfig
    reference = "microsoft/Graphormer v1.0 e77e6ed"
    config: GraphormerConfig

    def __init__(
        self, schema: Schema, config: GraphormerConfig | None = None, **options: Any
    ) -> None:
        super().__init__(schema, config, options)
        c = self.config
        if not 0 <= c.hops < TOKEN:
            raise ConfigError(f"hops: got {c.hops}, expected 0 to {TOKEN - 1}")
        quirks = c.reference_quirks
        self.input = NodeInput(schema, c.width, c.degrees, same_degree=quirks)
        self.token = nn.Parameter(0.02 * torch.randn(1, c.width))
        rows = min(c.reach or TOKEN, TOKEN)
        self.distance = DistanceBias(c.heads, rows, unreachable=c.reach == 0)
        self.paths = None
        if schema.edge and c.hops:
            skip_first = quirks and c.edge_term == "paths"
            self.paths = PathBias(
                schema.edge,
                c.heads,
                c.hops,
                term=c.edge_term,
                padding=quirks,
                skip_first=skip_first,
            )
        self.input_dropout = Dropout(c.input_dropout)
        self.layers = nn.ModuleList(GraphormerLayer(c) for _ in range(c.layers))
        self.norm = nn.LayerNorm(c.width)
        self.head = nn.Linear(c.width, schema.outputs)
        small_weights(self, 0.02 / math.sqrt(c.layers))

    def wide(self, batch: Batch) -> tuple[Tokens, Batch]:
        """The token rows, and the batch with them: layout and distance bytes."""
        tokens = add_tokens(batch.layout, first=True)
        bytes_ = tokens.distance(batch.pair_bytes())
        return tokens, replace(batch, layout=tokens.layout, distance=bytes_)

    def bias(self, batch: Batch, tokens: Tokens) -> Tensor | None:
        """The edge term of all pairs, [Σ(n+1)², heads]."""
        if self.paths is None:
            return None
        pairs = Pairs.of(batch.layout)
        return tokens.pack_pairs(self.paths(batch, pairs), pairs)

    def states(self, batch: Batch) -> Tensor:
        """Final states of the nodes, [nodes, width]; at graph level then of the tokens."""
        tokens, wide = self.wide(batch)
        h = tokens.pack(self.input(batch), self.token.expand(batch.num_graphs, -1))
        h = self.input_dropout(h, wide.nodes, batch.seeds)
        tables, bias = self.distance(), self.bias(batch, tokens)
        for layer in self.layers:
            h = layer(h, tables, wide, bias)
        h = self.norm(h)
        return tokens.unpack(h) if self.schema.level == "graph" else tokens.of_nodes(h)


def small_weights(model: nn.Module, spread: float) -> None:
    """Linear weights from N(0, spread²), no biases; embeddings from N(0, 0.02²)."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=spread)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
