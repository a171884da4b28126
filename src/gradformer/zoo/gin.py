"""GIN: the graph isomorphism network of Xu et al. (2019)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gradformer.graphs.batch import Batch
from gradformer.model.base import option, register
from gradformer.model.local import Local, PassedOn
from gradformer.model.maps import NormMLP
from gradformer.model.segments import with_sources
from gradformer.zoo.mpnn import ConvolutionStack, StackConfig


class Convolution(nn.Module):
    r"""x'_t = W₂ ReLU(BN(W₁ ((1 + ε) x_t + Σ_{s→t} x_s))), biases understood, ε learned."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(1))
        self.mlp = NormMLP(width, out=out)

    def forward(self, x: Tensor, e: Tensor | None, batch: Batch) -> Local:
        y, e, _ = self.pass_on(x, e, batch)
        return y, e

    def pass_on(self, x: Tensor, e: Tensor | None, batch: Batch) -> PassedOn:
        y, x = with_sources(x, self.eps, batch.edges)
        return self.mlp(y, batch.nodes), e, x


@dataclass(frozen=True)
class GINConfig(StackConfig):
    """The defaults are those of Benchmarking GNNs for ZINC (half a million parameters)."""

    width: int = option(124, "channels of a node")


@register("gin")
class GIN(ConvolutionStack):
    """Sums over neighbours through an MLP with batch norm.

    The readout is that of the other two; Benchmarking GNNs sums linear predictions of all layers.
    """

    Config = GINConfig
    reference = "torch_geometric 2.8.1 GINConv in the layout of benchmarking-gnns b6c4077"

    def convolution(self, width: int, out: int, last: bool) -> nn.Module:
        return Convolution(width, out)
