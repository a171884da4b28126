r"""GraphGPS: message passing beside plain attention (Rampášek et al., 2022).

The layer is Gradformer's without the decay (see :class:`gradformer.model.layer.GradformerLayer`);
GatedGCN carries its edge states on. Encodings join the node features by concatenation:

* ``rwse``: random-walk return probabilities through batch norm and a linear map;
* ``lap``: :math:`\sum_k \operatorname{MLP}([v_k(i), \lambda_k])` over the eigenpairs of the
  unnormalised Laplacian, the MLP ending in a ReLU (a DeepSet).

Graphs are pooled and read by an MLP d → d/2 → d/4 → out. Node states pass linear maps d → d, each
with a ReLU and scaled to unit length, then the last map.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from gradformer.errors import choice
from gradformer.graphs.arrays import Schema
from gradformer.graphs.batch import Batch
from gradformer.model.base import GraphModel, ModelConfig, Needs, option, register
from gradformer.model.encoders import (
    ENCODINGS,
    EdgeEncoder,
    FeatureEncoder,
    PositionEncoder,
    SignFlip,
    encode_nodes,
)
from gradformer.model.heads import Head
from gradformer.model.layer import GradformerLayer
from gradformer.model.local import make_local
from gradformer.model.maps import MLP
from gradformer.zoo import eigenpairs
from gradformer.zoo.postnorm import PLAIN, attend_over

LOCALS = ("gine", "gin", "gatedgcn", "gcn", "none")


@dataclass(frozen=True)
class GraphGPSConfig(ModelConfig):
    """The defaults are the paper's for ZINC (0.42 million parameters)."""

    layers: int = option(10, "number of layers")
    width: int = option(64, "channels of a node")
    heads: int = option(4, "attention heads")
    local: str = option("gine", "gine, gin, gatedgcn, gcn or none")
    pe: str = option("rwse", "positional encoding: rwse, lap or none")
    pe_steps: int = option(20, "steps of the walk, or eigenpairs", least=1)
    pe_width: int = option(28, "channels of the encoding", least=1)
    pe_norm: bool = option(True, "batch norm on rwse")
    flip_signs: bool = option(True, "random signs of eigenvectors")
    dropout: float = option(0.0, "dropout on all branches")
    attention_dropout: float = option(0.5, "on the attention weights")
    input_dropout: float = option(0.0, "on float features of the nodes")
    pool: str = option("add", "add, mean or max of the nodes")
    node_head_layers: int = option(3, "linear maps of the node readout", least=1)

    def needs(self) -> Needs:
        lap = (eigenpairs.PLAIN.request(count=self.pe_steps),) if self.pe == "lap" else ()
        return Needs(index=None, rwse=self.pe_steps if self.pe == "rwse" else 0, extras=lap)


class DeepSet(nn.Module):
    """Eigenpairs [nodes, count, 2] → Σ_k ReLU(MLP([v_k, λ_k])) [nodes, width]."""

    def __init__(self, width: int, flip_signs: bool) -> None:
        super().__init__()
        self.flip = SignFlip() if flip_signs else None
        self.mlp = MLP(2, 2 * width, width)

    def forward(self, pairs: Tensor, batch: Batch) -> Tensor:
        vectors, values = pairs.to(next(self.parameters()).dtype).unbind(2)
        if self.flip is not None:
            vectors = self.flip(vectors, batch.nodes, batch.seeds)
        term = self.mlp(torch.stack([vectors, values], dim=2)).relu()
        real = eigenpairs.real_slots(batch.layout, pairs.shape[1])
        return torch.where(real[..., None], term, 0.0).sum(1)


class NodeHead(nn.Module):
    """[nodes, width] → [nodes, outputs]; unit rows after every hidden map."""

    def __init__(self, width: int, outputs: int, layers: int) -> None:
        super().__init__()
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(layers - 1))
        self.last = nn.Linear(width, outputs)

    def forward(self, x: Tensor, batch: Batch) -> Tensor:
        for layer in self.hidden:
            x = normalize(layer(x).relu(), dim=1, eps=1e-12)
        return self.last(x)

    def embed(self, states: Tensor, batch: Batch) -> Tensor:
        """Node states are what enters the head."""
        return states


def gps_layers(config: GraphGPSConfig) -> nn.ModuleList:
    """The layers; the last one updates no edges, for nothing would read them."""
    c, name = config, choice("local", config.local, LOCALS)
    return nn.ModuleList(
        GradformerLayer(
            c.width,
            c.heads,
            make_local(name, c.width, update_edges=number < c.layers - 1, dropout=c.dropout),
            dropout=c.dropout,
            attention_dropout=c.attention_dropout,
        )
        for number in range(c.layers)
    )


@register("graphgps")
class GraphGPS(GraphModel):
    """Message passing beside plain attention; see the module's text."""

    Config = GraphGPSConfig
    reference = "rampasek/GraphGPS 2801570 and torch_geometric 2.8.1 GPSConv"
    config: GraphGPSConfig

    def __init__(
        self, schema: Schema, config: GraphGPSConfig | None = None, **options: Any
    ) -> None:
        super().__init__(schema, config, options)
        c = self.config
        pe_width = 0 if choice("pe", c.pe, ENCODINGS) == "none" else c.pe_width
        self.node = FeatureEncoder(schema.node, c.width, dropout=c.input_dropout, beside=pe_width)
        self.walk = (
            PositionEncoder("rwse", c.pe_steps, pe_width, c.pe_norm) if c.pe == "rwse" else None
        )
        self.spectrum = DeepSet(pe_width, c.flip_signs) if c.pe == "lap" else None
        edges = c.local in ("gine", "gatedgcn")
        self.edge = EdgeEncoder(schema.edge, c.width) if edges else None
        self.layers = gps_layers(c)
        self.head: Head | NodeHead
        if schema.level == "node":
            self.head = NodeHead(c.width, schema.outputs, c.node_head_layers)
        else:
            self.head = Head(c.width, schema.outputs, schema.level, "mlp", c.pool)

    def encode(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """What enters the first layer: h [nodes, width], e [edges, width] or None."""
        h, _ = encode_nodes(self.node, self.walk, batch)
        if self.spectrum is not None:
            count = self.config.pe_steps
            pairs = eigenpairs.PLAIN.of(batch, count, 2, count=count)
            h = torch.cat([h, self.spectrum(pairs, batch)], dim=1)
        return h, None if self.edge is None else self.edge(batch)

    def states(self, batch: Batch) -> Tensor:
        h, e = self.encode(batch)
        batch = attend_over(batch, batch.layout)
        for layer in self.layers:
            h, e = layer(h, e, PLAIN, batch, unmade=True)
        return h
