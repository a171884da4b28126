r"""SAT: a transformer whose queries and keys come from each node's neighbourhood (ICML 2022)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from gradformer.errors import ConfigError, choice
from gradformer.graphs.arrays import Schema
from gradformer.graphs.batch import Batch, Edges
from gradformer.model.base import ModelConfig, Needs, option, register
from gradformer.model.encoders import EdgeEncoder, FeatureEncoder, encode_nodes, make_position
from gradformer.model.layer import Attention, FeedForward
from gradformer.model.local import GCN, GIN, GINE
from gradformer.model.maps import MLP, linear, linear_and_input
from gradformer.model.parts import BatchNorm, Dropout
from gradformer.model.segments import from_source, in_degree, out_degree, sum_to_target
from gradformer.structure.codebook import UNREACHABLE
from gradformer.zoo.convs import PNA, EdgeGCN, GraphConv
from gradformer.zoo.postnorm import PLAIN, attend_over, make_norm
from gradformer.zoo.row_reader import RowReader
from gradformer.zoo.subgraphs import Subgraphs, neighbourhoods
from gradformer.zoo.tokens import Tokens, add_tokens

_ALL_SCALERS = ("identity", "amplification", "attenuation")
#: aggregators, scalers and towers of the variants of PNA
_PNA: dict[str, tuple[tuple[str, ...], tuple[str, ...], int]] = {
    "pna": (("mean", "min", "max", "std"), _ALL_SCALERS, 4),
    "pna2": (("mean", "sum", "max"), ("identity",), 4),
    "pna3": (("mean", "sum", "max"), ("identity",), 1),
    "pna4": (("mean", "sum", "max"), ("identity",), 8),
    "mpnn": (("sum",), ("identity",), 4),
}
GNNS = ("gcn", "gin", "gine", "graph", "graphsage", *_PNA)
EXTRACTORS = ("subtree", "subgraph")
POOLS = ("mean", "add", "cls")


@dataclass(frozen=True)
class SATConfig(ModelConfig):
    """Options of :class:`SAT`; the defaults are the paper's for ZINC (525 thousand parameters).

    With ``pe_steps=3`` they have 494 thousand on PATTERN and CLUSTER.
    """

    layers: int = option(6, "number of layers")
    width: int = option(64, "channels of a node")
    heads: int = option(8, "attention heads")
    inner: int = option(128, "width inside the feed-forward block", least=1)
    extractor: str = option("subtree", "where queries and keys come from: subtree or subgraph")
    hops: int = option(3, "k: layers of the extractor, and radius of a subgraph")
    gnn: str = option("pna2", "convolution of the extractor: " + ", ".join(GNNS))
    edge_width: int = option(32, "channels of an edge; 0 leaves edge features out")
    norm: str = option("batch", "batch or layer")
    pre_norm: bool = option(False, "normalise before attention and feed-forward, not after")
    degree_scaling: bool = option(True, "scale the attention by 1/√(1 + degree); not with cls")
    dropout: float = option(0.2, "on attention weights, attention and feed-forward")
    pe: str = option("rwse", "positional encoding added to the features: rwse, lap or none")
    pe_steps: int = option(20, "length of the encoding", least=1)
    pool: str = option("mean", "graph readout: mean, add or cls")
    mean_log_degree: float = option(1.1, "pna: mean of log(degree + 1) over the training nodes")

    def needs(self) -> Needs:
        index = "hops" if self.extractor == "subgraph" else None
        return Needs.encoded(self.pe, self.pe_steps, index)


def make_conv(config: SATConfig, edges: bool) -> tuple[nn.Module, int]:
    """A convolution of the extractor, and how wide its edge terms are (0: it takes none)."""
    name, width = choice("gnn", config.gnn, GNNS), config.width
    if name in _PNA:
        aggregators, scalers, towers = _PNA[name]
        block = width // towers if edges else 0
        return PNA(width, aggregators, scalers, towers, edges, config.mean_log_degree), block
    if name == "gcn":
        return (EdgeGCN(width), width) if edges else (GCN(width), 0)
    if name == "gine":
        if not edges:
            raise ConfigError("gnn: gine needs edge features; take gin")
        return GINE(width, learn_eps=True), width
    if name == "gin":
        return GIN(width, learn_eps=True), 0
    return GraphConv(width, mean=name == "graphsage"), 0


class Extractor(nn.Module):
    r"""φ(x): what a node's neighbourhood looks like, [rows, width] → [rows, width].

    Edge states are [edges, edge width], or for ``subtree`` one row that all edges have.

    With K layers x_k = ReLU(conv_k(x_{k-1})):

    * ``subtree``: φ = W BN([x, x_1, …, x_K]) + b on the graph itself;
    * ``subgraph``: the layers run on every node's K-hop subgraph as a graph of its own, whose last
      states are summed to s; φ = W BN([x, s]) + b.
    """

    def __init__(self, config: SATConfig, edges: bool) -> None:
        super().__init__()
        made = [make_conv(config, edges) for _ in range(config.hops)]
        self.convs = nn.ModuleList(conv for conv, _ in made)
        self.edge_maps = nn.ModuleList(
            nn.Linear(config.edge_width, width) for _, width in made if width
        )
        parts = config.hops + 1 if config.extractor == "subtree" else 2
        self.norm = BatchNorm(parts * config.width)
        self.out = nn.Linear(parts * config.width, config.width)

    def forward(
        self, x: Tensor, e: Tensor | None, batch: Batch, subgraphs: Subgraphs | None
    ) -> Tensor:
        if subgraphs is None:
            parts = [x, *self._layers(x, e, batch)]
        else:
            copied = None if e is None else from_source(e, subgraphs.copies)
            inner = replace(batch, edges=subgraphs.inside)
            last = self._layers(from_source(x, subgraphs.members), copied, inner)[-1]
            parts = [x, sum_to_target(last, subgraphs.members)]
        return linear(self.norm(torch.cat(parts, dim=1), batch.nodes), self.out)

    def _layers(self, x: Tensor, e: Tensor | None, batch: Batch) -> list[Tensor]:
        found = []
        for number, conv in enumerate(self.convs):
            term = None
            if e is not None and self.edge_maps:
                edge_map = self.edge_maps[number]
                assert isinstance(edge_map, nn.Linear)
                term, e = linear_and_input(e, edge_map)
                term = term.expand(batch.edges.num_edges, -1)
            x = conv(x, term, batch)[0].relu()
            found.append(x)
        return found


class StructureAttention(Attention):
    """Attention with queries and keys from φ and values from x; its input is [φ | x]."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__(width, heads, dropout)
        del self.qkv
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))

    def joint(self, x: Tensor) -> Tensor:
        structure, states = x.chunk(2, dim=1)
        query, structure = linear_and_input(structure, self.query)
        key, value = linear(structure, self.key), linear(states, self.value)
        return torch.cat([query, key, value], dim=1)


class SATLayer(nn.Module):
    r"""Post-norm by default:

    .. math::
        u = \operatorname{Norm}(x + s\,\text{attention}(\varphi(x), x)), \qquad
        x' = \operatorname{Norm}(u + \text{FFN}(u)),

    s = 1/√(1 + degree) or 1. ``pre_norm`` normalises x and u themselves before they are used.
    """

    def __init__(self, config: SATConfig, edges: bool) -> None:
        super().__init__()
        c = config
        self.pre_norm = c.pre_norm
        self.extractor = Extractor(c, edges)
        self.attention = StructureAttention(c.width, c.heads, c.dropout)
        self.dropout = Dropout(c.dropout)
        self.attention_norm, self.norm = make_norm(c.norm, c.width), make_norm(c.norm, c.width)
        self.feed_forward = FeedForward(c.width, c.dropout, c.inner)

    def forward(
        self,
        x: Tensor,
        e: Tensor | None,
        batch: Batch,
        subgraphs: Subgraphs | None,
        scale: Tensor | None,
    ) -> Tensor:
        rows = batch.nodes
        if self.pre_norm:
            x = self.attention_norm(x, rows)
        structure = self.extractor(x, e, batch, subgraphs)
        y = self.attention(torch.cat([structure, x], dim=1), PLAIN, batch)
        y = y if scale is None else y * scale
        norm = self.norm if self.pre_norm else self.attention_norm
        x = norm(y, rows, batch.seeds, before=self.dropout, add=x)
        if self.pre_norm:
            return x + self.feed_forward(x, batch)
        y, dropout, x = self.feed_forward.pass_on(x, batch)
        return self.norm(y, rows, batch.seeds, before=dropout, add=x)


@register("sat")
class SAT(RowReader):
    """Structure-aware transformer.

    With ``pool="cls"`` a learned token joins the attention of each graph; it has no edges and is
    its own neighbourhood.
    """

    Config = SATConfig
    reference = "BorgwardtLab/SAT a35620d"
    config: SATConfig

    def __init__(self, schema: Schema, config: SATConfig | None = None, **options: Any) -> None:
        super().__init__(schema, config, options)
        c = self.config
        choice("extractor", c.extractor, EXTRACTORS)
        self.reads = choice("pool", c.pool, POOLS)
        if self.reads == "cls" and schema.level == "node":
            raise ConfigError("pool: cls gives one row for each graph, but targets are on nodes")
        self.node = FeatureEncoder(schema.node, c.width, bias=False)
        self.position = make_position(c.pe, c.pe_steps, c.width, norm=False)
        edges = c.edge_width > 0 and schema.edge != ()
        layers = [SATLayer(c, edges) for _ in range(c.layers)]
        self.layers = nn.ModuleList(layers)
        used = any(layer.extractor.edge_maps for layer in layers)
        self.edge = EdgeEncoder(schema.edge, c.edge_width, bias=False) if used else None
        self.token = nn.Parameter(torch.randn(1, c.width)) if c.pool == "cls" else None
        self.head = MLP(c.width, c.width, schema.outputs)

    def states(self, batch: Batch) -> Tensor:
        """Final states of the nodes, [nodes, width], followed by those of the tokens if any."""
        x, _ = encode_nodes(self.node, self.position, batch, concat=False)
        e = None if self.edge is None else self.edge(batch)
        scale = None
        if self.token is None:
            tokens = None
            rows = attend_over(batch, batch.layout)
            if self.config.degree_scaling:
                scale = (out_degree(batch.edges, x.dtype) + 1.0).rsqrt()[:, None]
        else:
            tokens = add_tokens(batch.layout, first=False)
            x = tokens.pack(x, self.token.expand(batch.num_graphs, -1))
            rows = attend_over(batch, tokens.layout)
            rows = replace(rows, edges=with_tokens(batch.edges, tokens))
        subgraphs = self._subgraphs(batch, rows.edges, tokens)
        for layer in self.layers:
            x = layer(x, e, rows, subgraphs, scale)
        return x if tokens is None else tokens.unpack(x)

    def _subgraphs(self, batch: Batch, edges: Edges, tokens: Tokens | None) -> Subgraphs | None:
        if self.config.extractor == "subtree":
            return None
        layout, distance = batch.layout, batch.pair_bytes()
        if tokens is not None:
            layout, distance = tokens.layout, tokens.distance(distance, token=UNREACHABLE)
        return neighbourhoods(layout, edges, distance, self.config.hops)


def with_tokens(edges: Edges, tokens: Tokens) -> Edges:
    """The same edges among the rows of the larger layout; tokens have none."""
    degrees = torch.stack([in_degree(edges), out_degree(edges)], dim=1)
    none = degrees.new_zeros(tokens.nodes.num_graphs, 2)
    ends = nn.functional.pad(tokens.pack(degrees, none).long().cumsum(0).int(), (0, 0, 1, 0))
    return replace(
        edges,
        source=tokens.node_row[edges.source].int(),
        target=tokens.node_row[edges.target].int(),
        target_ptr=ends[:, 0].contiguous(),
        source_ptr=ends[:, 1].contiguous(),
    )
