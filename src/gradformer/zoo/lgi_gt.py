r"""LGI-GT: one local convolution and one transformer layer in turn (IJCAI 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gradformer.errors import ConfigError, choice
from gradformer.graphs.arrays import Schema
from gradformer.graphs.batch import Batch
from gradformer.model.base import ModelConfig, Needs, option, register
from gradformer.model.edge_attention import softmax_to_target, sum_heads
from gradformer.model.encoders import EdgeEncoder, FeatureEncoder, encode_nodes, make_position
from gradformer.model.local import GINE, Local
from gradformer.model.maps import MLP
from gradformer.model.parts import BatchNorm, Dropout
from gradformer.model.segments import from_source, from_target, sum_to_target
from gradformer.zoo.convs import EdgeGCN
from gradformer.zoo.postnorm import PostNormLayer, attend_over
from gradformer.zoo.row_reader import RowReader
from gradformer.zoo.tokens import Tokens, add_tokens

CONVS = ("gin", "gcn", "eela")
MIDDLES = ("residual", "mlp", "none")
SKIPS = ("none", "long", "short")
POOLS = ("add", "mean", "cls")


@dataclass(frozen=True)
class LGIGTConfig(ModelConfig):
    """Options of :class:`LGIGT`; the defaults are the paper's for ZINC.

    A third of their 842 thousand parameters is in the head; ``head_inner=1`` has 554 thousand.
    CLUSTER in the paper: conv gcn, 16 layers, width 48, heads 8, pe_width 16, pe_steps 6 (with
    head_layers 1: 382 thousand). ogbg-molpcba: conv eela, 5 layers, width 384, heads 8, middle
    none, pool cls, norm layer, no encoding.
    """

    layers: int = option(10, "number of blocks")
    width: int = option(64, "channels of a node")
    heads: int = option(4, "attention heads")
    inner: int = option(2, "width inside the feed-forward block over the width", least=1)
    conv: str = option("gin", "local convolution: gin, gcn or eela")
    middle: str = option("residual", "between convolution and attention: residual, mlp or none")
    skip: str = option("short", "skip connection between blocks: none, long or short")
    norm: str = option("batch", "norm of the transformer layers: batch or layer")
    conv_dropout: float = option(0.0, "after the convolution's feed-forward (eela) and in mlp")
    conv_attention_dropout: float = option(0.0, "on the convolution's attention weights (eela)")
    dropout: float = option(0.0, "in the transformer layers")
    attention_dropout: float = option(0.5, "on the attention weights")
    pe: str = option("rwse", "positional encoding: rwse, lap or none")
    pe_steps: int = option(20, "length of the raw encoding", least=1)
    pe_width: int = option(28, "channels of the encoding", least=1)
    pool: str = option("add", "graph readout: add, mean or cls")
    head_layers: int = option(3, "linear layers of the head", least=1)
    head_inner: int = option(8, "width inside the head over the width", least=1)

    def needs(self) -> Needs:
        return Needs.encoded(self.pe, self.pe_steps)


class EELA(nn.Module):
    r"""Edge-enhanced local attention.

    .. math::
        m_{st} = W [x_s, e_{st}] + b, \quad q_t = U x_t + c, \quad
        \alpha_{st} = \operatorname{softmax}_{s \to t}
            \operatorname{LeakyReLU}_{0.2}(q_t \cdot m_{st} / \sqrt{d}), \\
        x'_t = \operatorname{ReLU}(\operatorname{LN}(V \textstyle\sum_s \alpha_{st} m_{st} + v))

    per head, with dropout on α and on x'.
    """

    def __init__(self, width: int, heads: int, dropout: float, attention_dropout: float) -> None:
        super().__init__()
        self.heads, self.attention_dropout = heads, Dropout(attention_dropout)
        self.query, self.message = nn.Linear(width, width), nn.Linear(2 * width, width)
        self.out, self.norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.dropout = Dropout(dropout)

    def attend(self, x: Tensor, e: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Weights [edges, heads] before dropout, messages [edges, heads, d]."""
        edges = batch.edges
        # W [x_s, e] split, so that the node part runs once for each node
        at_node, at_edge = self.message.weight.chunk(2, dim=1)
        message = from_source(x @ at_node.T, edges) + e @ at_edge.T + self.message.bias
        query = self.query(x) * (x.shape[1] // self.heads) ** -0.5
        score = sum_heads(from_target(query, edges) * message, self.heads)
        message = message.unflatten(1, (self.heads, -1))
        return softmax_to_target(nn.functional.leaky_relu(score, 0.2), edges), message

    def forward(self, x: Tensor, e: Tensor | None, batch: Batch) -> Local:
        assert e is not None
        weight, message = self.attend(x, e, batch)
        weight = self.attention_dropout(weight, batch.edges.rows, batch.seeds)
        total = sum_to_target((weight[..., None] * message).flatten(1), batch.edges)
        y = self.norm(self.out(total)).relu()
        return self.dropout(y, batch.nodes, batch.seeds), e


class Middle(nn.Module):
    """Between convolution and attention: Drop – Linear – LN – ReLU – Drop."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.before, self.after = Dropout(dropout), Dropout(dropout)
        self.linear, self.norm = nn.Linear(width, width), nn.LayerNorm(width)

    def forward(self, x: Tensor, batch: Batch) -> Tensor:
        x = self.linear(self.before(x, batch.nodes, batch.seeds))
        return self.after(self.norm(x).relu(), batch.nodes, batch.seeds)


@dataclass(frozen=True, eq=False)
class State:
    """What flows from block to block: node states x and their running sum ``total`` [nodes, width],
    the token of each graph [graphs, width], and where it sits among the rows of the attention.
    """

    x: Tensor
    total: Tensor
    token: Tensor | None = None
    tokens: Tokens | None = None


class Block(nn.Module):
    r"""Local, middle and global step.

    z is the running ``total`` (at first x if ``middle`` is residual, else 0):

    * local: x ← conv(x, W e);
    * middle: ``residual`` x, z ← BN(z + x); ``mlp`` x ← :class:`Middle`; ``none`` nothing;
    * global: x ← :class:`PostNormLayer` over nodes and token;
    * skip: ``none`` z ← x; ``long`` z ← z + x; ``short`` x, z ← z + x.
    """

    def __init__(self, config: LGIGTConfig) -> None:
        super().__init__()
        c = config
        self.skip = c.skip
        self.edge_map = nn.Linear(c.width, c.width) if c.conv != "eela" else None
        self.conv: nn.Module
        if c.conv == "gin":
            self.conv = GINE(c.width, inner=2 * c.width)
        elif c.conv == "gcn":
            self.conv = EdgeGCN(c.width)
        else:
            self.conv = EELA(c.width, c.heads, c.conv_dropout, c.conv_attention_dropout)
        self.middle_norm = BatchNorm(c.width) if c.middle == "residual" else None
        self.middle = Middle(c.width, c.conv_dropout) if c.middle == "mlp" else None
        self.attend = PostNormLayer(
            c.width,
            c.heads,
            c.inner * c.width,
            norm=c.norm,
            dropout=c.dropout,
            attention_dropout=c.attention_dropout,
        )

    def forward(self, state: State, e: Tensor, batch: Batch, rows: Batch) -> State:
        """One block; ``rows`` is the batch with the rows of the attention, tokens included."""
        x, total, token, tokens = state.x, state.total, state.token, state.tokens
        x = self.conv(x, e if self.edge_map is None else self.edge_map(e), batch)[0]
        if self.middle_norm is not None:
            x = total = self.middle_norm(total + x, batch.nodes)
        elif self.middle is not None:
            x = self.middle(x, batch)
        if tokens is None or token is None:
            x = self.attend(x, rows)
        else:
            both = self.attend(tokens.pack(x, token), rows)
            x, token = tokens.of_nodes(both), tokens.of_tokens(both)
        total = x if self.skip == "none" else total + x
        return State(total if self.skip == "short" else x, total, token, tokens)


@register("lgi_gt")
class LGIGT(RowReader):
    """Local convolution and global attention, interleaved.

    With ``pool="cls"`` a learned token joins the attention of each graph, and nothing else.
    """

    Config = LGIGTConfig
    reference = "shuoyinn/LGI-GT ea67ea2"
    config: LGIGTConfig

    def __init__(self, schema: Schema, config: LGIGTConfig | None = None, **options: Any) -> None:
        super().__init__(schema, config, options)
        c = self.config
        for name, known in (("conv", CONVS), ("middle", MIDDLES), ("skip", SKIPS), ("pool", POOLS)):
            choice(name, getattr(c, name), known)
        self.reads = c.pool
        if self.reads == "cls" and schema.level == "node":
            raise ConfigError("pool: cls gives one row for each graph, but targets are on nodes")
        self.position = make_position(c.pe, c.pe_steps, c.pe_width)
        beside = 0 if self.position is None else c.pe_width
        self.node = FeatureEncoder(schema.node, c.width, beside=beside)
        self.edge = EdgeEncoder(schema.edge, c.width)
        self.token = nn.Parameter(torch.randn(1, c.width)) if c.pool == "cls" else None
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.layers))
        inner = [c.head_inner * c.width] * (c.head_layers - 1)
        self.head = MLP(c.width, *inner, schema.outputs)

    def states(self, batch: Batch) -> Tensor:
        """Final states of the nodes, [nodes, width], followed by those of the tokens if any."""
        (x, _), e = encode_nodes(self.node, self.position, batch), self.edge(batch)
        total = x if self.config.middle == "residual" else torch.zeros_like(x)
        if self.token is None:
            state, layout = State(x, total), batch.layout
        else:
            tokens = add_tokens(batch.layout, first=False)
            state = State(x, total, self.token.expand(batch.num_graphs, -1), tokens)
            layout = tokens.layout
        rows = attend_over(batch, layout)
        for block in self.blocks:
            state = block(state, e, batch, rows)
        return state.total if state.token is None else torch.cat([state.total, state.token])
