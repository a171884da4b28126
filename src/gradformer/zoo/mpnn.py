r"""The stack of GCN, GAT and GIN: four lines of message passing, repeated.

.. math::
    h' = [h +]\; \operatorname{act}(\operatorname{BN}(\operatorname{conv}(h)))

The bracket only where input and output have the same width. The layout is that of Benchmarking GNNs
(Dwivedi et al.) with PyG's convolutions: an embedding of the nodes, the layers, the mean of the
nodes, an MLP. Edge features are not used. Of few labels in one graph this layout learns the words
by heart; without ``norm`` and ``residual``, with a linear ``head``, it is close to the networks of
Kipf and Welling, and of Veličković et al., for citation graphs.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from gradformer.graphs.arrays import Schema
from gradformer.graphs.batch import Batch
from gradformer.model.base import GraphModel, ModelConfig, option
from gradformer.model.encoders import FeatureEncoder
from gradformer.model.heads import Head
from gradformer.model.local import passed_on
from gradformer.model.maps import hooked
from gradformer.model.parts import BatchNorm, Dropout


@dataclass(frozen=True)
class StackConfig(ModelConfig):
    """What the three have in common."""

    layers: int = option(16, "number of layers")
    last_width: int = option(0, "channels after the last layer; 0: width")
    dropout: float = option(0.0, "dropout after every layer")
    input_dropout: float = option(0.0, "on float features of the nodes")
    norm: bool = option(True, "batch norm in every layer")
    residual: bool = option(True, "add h where the width stays")
    pool: str = option("mean", "add, mean or max of the nodes")
    head: str = option("mlp", "linear or mlp")


class StackLayer(nn.Module):
    """Convolution, batch norm, activation, residual, dropout; h [nodes, width] → [nodes, out]."""

    def __init__(
        self, conv: nn.Module, activation: nn.Module, width: int, out: int, config: StackConfig
    ) -> None:
        super().__init__()
        self.conv, self.activation = conv, activation
        self.norm = BatchNorm(out) if config.norm else None
        self.dropout = Dropout(config.dropout)
        self.residual = config.residual and width == out

    def forward(self, h: Tensor, batch: Batch) -> Tensor:
        y, _, h = passed_on(self.conv, h, None, batch)
        plus = h if self.residual else None
        relu = isinstance(self.activation, nn.ReLU) and not hooked(self.activation)
        if self.norm is not None and relu:  # in one kernel
            y = self.norm(y, batch.nodes, relu=True, plus=plus)
        else:
            y = self.activation(y if self.norm is None else self.norm(y, batch.nodes))
            y = y if plus is None else plus + y
        return self.dropout(y, batch.nodes, batch.seeds)


class ConvolutionStack(GraphModel):
    """A model of one kind of convolution; a subclass says which."""

    config: StackConfig
    activation: type[nn.Module] = nn.ReLU

    def __init__(self, schema: Schema, config: StackConfig | None = None, **options: Any) -> None:
        super().__init__(schema, config, options)
        c = self.config
        widths = [*[c.width] * c.layers, c.last_width or c.width]
        self.node = FeatureEncoder(schema.node, c.width, dropout=c.input_dropout)
        self.layers = nn.ModuleList(
            StackLayer(
                self.convolution(a, b, last=number == c.layers - 1), self.activation(), a, b, c
            )
            for number, (a, b) in enumerate(pairwise(widths))
        )
        self.head = Head(widths[-1], schema.outputs, schema.level, c.head, c.pool)

    def convolution(self, width: int, out: int, last: bool) -> nn.Module:
        """The convolution of one layer, ``(h, e, batch) -> (h', e)``."""
        raise NotImplementedError

    def states(self, batch: Batch) -> Tensor:
        h: Tensor = self.node(batch)
        for layer in self.layers:
            h = layer(h, batch)
        return h
