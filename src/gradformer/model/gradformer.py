"""The Gradformer model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gradformer.attention import Decay, Tables, decay_attention
from gradformer.attention.operation import without_autocast
from gradformer.errors import ConfigError, InputError, choice
from gradformer.graphs.arrays import Schema
from gradformer.graphs.batch import Batch, check_features
from gradformer.model.base import GraphModel, ModelConfig, Needs, option, register
from gradformer.model.encoders import (
    DEGREES,
    ENCODINGS,
    EdgeEncoder,
    FeatureEncoder,
    encode_nodes,
    make_position,
)
from gradformer.model.heads import Head
from gradformer.model.layer import Attention, GradformerLayer
from gradformer.model.local import make_local
from gradformer.structure.codebook import FIXED, Codebook


@dataclass(frozen=True)
class GradformerConfig(ModelConfig):
    """Options of :class:`Gradformer`; the defaults are the paper's for ZINC."""

    layers: int = option(10, "number of layers")
    width: int = option(64, "channels of a node")
    heads: int = option(4, "attention heads")
    local: str = option("gine", "gin, gine, gatedgcn, gcn, gat, none, or a PyG convolution")
    dropout: float = option(0.0, "after the local module, the attention, in the feed-forward")
    attention_dropout: float = option(0.5, "on the attention weights")
    input_dropout: float = option(0.0, "on float features of the nodes")
    drop_path: float = option(0.0, "stochastic depth")
    pe: str = option("rwse", "positional encoding: rwse, lap or none")
    pe_steps: int = option(20, "length of the raw encoding")
    pe_width: int = option(28, "channels of the encoding when it is concatenated")
    pe_join: str = option("concat", "concat or add")
    pe_norm: bool = option(True, "batch norm on the raw encoding")
    flip_signs: bool = option(True, "draw the signs of lap eigenvectors in every training step")
    degree: str = option("onehot", "graphs without features: onehot or normalised degree")
    pool: str = option("add", "graph readout: add, mean or max")
    head: str = option("mlp", "linear or mlp")
    decay: float = option(0.6, "λ")
    start: float = option(2.0, "initial start point sp of the decay")
    spread: float = option(0.0, "heads start evenly over start ± spread")
    slope: float = option(0.0, "slope of the exponent below the start point")
    decay_shape: str = option("exponential", "exponential, linear or free")
    decay_on: str = option("logit", "the decay acts on the logit or the weight")
    decay_end: float = option(10.0, "initial end point of the linear decay")
    learn_decay: bool = option(False, "learn λ per head")
    profile: bool = option(False, "add a learned profile over distances to the score")
    per_layer: bool = option(False, "start points of its own for each layer")
    unreachable: str = option("far", "far, full or blocked")
    index: str = option("hops", "hops, curvature or similarity")
    equal_projections: bool = option(False, "Q, K, V, O of a layer start as copies of one another")
    double_residual: bool = option(False, "GatedGCN: add x twice, as the authors' code does")
    carry_edges: bool = option(True, "GatedGCN: pass updated edge states on")
    position_gate: bool = option(False, "GatedGCN: gate by the distance of encodings")

    def needs(self) -> Needs:
        return Needs.encoded(self.pe, self.pe_steps, self.index)

    def make_decay(self, codebook: Codebook) -> Decay:
        """The decay of all layers as it begins."""
        return Decay(
            self.heads,
            decay=self.decay,
            start=self.start,
            spread=self.spread,
            sets=self.layers if self.per_layer else 1,
            shape=self.decay_shape,
            on=self.decay_on,
            slope=self.slope,
            unreachable=self.unreachable,
            learn_decay=self.learn_decay,
            profile=self.profile,
            end=self.decay_end,
            codebook=codebook,
        )


@dataclass(frozen=True)
class LayerAttention:
    """Attention of one layer: raw score s, decay M, weight; [Σ n², heads] each, row = query."""

    score: Tensor
    decay: Tensor
    weight: Tensor


@register("gradformer")
class Gradformer(GraphModel):
    """Graph transformer with exponential decay of attention over graph distance (IJCAI 2024).

    Args:
        schema: what the inputs and targets look like.
        config: a :class:`GradformerConfig`; or its fields as keyword options.
        codebook: ψ of each distance byte; if not given, that of the transform ``AddDistance``.

    >>> from gradformer.graphs.arrays import Schema
    >>> schema = Schema(node=(28,), edge=(4,), level="graph", task="regression", outputs=1)
    >>> model = Gradformer(schema, layers=2, width=32)
    >>> from torch_geometric.data import Data
    >>> graph = Data(x=torch.tensor([[0], [5]]), edge_index=torch.tensor([[0, 1], [1, 0]]),
    ...              edge_attr=torch.tensor([[1], [1]]), rwse=torch.zeros(2, 20))
    >>> model(graph).shape
    torch.Size([1, 1])
    """

    Config = GradformerConfig
    reference = "LiuChuang0059/Gradformer 7337390"
    config: GradformerConfig

    def __init__(
        self,
        schema: Schema,
        config: GradformerConfig | None = None,
        codebook: Codebook | None = None,
        **options: Any,
    ) -> None:
        super().__init__(schema, config, options)
        c = self.config
        self.codebook = FIXED[choice("index", c.index, FIXED)] if codebook is None else codebook
        choice("degree", c.degree, DEGREES)
        concat = choice("pe_join", c.pe_join, ("concat", "add")) == "concat"
        pe_width = c.pe_width if concat else c.width
        if choice("pe", c.pe, ENCODINGS) == "none":
            pe_width = 0
        elif min(pe_width, c.pe_steps) < 1:
            raise ConfigError(f"pe_width, pe_steps: got {pe_width} and {c.pe_steps}, below 1")
        beside = pe_width if concat else 0
        self.node = FeatureEncoder(
            schema.node, c.width, c.degree, dropout=c.input_dropout, beside=beside
        )
        encoding = c.pe, c.pe_steps, pe_width
        self.position = make_position(*encoding, norm=c.pe_norm, flip=c.flip_signs)
        if c.position_gate and (self.position is None or c.local != "gatedgcn"):
            raise ConfigError("position_gate: needs local=gatedgcn and a positional encoding")
        self.decay = c.make_decay(self.codebook)
        locals_ = [self._local(number) for number in range(c.layers)]
        uses_edges = any(getattr(module, "uses_edges", False) for module in locals_)
        self.edge = EdgeEncoder(schema.edge, c.width) if uses_edges else None
        self.layers = nn.ModuleList(
            GradformerLayer(
                c.width,
                c.heads,
                module,
                dropout=c.dropout,
                attention_dropout=c.attention_dropout,
                drop_path=c.drop_path,
                double_residual=c.double_residual,
            )
            for module in locals_
        )
        if c.equal_projections:
            for layer in self.layers:
                _copy_projection(layer.attention)  # type: ignore[arg-type]
        self.head = Head(c.width, schema.outputs, schema.level, c.head, c.pool)

    def _local(self, number: int) -> nn.Module | None:
        c = self.config
        return make_local(
            c.local,
            c.width,
            carry_edges=c.carry_edges,
            update_edges=number < c.layers - 1,
            position_gate=c.position_gate,
            dropout=0.0 if c.double_residual else c.dropout,
        )

    def prepare(self, data: Batch | Any) -> Batch:
        if isinstance(data, Batch):
            return super().prepare(data)
        index, pe = self.config.index, self.config.pe
        if index != "hops" and getattr(data, "distance", None) is None:
            usual = np.array_equal(self.decay.psi.cpu(), np.float32(FIXED[index].values))
            how = repr(index) if usual else f"{index!r}, codebook=run.codebook"
            raise InputError(f"distance: absent; add it with the transform AddDistance({how})")
        batch = super().prepare(data)
        if pe in batch.encodings:
            check_features(pe, batch.encodings[pe], batch.num_nodes)
        return batch

    def encode(self, batch: Batch) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Node states, edge states and normalised encoding that enter the first layer."""
        concat = self.config.pe_join == "concat"
        x, position = encode_nodes(self.node, self.position, batch, concat)
        return x, None if self.edge is None else self.edge(batch), position

    def walk(self, batch: Batch) -> list[tuple[Tensor, Tables]]:
        """Node states that enter each layer, with its tables; the last are the final states."""
        x, e, position = self.encode(batch)
        sets = self.decay(len(self.layers))
        seen = []
        for layer, tables in zip(self.layers, sets):
            seen.append((x, tables))
            x, e = layer(x, e, tables, batch, position, unmade=True)
        return [*seen, (x, sets[-1])]

    def states(self, batch: Batch) -> Tensor:
        return self.walk(batch)[-1][0]

    @torch.no_grad()
    def attention(self, data: Batch | Any) -> list[LayerAttention]:
        """Per layer the raw score, decay and weight of every pair and head, in eval mode."""
        training = [module for module in self.modules() if module.training]  # norms may be frozen
        self.eval()
        try:
            return self._attention(self.prepare(data))
        finally:
            for module in training:
                module.training = True

    def _attention(self, batch: Batch) -> list[LayerAttention]:
        found, where = [], (batch.layout, batch.pair_bytes())
        for (x, tables), layer in zip(self.walk(batch), self.layers):
            assert isinstance(layer, GradformerLayer)
            q, k, v = layer.attention.project(x)
            _, weight = decay_attention(
                q, k, v, *where, tables.mul, tables.add, return_weights=True
            )
            score, decay = _pairs(q, k, tables, batch)
            found.append(LayerAttention(score, decay, weight))
        return found

    @classmethod
    def from_official(cls, state: Mapping[str, Tensor], config: Mapping[str, Any]) -> Gradformer:
        """A checkpoint of the authors' code: its ``state_dict`` and its arguments."""
        from gradformer.model.official import load_official

        return load_official(state, config)


@torch.no_grad()
def _copy_projection(attention: Attention) -> None:
    """Every map of the attention begins as its output map, as in the authors' code."""
    source = attention.out
    for module in attention.children():
        assert isinstance(module, nn.Linear)
        for rows in range(0, module.out_features, source.out_features):
            module.weight[rows : rows + source.out_features] = source.weight
            module.bias[rows : rows + source.out_features] = source.bias


def _pairs(q: Tensor, k: Tensor, tables: Tables, batch: Batch) -> tuple[Tensor, Tensor]:
    """Raw score and decay M of every pair, [Σ n², heads] each, in the type that engines sum in."""
    heads, kind = q.shape[1], torch.promote_types(q.dtype, torch.float32)
    score = q.new_zeros(int(batch.layout.packed_ptr[-1]), heads, dtype=kind)
    decay = torch.ones_like(score)
    factor = _factor(tables)
    for group in batch.layout.groups:
        both = group.real[:, :, None] & group.real[:, None, :]
        ends = (end[group.nodes].to(kind) for end in (q, k))
        with without_autocast(q.device.type):
            dense = torch.einsum("gihd,gjhd->gijh", *ends) * q.shape[2] ** -0.5
        score[group.packed[both]] = dense[both]
        byte = batch.pair_bytes()[group.pairs[both]].long()
        decay[group.packed[both]] = factor[:, byte].T.to(decay.dtype)
    return score, decay


def _factor(tables: Tables) -> Tensor:
    """M of each byte, [heads, 256]: ``mul`` where the decay acts on the logit, exp(``add``) where
    on the weight. Of a learned profile beside ``mul``, which is no factor, it says nothing."""
    mul, add = tables.mul, tables.add
    if mul is None:
        assert add is not None
        return add.value.exp()
    return mul.value if add is None else mul.value.masked_fill(add.value == -torch.inf, 0.0)
