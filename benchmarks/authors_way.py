"""The model in the authors' way, re-created in its essentials; and graphs of a store for PyG.

Convolutions with scatter, and dense attention that is padded to the largest graph, with a float
decay matrix for every head.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Batch as PygBatch
from torch_geometric.data import Data
from torch_geometric.nn import GINEConv, global_add_pool
from torch_geometric.utils import scatter, to_dense_batch

from gradformer.graphs.arrays import Schema
from gradformer.training.data import TrainingData


def pyg_graph(data: TrainingData, g: int) -> Data:
    """Graph ``g`` of the store as PyG has it, with the encodings that the store has."""
    arrays = data.store.arrays
    nodes, edges = (slice(*arrays[ptr][g : g + 2]) for ptr in ("node_ptr", "edge_ptr"))
    own = slice(g, g + 1) if data.schema.level == "graph" else nodes
    rows = {"x": nodes, "rwse": nodes, "lap": nodes, "edge_attr": edges, "y": own}
    found = {
        name: torch.from_numpy(arrays[name][part]) for name, part in rows.items() if name in arrays
    }
    index = torch.from_numpy(np.stack([arrays["source"][edges], arrays["target"][edges]]))
    return Data(edge_index=index.long(), **found)


class DenseDecayAttention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.linears = nn.ModuleList(nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, batch: Tensor, decay: Tensor) -> Tensor:
        dense, real = to_dense_batch(x, batch)
        graphs, nodes, width = dense.shape
        q, k, v = (
            linear(dense).view(graphs, nodes, self.heads, -1).transpose(1, 2)
            for linear in self.linears[:3]
        )
        score = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads) * decay
        weight = score.masked_fill(~real[:, None, None, :], -math.inf).softmax(-1)
        weight = F.dropout(weight, self.dropout, self.training)
        return self.linears[3]((weight @ v).transpose(1, 2).reshape(graphs, nodes, width)[real])


class ScatterGatedGCN(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.A, self.B, self.C, self.D, self.E = (nn.Linear(width, width) for _ in range(5))
        self.node_norm, self.edge_norm = nn.BatchNorm1d(width), nn.BatchNorm1d(width)

    def forward(self, x: Tensor, index: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
        source, target = index
        u = self.D(x)[target] + self.E(x)[source] + self.C(e)
        gate = u.sigmoid()
        total = scatter(gate * self.B(x)[source], target, dim_size=len(x))
        mean = total / (scatter(gate, target, dim_size=len(x)) + 1e-6)
        return x + self.node_norm(self.A(x) + mean).relu(), e + self.edge_norm(u).relu()


class AuthorsLayer(nn.Module):
    def __init__(self, width: int, heads: int, gated: bool, dropout: float) -> None:
        super().__init__()
        mlp = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        self.conv = ScatterGatedGCN(width) if gated else GINEConv(mlp)
        self.gated = gated
        self.attn = DenseDecayAttention(width, heads, dropout)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)
        )
        self.norm1, self.norm2, self.norm3 = (nn.BatchNorm1d(width) for _ in range(3))

    def forward(self, x: Tensor, index: Tensor, e: Tensor, batch: Tensor, decay: Tensor):
        if self.gated:
            local, e = self.conv(x, index, e)
        else:
            local = self.conv(x, index, e)
        y = self.norm1(local + x) + self.norm2(self.attn(x, batch, decay) + x)
        return self.norm3(y + self.mlp(y)), e


class AuthorsModel(nn.Module):
    def __init__(self, schema: Schema, config: object) -> None:
        super().__init__()
        c = config
        gated = c.local == "gatedgcn"
        pe_width = c.pe_width if c.pe != "none" else 0
        self.node = nn.Embedding(schema.node[0], c.width - pe_width)
        self.edge = nn.Embedding(schema.edge[0] if schema.edge else 1, c.width)
        self.encoding = c.pe
        self.pe = nn.Linear(c.pe_steps, pe_width) if pe_width else None
        self.pe_norm = nn.BatchNorm1d(c.pe_steps) if pe_width else None
        self.start = nn.Parameter(torch.full((c.heads, 1, 1), float(c.start)))
        self.decay, self.slope = c.decay, c.slope
        self.layers = nn.ModuleList(
            AuthorsLayer(c.width, c.heads, gated, c.attention_dropout) for _ in range(c.layers)
        )
        self.graph_level = schema.level == "graph"
        self.head = nn.Sequential(
            nn.Linear(c.width, c.width // 2), nn.ReLU(), nn.Linear(c.width // 2, c.width // 4),
            nn.ReLU(), nn.Linear(c.width // 4, schema.outputs),
        )  # fmt: skip

    def forward(self, data: PygBatch, distance: Tensor) -> Tensor:
        x = self.node(data.x[:, 0])
        if self.pe is not None:
            x = torch.cat([x, self.pe(self.pe_norm(data[self.encoding]))], 1)
        e = self.edge(data.edge_attr[:, 0])
        decay = self.decay ** F.leaky_relu(distance[:, None].float() - self.start, self.slope)
        for layer in self.layers:
            x, e = layer(x, data.edge_index, e, data.batch, decay)
        return self.head(global_add_pool(x, data.batch) if self.graph_level else x)
