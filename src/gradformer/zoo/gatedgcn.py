r"""GatedGCN: the residual gated graph convolution of Bresson and Laurent (2017), with edge states.

The layer is :class:`gradformer.model.gated.GatedGCN`; dropout follows the residuals. The layout is
that of Benchmarking GNNs: embeddings of nodes (plus Laplacian eigenvectors) and edges, the layers,
the mean of the nodes, an MLP. A last layer of another width has no residual, and it updates no
edges: nothing would read them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from gradformer.graphs.arrays import Schema
from gradformer.graphs.batch import Batch
from gradformer.model import gated
from gradformer.model.base import GraphModel, ModelConfig, Needs, option, register
from gradformer.model.encoders import EdgeEncoder, FeatureEncoder, encode_nodes, make_position
from gradformer.model.heads import Head
from gradformer.model.parts import Dropout


@dataclass(frozen=True)
class GatedGCNConfig(ModelConfig):
    """The defaults are those of Benchmarking GNNs for ZINC (half a million parameters)."""

    layers: int = option(16, "number of layers")
    width: int = option(78, "channels of a node")
    last_width: int = option(0, "channels after the last layer; 0: width")
    lap: int = option(8, "Laplacian eigenvectors added to the input")
    flip_signs: bool = option(True, "random signs of eigenvectors")
    dropout: float = option(0.0, "dropout after every layer")
    input_dropout: float = option(0.0, "on float features of the nodes")
    pool: str = option("mean", "add, mean or max of the nodes")

    def needs(self) -> Needs:
        return Needs(index=None, lap=self.lap)


class GatedLayer(nn.Module):
    """h [nodes, width], e [edges, width] → the same, one layer on."""

    def __init__(self, width: int, out: int, dropout: float, last: bool) -> None:
        super().__init__()
        self.conv = gated.GatedGCN(width, residual=width == out, update_edges=not last, out=out)
        self.dropout = Dropout(dropout)
        self.edge_dropout = None if last else Dropout(dropout)

    def forward(self, h: Tensor, e: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        h, e = self.conv(h, e, batch)
        if self.edge_dropout is not None:
            e = self.edge_dropout(e, batch.edges.rows, batch.seeds)
        return self.dropout(h, batch.nodes, batch.seeds), e


@register("gatedgcn")
class GatedGCN(GraphModel):
    """Convolution with a gate on every edge; see the module's text."""

    Config = GatedGCNConfig
    reference = "graphdeeplearning/benchmarking-gnns b6c4077"
    config: GatedGCNConfig

    def __init__(
        self, schema: Schema, config: GatedGCNConfig | None = None, **options: Any
    ) -> None:
        super().__init__(schema, config, options)
        c = self.config
        out = c.last_width or c.width
        self.node = FeatureEncoder(schema.node, c.width, dropout=c.input_dropout)
        self.position = make_position("lap", c.lap, c.width, norm=False, flip=c.flip_signs)
        self.edge = EdgeEncoder(schema.edge, c.width)
        self.layers = nn.ModuleList(
            GatedLayer(c.width, c.width, c.dropout, last=False) for _ in range(c.layers - 1)
        )
        self.layers.append(GatedLayer(c.width, out, c.dropout, last=True))
        self.head = Head(out, schema.outputs, schema.level, "mlp", c.pool)

    def encode(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """What enters the first layer: h [nodes, width], e [edges, width]."""
        h, _ = encode_nodes(self.node, self.position, batch, concat=False)
        return h, self.edge(batch)

    def states(self, batch: Batch) -> Tensor:
        h, e = self.encode(batch)
        for layer in self.layers:
            h, e = layer(h, e, batch)
        return h
