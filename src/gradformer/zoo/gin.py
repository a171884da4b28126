"""GIN: the graph isomorphism network of Xu et al. (2019)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from gradformer.model import local
from gradformer.model.base import option, register
from gradformer.zoo.mpnn import ConvolutionStack, StackConfig


@dataclass(frozen=True)
class GINConfig(StackConfig):
    """The defaults are those of Benchmarking GNNs for ZINC (half a million parameters)."""

    width: int = option(124, "channels of a node")


@register("gin")
class GIN(ConvolutionStack):
    """Sums over neighbours through an MLP with batch norm, ε learned.

    The readout is that of the other two; Benchmarking GNNs sums linear predictions of all layers.
    """

    Config = GINConfig
    reference = "torch_geometric 2.8.1 GINConv in the layout of benchmarking-gnns b6c4077"

    def convolution(self, width: int, out: int, last: bool) -> nn.Module:
        return local.GIN(width, learn_eps=True, norm=True, out=out)
