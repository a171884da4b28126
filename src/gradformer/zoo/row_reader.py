"""How models with tokens, and others whose head is a map of rows, are read."""

from __future__ import annotations

from torch import Tensor

from gradformer.graphs.batch import Batch
from gradformer.model.base import GraphModel
from gradformer.model.segments import pool


class RowReader(GraphModel):
    """A model whose head is a map of rows.

    It reads states [nodes, c], or [nodes + tokens, c] with the tokens at the end: the nodes, the
    tokens (``reads`` is cls), or the nodes of each graph pooled.
    """

    reads: str = "cls"

    def embedding(self, states: Tensor, batch: Batch) -> Tensor:
        if self.schema.level == "node":
            return states
        if self.reads == "cls":
            return states[batch.num_nodes :]
        return pool(states, batch.layout.node_ptr, self.reads)

    def readout(self, states: Tensor, batch: Batch) -> Tensor:
        return self.head(self.embedding(states, batch))
