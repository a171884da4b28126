"""Linear maps, by kernels where they pay, and perceptrons made of them."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from gradformer.attention.availability import runs_kernels
from gradformer.attention.layout import Rows
from gradformer.model.parts import BatchNorm, Draw

MOST_LINEAR_ROWS = 8192
"""Rows up to which the fused backward pass of a linear map pays."""


def linear(x: Tensor, layer: nn.Linear, relu: bool = False) -> Tensor:
    """[ReLU of] a linear map of x [rows, in]; one kernel each way on a GPU."""
    return linear_and_input(x, layer, relu)[0]


def linear_and_input(
    x: Tensor, layer: nn.Linear, relu: bool = False, draw: Draw | None = None
) -> tuple[Tensor, Tensor]:
    """[ReLU and dropout] of a linear map of x [rows, in], and x itself.

    What is done with that x later sends its gradient through this map's kernel, which adds it to
    its own. Dropout, of single entries, comes after a ReLU only.
    """
    assert draw is None or (relu and not draw.whole_graphs)
    if maps_by_kernels(x, layer):
        from gradformer.model.fused.linear import fused_linear

        return fused_linear(x, layer, relu, draw)
    y = layer(x).relu() if relu else layer(x)
    return (y if draw is None else draw(y)), x


def linear_pair(
    x: Tensor, first: nn.Linear, second: nn.Linear
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Two linear maps of x [rows, in], and x for two later uses: see :func:`linear_and_input`."""
    if maps_by_kernels(x, first) and maps_by_kernels(x, second):
        from gradformer.model.fused.linear import fused_linear_pair

        return fused_linear_pair(x, first, second)
    return first(x), second(x), x, x


def is_plain(layer: nn.Linear) -> bool:
    """Whether the layer is its weight and bias and nothing else: no subclass, no hooks."""
    return type(layer) is nn.Linear and not hooked(layer)


def hooked(module: nn.Module) -> bool:
    """Whether someone wants to see that the module is called."""
    before, after = module._forward_pre_hooks, module._forward_hooks
    return any((before, after, module._backward_pre_hooks, module._backward_hooks))


def maps_by_kernels(x: Tensor, layer: nn.Linear) -> bool:
    """Whether kernels make the map, where they pay."""
    fits = is_plain(layer) and x.dim() == 2 and x.dtype == layer.weight.dtype == torch.float32
    fits = fits and torch.is_grad_enabled() and len(x) <= MOST_LINEAR_ROWS and runs_kernels(x)
    return fits and not torch.is_autocast_enabled(x.device.type)


class MLP(nn.Module):
    """Linear layers of the given widths with ReLU between them: widths [d0, d1, …, dn]."""

    def __init__(self, *widths: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    def forward(self, x: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers, start=1):
            assert isinstance(layer, nn.Linear)
            x = linear(x, layer, relu=number < len(self.layers))
        return x


class NormMLP(nn.Module):
    """Linear(inner) – batch norm – ReLU – Linear(out) on [rows, width]; both default to width."""

    def __init__(self, width: int, inner: int | None = None, out: int | None = None) -> None:
        super().__init__()
        inner = inner or width
        self.first, self.norm = nn.Linear(width, inner), BatchNorm(inner)
        self.second = nn.Linear(inner, out or width)

    def forward(self, x: Tensor, rows: Rows) -> Tensor:
        return self.second(self.norm(self.first(x), rows, relu=True))
