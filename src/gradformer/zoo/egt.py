r"""EGT (Hussain et al., 2022): a transformer with a channel for every ordered pair of nodes.

Nodes h [Σn, D] and pairs e [Σn², De] are both updated, pre-norm. Per head, from ĥ = LN(h) and
ê = LN(e):

.. math::
    S_{ij} &= \operatorname{clip}\Bigl(\frac{q_i \cdot k_j}{\sqrt d}\Bigr) + W_E\, \hat e_{ij},
    \qquad g_{ij} = \sigma(W_G\, \hat e_{ij}), \qquad
    A_{ij} = g_{ij} \operatorname{softmax}_j(S_{ij}), \\
    o_i &= \log\bigl(1 + \textstyle\sum_j g_{ij}\bigr) \sum_j A_{ij} v_j, \qquad
    h \leftarrow h + W_o o, \qquad e \leftarrow e + W_S S,

and a feed-forward block with ELU on each of the two. The logarithm is optional. The last layer
leaves e as it is: nothing would read it. Nodes enter as their embeddings plus, with ``svd``, a
linear map of the singular vectors of the adjacency matrix; pairs as an embedding of their distance
plus that of their edge.

Virtual nodes are learned rows that join each graph; what they have learned is then the readout.
The gates come after the softmax and S is needed by itself, so the attention is written out here,
as message passing over all pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import elu

from gradformer.attention.arguments import check_heads
from gradformer.errors import ConfigError
from gradformer.graphs.arrays import Schema
from gradformer.graphs.batch import Batch, Edges
from gradformer.model.base import ModelConfig, Needs, option, register
from gradformer.model.edge_attention import head_products, softmax_to_target, weighted_sum
from gradformer.model.encoders import EdgeEncoder, FeatureEncoder, embedded
from gradformer.model.maps import linear
from gradformer.model.parts import Dropout
from gradformer.model.segments import sum_to_target
from gradformer.zoo.all_pairs import Pairs
from gradformer.zoo.row_reader import RowReader
from gradformer.zoo.singular import SINGULAR, SingularEncoder
from gradformer.zoo.tokens import Tokens, add_tokens


@dataclass(frozen=True)
class EGTConfig(ModelConfig):
    """The defaults have 0.51 million parameters on ZINC.

    The reference's settings for large molecular sets: 18 to 30 layers, width 640 to 768,
    pair_width 64, 32 heads, inner 1, scale_degree, 4 virtual nodes, attention_dropout 0.3.
    """

    layers: int = option(10, "number of layers")
    width: int = option(64, "channels of a node")
    pair_width: int = option(64, "channels of a pair", least=1)
    heads: int = option(8, "attention heads")
    hops: int = option(16, "distances that are told apart")
    svd: int = option(8, "singular vectors added to the input")
    flip_signs: bool = option(True, "random signs of singular vectors")
    inner: float = option(2.0, "inner width of node blocks over width")
    pair_inner: float = option(2.0, "inner width of pair blocks over pair_width")
    clip_low: float = option(-5.0, "least product of query and key")
    clip_high: float = option(5.0, "largest product of query and key")
    scale_products: bool = option(True, "divide products by √d")
    scale_degree: bool = option(False, "scale by the sum of gates")
    pair_updates: bool = option(True, "update the pairs in each layer")
    virtual_nodes: int = option(0, "virtual nodes in each graph")
    head: tuple[float, ...] = option((0.5, 0.25), "hidden widths of the head over width")
    dropout: float = option(0.0, "dropout after each half of a layer")
    attention_dropout: float = option(0.0, "dropout of the weights")
    reference_quirks: bool = option(False, "virtual nodes see padding: outputs depend on the batch")

    def needs(self) -> Needs:
        svd = (SINGULAR.request(count=self.svd),) if self.svd else ()
        return Needs(index="hops", extras=svd)


@dataclass(frozen=True, eq=False)
class Room:
    """Where attention happens: the nodes, virtual nodes, and all their pairs as edges.

    ``tokens`` are the rows with virtual nodes, ``filler`` the rows before with the reference's
    padding. Shape: blocked [pairs, 1] bool, pairs without attention (None: none).
    """

    batch: Batch
    pairs: Edges
    tokens: Tokens | None = None
    filler: Tokens | None = None
    blocked: Tensor | None = None


class EGTLayer(nn.Module):
    """h [rows, D], e [pairs, De] → the same, one layer on; ``last`` leaves e alone."""

    def __init__(self, config: EGTConfig, last: bool) -> None:
        super().__init__()
        c, width, narrow = config, config.width, config.pair_width
        check_heads(width, c.heads)
        self.heads, self.scale_degree = c.heads, c.scale_degree
        self.clip = (c.clip_low, c.clip_high)
        self.scale = (width // c.heads) ** -0.5 if c.scale_products else 1.0
        self.norm, self.pair_norm = nn.LayerNorm(width), nn.LayerNorm(narrow)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.bias, self.gate = nn.Linear(narrow, c.heads), nn.Linear(narrow, c.heads)
        self.attention_dropout = Dropout(c.attention_dropout)
        self.out_dropout = Dropout(c.dropout)
        self.block = Block(width, round(c.inner * width), c.dropout)
        self.pair_out, self.pair_block = None, None
        if not last:
            self.pair_out = nn.Linear(c.heads, narrow)
            self.pair_out_dropout = Dropout(c.dropout)
            self.pair_block = Block(narrow, round(c.pair_inner * narrow), c.dropout)

    def weigh(self, h: Tensor, e: Tensor, room: Room) -> tuple[Tensor, Tensor, Tensor]:
        """S, softmax of S, and gates of normed h and e: [pairs, heads] each."""
        pairs = room.pairs
        query, key = linear(h, self.query) * self.scale, linear(h, self.key)
        products = head_products(query, key, pairs, self.heads)
        score = products.clamp(*self.clip) + self.bias(e)
        gate = self.gate(e).sigmoid()
        if room.blocked is None:
            return score, softmax_to_target(score, pairs), gate
        seen = score.masked_fill(room.blocked, -torch.inf)
        return score, softmax_to_target(seen, pairs), gate.masked_fill(room.blocked, 0.0)

    def forward(self, h: Tensor, e: Tensor, room: Room) -> tuple[Tensor, Tensor]:
        rows, pairs, seeds = room.batch.nodes, room.pairs, room.batch.seeds
        normed = self.norm(h)
        score, weight, gate = self.weigh(normed, self.pair_norm(e), room)
        weight = self.attention_dropout(weight * gate, pairs.rows, seeds)
        y = weighted_sum(weight, linear(normed, self.value), pairs)
        if self.scale_degree:
            degree = sum_to_target(gate, pairs).log1p()
            if room.tokens is not None:
                degree = torch.where(room.tokens.is_token, 1.0, degree)
            y = y * degree.repeat_interleave(y.shape[1] // self.heads, dim=1)
        h = h + self.out_dropout(linear(y, self.out), rows, seeds)
        h = self.block(h, rows, seeds)
        if self.pair_out is not None and self.pair_block is not None:
            e = e + self.pair_out_dropout(self.pair_out(score), pairs.rows, seeds)
            e = self.pair_block(e, pairs.rows, seeds)
        return h, e


class Block(nn.Module):
    """x + Drop(W₂ ELU(W₁ LN(x)))."""

    def __init__(self, width: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.first, self.second = nn.Linear(width, inner), nn.Linear(inner, width)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, *draw: Any) -> Tensor:
        inner = elu(linear(self.norm(x), self.first))
        change: Tensor = self.dropout(linear(inner, self.second), *draw)
        return x + change


@register("egt")
class EGT(RowReader):
    """A transformer with states for pairs as well as nodes; see the module's text.

    The reference pads all graphs of a batch to one size, and its virtual nodes attend to the
    padding; ``reference_quirks`` reproduces that.
    """

    Config = EGTConfig
    reference = "shamim-hussain/egt_pytorch 9e66956"
    config: EGTConfig

    def __init__(self, schema: Schema, config: EGTConfig | None = None, **options: Any) -> None:
        super().__init__(schema, config, options)
        c = self.config
        if c.clip_low >= c.clip_high:
            raise ConfigError(
                f"clip_low: got {c.clip_low}, expected less than clip_high, {c.clip_high}"
            )
        self.node = FeatureEncoder(schema.node, c.width)
        self.position = SingularEncoder(c.svd, c.width, c.flip_signs) if c.svd else None
        self.distance = nn.Embedding(c.hops + 2, c.pair_width)
        self.edge = EdgeEncoder(schema.edge, c.pair_width) if schema.edge else None
        self.reads = "cls" if c.virtual_nodes else "mean"
        self.virtual: nn.Parameter | None = None
        self.virtual_pair: nn.Parameter | None = None
        if c.virtual_nodes:
            self.virtual = nn.Parameter(torch.randn(c.virtual_nodes, c.width))
            self.virtual_pair = nn.Parameter(torch.randn(c.virtual_nodes, c.pair_width))
        self.layers = nn.ModuleList(
            EGTLayer(c, last=i == c.layers - 1 or not c.pair_updates) for i in range(c.layers)
        )
        self.norm = nn.LayerNorm(c.width)
        inputs = c.width * (c.virtual_nodes if c.virtual_nodes and schema.level == "graph" else 1)
        widths = [inputs, *(round(ratio * c.width) for ratio in c.head), schema.outputs]
        self.head = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    def nodes(self, batch: Batch) -> Tensor:
        """Nodes as they enter the first layer, [Σn, D]."""
        h: Tensor = self.node(batch)
        if self.position is None:
            return h
        count = self.config.svd
        y: Tensor = self.position(SINGULAR.of(batch, count, 2, count=count), batch)
        return h + y

    def node_pairs(self, batch: Batch, pairs: Pairs) -> Tensor:
        """Pairs of nodes as they enter the first layer: distance plus edge features, [Σn², De]."""
        hops = batch.pair_bytes()[pairs.place].long().clamp(max=self.config.hops + 1)
        e = embedded(hops[:, None], [self.distance.weight], pairs.rows.mask, exact=True)
        if self.edge is None:
            return e
        edges = batch.edges
        place = pairs.ptr[edges.source] + batch.nodes.index[edges.target]
        if edges.rows.mask is not None:
            place = torch.where(edges.rows.mask, place, len(e))
        linked = e.new_zeros(len(e) + 1, e.shape[1])
        return e + linked.index_put((place,), self.edge(batch).to(e.dtype), accumulate=True)[:-1]

    def enter(self, batch: Batch) -> tuple[Tensor, Tensor, Room]:
        """h and e of the first layer, and where they live."""
        pairs = Pairs.of(batch.layout)
        h, e = self.nodes(batch), self.node_pairs(batch, pairs)
        if self.virtual is None or self.virtual_pair is None:
            return h, e, Room(batch, pairs.as_edges(batch.layout))
        layout, filler, blocked = batch.layout, None, None
        if self.config.reference_quirks:
            counts = layout.largest - layout.node_ptr.diff()
            filler = add_tokens(layout, layout.largest, counts=counts, first=False)
            blank = h.new_zeros(h.shape[1]) if self.position is None else self.position.linear.bias
            h = filler.pack(h, blank.expand(len(filler.token_row), -1))
            e = filler.pack_pairs(e, pairs, self.distance.weight[0])
            layout, pairs = filler.layout, filler.pairs
        tokens = add_tokens(layout, len(self.virtual), first=True)
        if filler is not None:
            empty = tokens.pack(
                filler.is_token, filler.is_token.new_zeros(len(tokens.token_row), 1)
            )
            blocked = _either(empty > 0, tokens) & ~_either(tokens.is_token, tokens)
        wide = replace(batch, layout=tokens.layout)
        room = Room(wide, tokens.pairs.as_edges(tokens.layout), tokens, filler, blocked)
        h = tokens.pack(h, self.virtual.repeat(layout.num_graphs, 1))
        return h, tokens.pack_pairs(e, pairs, self._virtual_pairs(tokens)), room

    def _virtual_pairs(self, tokens: Tokens) -> Tensor:
        """Pairs with virtual nodes: the mean of what its virtual ends have learned, [pairs, De]."""
        assert self.virtual_pair is not None
        nodes = self.virtual_pair.new_zeros(tokens.nodes.capacity, self.virtual_pair.shape[1])
        learned = tokens.pack(nodes, self.virtual_pair.repeat(tokens.nodes.num_graphs, 1))
        (query, key), virtual = (tokens.pairs.query, tokens.pairs.key), tokens.is_token
        ends = virtual[query].int() + virtual[key].int()
        return (learned[query] + learned[key]) / ends.clamp(min=1)

    def states(self, batch: Batch) -> Tensor:
        """Final states of the nodes, [nodes, width]; at graph level then of virtual nodes."""
        h, e, room = self.enter(batch)
        for layer in self.layers:
            h, e = layer(h, e, room)
        return self.unpack(self.norm(h), room)

    def unpack(self, rows: Tensor, room: Room) -> Tensor:
        """States from the rows of the layers: in each graph virtual nodes, then nodes."""
        if room.tokens is None:
            return rows
        nodes = room.tokens.of_nodes(rows)
        nodes = nodes if room.filler is None else room.filler.of_nodes(nodes)
        level = self.schema.level
        return nodes if level == "node" else torch.cat([nodes, room.tokens.of_tokens(rows)])

    def embedding(self, states: Tensor, batch: Batch) -> Tensor:
        read = super().embedding(states, batch)
        return read if self.schema.level == "node" else read.view(batch.num_graphs, -1)

    def readout(self, states: Tensor, batch: Batch) -> Tensor:
        y: Tensor = self.head[0](self.embedding(states, batch))
        for layer in self.head[1:]:
            y = layer(elu(y))
        return y


def _either(flags: Tensor, tokens: Tokens) -> Tensor:
    """Pairs with a flagged end, [pairs, 1] bool."""
    return flags[tokens.pairs.query] | flags[tokens.pairs.key]
