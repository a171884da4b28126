"""GAT: the graph attention network of Veličković et al. (2018)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from gradformer.model import local
from gradformer.model.base import option, register
from gradformer.zoo.mpnn import ConvolutionStack, StackConfig


@dataclass(frozen=True)
class GATConfig(StackConfig):
    """The defaults are those of Benchmarking GNNs for ZINC (half a million parameters)."""

    width: int = option(176, "channels of a node, all heads together")
    heads: int = option(8, "attention heads, but one in the last layer")


@register("gat")
class GAT(ConvolutionStack):
    """Additive attention over neighbours and the node itself, ELU; one head in the last layer."""

    Config = GATConfig
    reference = "torch_geometric 2.8.1 GATConv in the layout of benchmarking-gnns b6c4077"
    config: GATConfig
    activation = nn.ELU

    def convolution(self, width: int, out: int, last: bool) -> nn.Module:
        return local.GAT(width, 1 if last else self.config.heads, out)
