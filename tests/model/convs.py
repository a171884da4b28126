"""A small layer for PyG's models, and three graphs for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from gradformer.model.conv import GradformerConv

# a path of three nodes, a node alone, a triangle
EDGES = torch.tensor([[0, 1, 1, 2, 4, 5, 5, 6, 4, 6], [1, 0, 2, 1, 5, 4, 6, 5, 6, 4]])
VECTOR = torch.tensor([0, 0, 0, 1, 2, 2, 2])


def make(conv: nn.Module | None = None, **options: Any) -> GradformerConv:
    torch.manual_seed(0)
    return GradformerConv(8, conv, heads=2, **options)
