r"""The stack of GCN, GAT and GIN: four lines of message passing, repeated.

.. math::
    h' = [h +]\; \operatorname{act}(\operatorname{BN}(\operatorname{conv}(h)))

The bracket only where input and output have the same width. The layout is that of Benchmarking GNNs
(Dwivedi et al.) with PyG's convolutions: an embedding of the nodes, the layers, the mean of the
nodes, an MLP. Edge features are not used. Of few labels in one graph this layout learns the words
by heart. The networks of Kipf and Welling, and of Veličković et al., for citation graphs have no
``norm``, ``residual``, ``embed`` and ``head``: the first convolution reads the words, as shares of
their sum (``input_norm``), and the last gives the classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from gradformer.errors import ConfigError, InputError, choice
from gradformer.graphs.arrays import Schema
from gradformer.graphs.batch import Batch
from gradformer.model.base import GraphModel, ModelConfig, option
from gradformer.model.encoders import FeatureEncoder, check_floats
from gradformer.model.heads import HEADS, Head
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
    input_norm: bool = option(False, "divide a node's float features by the sum of their sizes")
    embed: bool = option(True, "a linear map of the features before the first layer")
    norm: bool = option(True, "batch norm in every layer")
    residual: bool = option(True, "add h where the width stays")
    pool: str = option("mean", "add, mean or max of the nodes")
    head: str = option("mlp", "linear, mlp, or none: the last layer gives the outputs of nodes")


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


class Floats(nn.Module):
    """Float features x [nodes, channels] as they are; in training single ones are dropped."""

    def __init__(self, channels: int, dropout: float) -> None:
        super().__init__()
        self.channels, self.dropout = channels, Dropout(dropout)

    def forward(self, batch: Batch) -> Tensor:
        if batch.x is None:
            raise InputError("x: this model was built for graphs with node features")
        check_floats("x", batch.x, self.channels)
        return self.dropout(batch.x, batch.nodes, batch.seeds)


class LastConvolution(nn.Module):
    """In place of a head: the convolution that gives the outputs of the nodes."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def embed(self, states: Tensor, batch: Batch) -> Tensor:
        return states

    def forward(self, states: Tensor, batch: Batch) -> Tensor:
        return passed_on(self.conv, states, None, batch)[0]


class ConvolutionStack(GraphModel):
    """A model of one kind of convolution; a subclass says which."""

    config: StackConfig
    activation: type[nn.Module] = nn.ReLU

    def __init__(self, schema: Schema, config: StackConfig | None = None, **options: Any) -> None:
        super().__init__(schema, config, options)
        c = self.config
        headless = choice("head", c.head, (*HEADS, "none")) == "none"
        _check(c, schema, headless)
        widths = [*[c.width] * c.layers, c.last_width or c.width]
        if c.embed:
            self.node: nn.Module = FeatureEncoder(schema.node, c.width, dropout=c.input_dropout)
        else:
            assert isinstance(schema.node, int)
            widths[0], self.node = schema.node, Floats(schema.node, c.input_dropout)
        if headless:
            widths[-1] = schema.outputs
        pairs = [*pairwise(widths)]
        self.layers = nn.ModuleList(
            StackLayer(
                self.convolution(a, b, last=number == c.layers - 1), self.activation(), a, b, c
            )
            for number, (a, b) in enumerate(pairs[:-1] if headless else pairs)
        )
        if headless:
            self.head = LastConvolution(self.convolution(*pairs[-1], last=True))
        else:
            self.head = Head(widths[-1], schema.outputs, schema.level, c.head, c.pool)

    def convolution(self, width: int, out: int, last: bool) -> nn.Module:
        """The convolution of one layer, ``(h, e, batch) -> (h', e)``."""
        raise NotImplementedError

    def states(self, batch: Batch) -> Tensor:
        c = self.config
        if batch.x is not None and (c.input_norm or not c.embed):
            x = batch.x.to(torch.promote_types(batch.x.dtype, torch.float32))  # half has no 1e-12
            x = normalize(x, p=1.0, dim=-1) if c.input_norm else x
            batch = replace(batch, x=x.to(next(self.parameters()).dtype))
        h: Tensor = self.node(batch)
        for layer in self.layers:
            h = layer(h, batch)
        return h


def _check(config: StackConfig, schema: Schema, headless: bool) -> None:
    """Options that this schema does not allow."""
    for name, wanted in ("input_norm", config.input_norm), ("embed", not config.embed):
        if wanted and not isinstance(schema.node, int):
            raise ConfigError(
                f"{name}: got {getattr(config, name)}, but the nodes have no float features; "
                "leave it out"
            )
    if headless and schema.level != "node":
        raise ConfigError("head: none is for targets of nodes, these are of graphs; take linear")
    if headless and config.last_width:
        raise ConfigError("last_width: without a head the last width is that of the outputs")
