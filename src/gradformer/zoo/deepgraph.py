r"""DeepGraph (Zhao et al., 2023): tokens for substructures, so that deep graph transformers learn.

The rows of a graph are a class token, its nodes, and sampled substructures
(:mod:`gradformer.zoo.substructures`). A node enters as in Graphormer, a substructure by the
adjacency matrix of its m nodes at most, :math:`W_2 \operatorname{ReLU}(W_1 \operatorname{vec}(A))`,
and all pass a layer norm. Nodes attend to all nodes, nodes and substructures to each other where
the node is a member, the class token to all and all to it, with the bias of
:mod:`gradformer.zoo.path_bias`. Layers are post-norm with DeepNorm's scale on the residual:

.. math::
    x \leftarrow \operatorname{LN}(\alpha x + \operatorname{MHA}(x)), \qquad
    x \leftarrow \operatorname{LN}(\alpha x + W_2 \operatorname{GELU}(W_1 x)), \qquad
    \alpha = (2L)^{1/4}.

The reference samples anew at every access. Here ``samples`` samples of each graph are kept; a
training step draws one of them, evaluation takes the first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from gradformer.attention import Tables
from gradformer.attention.draws import Site, row_keys
from gradformer.errors import ConfigError, InputError, choice
from gradformer.graphs.arrays import Schema
from gradformer.graphs.batch import Batch
from gradformer.model.base import ModelConfig, Needs, option, register
from gradformer.model.layer import Attention
from gradformer.model.maps import MLP, linear, linear_and_input
from gradformer.model.parts import Dropout
from gradformer.structure.codebook import UNREACHABLE
from gradformer.zoo.all_pairs import Pairs
from gradformer.zoo.graphormer import NodeInput, small_weights
from gradformer.zoo.path_bias import FIRST_EDGE, DistanceBias, PathBias
from gradformer.zoo.row_reader import RowReader
from gradformer.zoo.substructures import KINDS, SUBSTRUCTURES
from gradformer.zoo.tokens import Tokens, add_tokens

BLOCKED = 253
"""Distance byte of pairs that do not attend; nodes so far apart or farther share byte 252."""


@dataclass(frozen=True)
class DeepGraphConfig(ModelConfig):
    """The defaults are for ZINC (0.5 million parameters).

    The reference's settings for PATTERN and CLUSTER: substructures walks, members 10, redundancy 2
    (and hops 0, as their edges have no features).
    """

    layers: int = option(12, "number of layers")
    width: int = option(80, "channels of a row")
    heads: int = option(8, "attention heads")
    inner: int = option(80, "width inside the feed-forward block", least=1)
    hops: int = option(5, "hops of a path whose edges are looked at; 0: no edge term")
    degrees: int = option(64, "rows of the degree tables", least=1)
    substructures: str = option("shapes", "candidates: shapes or walks")
    members: int = option(17, "most nodes of a substructure", least=1)
    redundancy: int = option(6, "times that each node is covered", least=1)
    samples: int = option(4, "samples kept of each graph", least=1)
    deepnorm: bool = option(True, "DeepNorm's residual scale and start")
    dropout: float = option(0.1, "dropout of input and both halves")
    attention_dropout: float = option(0.1, "dropout of the weights")
    inner_dropout: float = option(0.0, "dropout inside the blocks")
    reference_quirks: bool = option(False, "with the reference's bugs: outputs depend on the batch")

    def sampling(self) -> dict[str, Any]:
        """Options of :func:`gradformer.zoo.substructures.substructures`."""
        return {
            "kind": self.substructures,
            "members": self.members,
            "redundancy": self.redundancy,
            "samples": self.samples,
        }

    def needs(self) -> Needs:
        paths = (FIRST_EDGE.request(),) if self.hops else ()
        return Needs(index="hops", extras=(*paths, SUBSTRUCTURES.request(**self.sampling())))


class DeepGraphLayer(nn.Module):
    """Post-norm attention and feed-forward block on rows [rows, width]."""

    def __init__(self, config: DeepGraphConfig) -> None:
        super().__init__()
        c = config
        self.attention = Attention(c.width, c.heads, c.attention_dropout)
        self.attention_norm = nn.LayerNorm(c.width)
        self.first, self.second = nn.Linear(c.width, c.inner), nn.Linear(c.inner, c.width)
        self.norm = nn.LayerNorm(c.width)
        self.attention_out_dropout, self.dropout = Dropout(c.dropout), Dropout(c.dropout)
        self.inner_dropout = Dropout(c.inner_dropout)
        self.alpha = (2 * c.layers) ** 0.25 if c.deepnorm else 1.0

    def forward(self, x: Tensor, tables: Tables, batch: Batch, bias: Tensor | None) -> Tensor:
        draw = batch.nodes, batch.seeds
        y = self.attention_out_dropout(self.attention(x, tables, batch, bias), *draw)
        x = self.attention_norm(self.alpha * x + y)
        inner, x = linear_and_input(x, self.first)
        y = linear(self.inner_dropout(gelu(inner), *draw), self.second)
        return self.norm(self.alpha * x + self.dropout(y, *draw))


class ChooseSample(Site):
    """One of the samples [graphs, samples, S, m] for each graph, [graphs, S, m]."""

    def forward(self, samples: Tensor, graph_id: Tensor, seeds: Tensor | None) -> Tensor:
        if not self.training or samples.shape[1] == 1:
            return samples[:, 0]
        keys = row_keys(self.seed(seeds), graph_id, 0, torch.zeros_like(graph_id))
        number = (keys & 0x7FFFFFFF).long() % samples.shape[1]
        return samples[torch.arange(len(samples), device=samples.device), number]


@dataclass(frozen=True, eq=False)
class AllRows:
    """The rows of all graphs: members [graphs, S, m] of the substructures (−1: none), nodes with
    substructures after them, those with the class token before them, and the batch with all."""

    members: Tensor
    pieces: Tokens
    tokens: Tokens
    batch: Batch


@register("deepgraph")
class DeepGraph(RowReader):
    """A deep transformer over nodes and sampled substructures; see the module's text.

    With ``reference_quirks`` three errors of the reference are reproduced: the first substructure
    of each of the smallest graphs of a batch starts as zero; empty places of paths add to the
    bias, up to the longest path of the batch; one degree is read for both tables.
    """

    Config = DeepGraphConfig
    reference = "zhao-ht/DeepGraph 78aadb6"
    config: DeepGraphConfig

    def __init__(
        self, schema: Schema, config: DeepGraphConfig | None = None, **options: Any
    ) -> None:
        super().__init__(schema, config, options)
        c = self.config
        if not 0 <= c.hops < BLOCKED:
            raise ConfigError(f"hops: got {c.hops}, expected 0 to {BLOCKED - 1}")
        choice("substructures", c.substructures, KINDS)
        quirks = c.reference_quirks
        self.input = NodeInput(schema, c.width, c.degrees, same_degree=quirks)
        self.token = nn.Parameter(0.02 * torch.randn(1, c.width))
        self.piece = MLP(c.members**2, c.width, c.width)
        self.choose = ChooseSample()
        self.distance = DistanceBias(c.heads, BLOCKED, unreachable=True)
        self.paths = None
        if c.hops and (schema.edge or quirks):
            self.paths = PathBias(schema.edge, c.heads, c.hops, padding=quirks)
        self.input_norm = nn.LayerNorm(c.width)
        self.input_dropout = Dropout(c.dropout)
        self.layers = nn.ModuleList(DeepGraphLayer(c) for _ in range(c.layers))
        self.hidden = nn.Linear(c.width, c.width)
        self.norm = nn.LayerNorm(c.width)
        self.head = nn.Linear(c.width, schema.outputs, bias=False)
        self.head_bias = nn.Parameter(torch.zeros(1))
        small_weights(self, 0.02)
        if c.deepnorm:
            self._shrink((8 * c.layers) ** -0.25)

    @torch.no_grad()
    def _shrink(self, factor: float) -> None:
        """DeepNorm's start: values, output maps and feed-forward blocks are scaled down."""
        for layer in self.layers:
            assert isinstance(layer, DeepGraphLayer)
            for shrunk in (layer.attention.out, layer.first, layer.second):
                for parameter in shrunk.parameters():
                    parameter.mul_(factor)
            for parameter in layer.attention.qkv.parameters():
                parameter.chunk(3)[2].mul_(factor)

    def rows(self, batch: Batch) -> AllRows:
        """All rows of the batch, and which pairs of them attend (as distance bytes)."""
        layout = batch.layout
        members = self.choose(self._samples(batch), layout.graph_id, batch.seeds).long()
        sizes = layout.node_ptr.diff().long()
        members = torch.where(members < sizes[:, None, None], members, -1)
        counts = (members[:, :, 0] >= 0).sum(1)
        pieces = add_tokens(layout, members.shape[1], counts=counts, first=False)
        tokens = add_tokens(pieces.layout, first=True)
        bytes_ = tokens.distance(self._bytes(batch, pieces, members))
        wide = replace(batch, layout=tokens.layout, distance=bytes_)
        return AllRows(members, pieces, tokens, wide)

    def _samples(self, batch: Batch) -> Tensor:
        """From the store, or computed here; [graphs, samples, S, m]."""
        c = self.config
        found = batch.extras.get(SUBSTRUCTURES.name)
        if found is None:
            options = c.sampling() | ({} if self.training else {"samples": 1})
            found = SUBSTRUCTURES.compute(batch, **options)
        if found.shape[-1] != c.members:
            raise InputError(
                f"substructures: the batch has up to {found.shape[-1]} nodes in one, the model "
                f"was built for members={c.members}"
            )
        return found

    def _bytes(self, batch: Batch, pieces: Tokens, members: Tensor) -> Tensor:
        """Bytes of all pairs of nodes and pieces: hops, unreachable for members, or blocked."""
        layout, pairs = batch.layout, pieces.pairs
        holds = torch.zeros(
            members.shape[0] * members.shape[1], layout.largest + 1, device=layout.device
        )
        last = torch.where(members >= 0, members, layout.largest).flatten(0, 1)
        holds = holds.scatter(1, last, 1.0) > 0  # [graphs · S, largest + 1]

        ends = torch.stack([pieces.source[pairs.query], pieces.source[pairs.key]])
        node, piece = ends.min(0).values, ends.max(0).values - layout.capacity
        mixed = (node < layout.capacity) & (piece >= 0)
        place = layout.rows.index[node.clamp(max=layout.capacity - 1)].long()
        member = mixed & holds[piece.clamp(min=0), place.clamp(0, layout.largest)]
        bytes_ = pieces.distance(batch.pair_bytes(), token=BLOCKED)
        far = pieces.among_nodes & (bytes_ >= BLOCKED) & (bytes_ < UNREACHABLE)
        bytes_ = torch.where(far, BLOCKED - 1, bytes_)
        return torch.where(member, UNREACHABLE, bytes_).to(torch.uint8)

    def adjacency(self, batch: Batch, members: Tensor) -> Tensor:
        """Adjacency matrices of the substructures, nodes ascending: [graphs · S, m²] of 0 and 1."""
        layout = batch.layout
        size = layout.node_ptr.diff().long()[:, None, None, None]
        row, column = members[:, :, :, None], members[:, :, None, :]
        real = (row >= 0) & (column >= 0)
        place = layout.pair_ptr[:, None, None, None] + row * size + column
        joined = real & (batch.pair_bytes()[torch.where(real, place, 0)] == 1)
        return joined.flatten(2).flatten(0, 1).to(self.token.dtype)

    def enter(self, batch: Batch, rows: AllRows) -> Tensor:
        """What enters the first layer, [rows, width]."""
        piece = self.piece(self.adjacency(batch, rows.members))
        if self.config.reference_quirks:
            piece = piece * ~_first_of_smallest(batch, rows.members)[:, None]
        h = rows.pieces.pack(self.input(batch), piece)
        h = rows.tokens.pack(h, self.token.expand(batch.num_graphs, -1))
        return self.input_dropout(self.input_norm(h), rows.batch.nodes, batch.seeds)

    def bias(self, batch: Batch, rows: AllRows) -> Tensor | None:
        """The edge term of all pairs of rows, [pairs, heads]."""
        if self.paths is None:
            return None
        pairs = Pairs.of(batch.layout)
        other = self.paths.without_path(batch, pairs)
        packed = rows.pieces.pack_pairs(self.paths(batch, pairs), pairs, other)
        return rows.tokens.pack_pairs(packed, rows.pieces.pairs)

    def states(self, batch: Batch) -> Tensor:
        """Final states of the nodes, [nodes, width]; at graph level then of the tokens."""
        rows = self.rows(batch)
        h = self.enter(batch, rows)
        tables, bias = self.distance(), self.bias(batch, rows)
        for layer in self.layers:
            h = layer(h, tables, rows.batch, bias)
        nodes = rows.pieces.of_nodes(rows.tokens.of_nodes(h))
        if self.schema.level == "node":
            return nodes
        return torch.cat([nodes, rows.tokens.of_tokens(h)])

    def embedding(self, states: Tensor, batch: Batch) -> Tensor:
        return self.norm(gelu(self.hidden(super().embedding(states, batch))))

    def readout(self, states: Tensor, batch: Batch) -> Tensor:
        return super().readout(states, batch) + self.head_bias


def _first_of_smallest(batch: Batch, members: Tensor) -> Tensor:
    """The first substructure of each graph that is the smallest with any, [graphs · S] bool."""
    sizes = batch.layout.node_ptr.diff()
    some = members[:, :, 0] >= 0
    smallest = torch.where(some[:, 0], sizes, sizes.max()).min()
    first = torch.arange(members.shape[1], device=members.device) == 0
    return (some & first & (sizes == smallest)[:, None]).flatten()
