"""GCN: the graph convolutional network of Kipf and Welling (2017)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from gradformer.model import local
from gradformer.model.base import option, register
from gradformer.zoo.mpnn import ConvolutionStack, StackConfig


@dataclass(frozen=True)
class GCNConfig(StackConfig):
    """The defaults are those of Benchmarking GNNs for ZINC (half a million parameters)."""

    width: int = option(172, "channels of a node")


@register("gcn")
class GCN(ConvolutionStack):
    """Symmetrically normalised sums over neighbours and the node itself, ReLU."""

    Config = GCNConfig
    reference = "torch_geometric 2.8.1 GCNConv in the layout of benchmarking-gnns b6c4077"

    def convolution(self, width: int, out: int, last: bool) -> nn.Module:
        return local.GCN(width, out)
