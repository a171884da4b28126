"""From node states to predictions."""

from __future__ import annotations

from torch import Tensor, nn

from gradformer.errors import choice
from gradformer.graphs.arrays import Level
from gradformer.graphs.batch import Batch
from gradformer.model.maps import MLP
from gradformer.model.segments import pool

POOLS = ("add", "mean", "max")
HEADS = ("linear", "mlp")


class Head(nn.Module):
    """Pool the nodes of each graph (graph level), then a linear map or an MLP d → d/2 → d/4 → out.

    Shapes: states [nodes, width] → [graphs, outputs] or, at node level, [nodes, outputs].
    """

    def __init__(
        self, width: int, outputs: int, level: Level, kind: str = "mlp", pooling: str = "mean"
    ) -> None:
        super().__init__()
        self.level, self.pooling = level, choice("pool", pooling, POOLS)
        if choice("head", kind, HEADS) == "mlp":
            self.net: nn.Module = MLP(width, max(width // 2, 1), max(width // 4, 1), outputs)
        else:
            self.net = nn.Linear(width, outputs)

    def embed(self, states: Tensor, batch: Batch) -> Tensor:
        """What enters the map or MLP: [graphs, width], or the states themselves at node level."""
        if self.level == "node":
            return states
        return pool(states, batch.layout.node_ptr, self.pooling)

    def forward(self, states: Tensor, batch: Batch) -> Tensor:
        return self.net(self.embed(states, batch))
