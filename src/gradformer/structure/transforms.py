"""The same structure as PyG transforms: their results concatenate in any PyG ``Batch``."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform

from gradformer.errors import InputError, choice
from gradformer.structure.codebook import FIXED, Codebook
from gradformer.structure.encodings import laplacian, random_walk
from gradformer.structure.index import Index, pair_index
from gradformer.structure.pointers import pointer


class AddDistance(BaseTransform):
    """Set ``data.distance``, [n²] uint8: the byte of every pair, row = query; of a ``Batch`` graph
    after graph.

    Args:
        index: ``"hops"``, ``"curvature"`` or ``"similarity"``.
        symmetric: walk the edges in both directions (hops; curvature always does).
        codebook: what the bytes mean, for curvature and similarity; by default a fixed one.

    ``transform.codebook`` tells a decay what the bytes mean.

    >>> graph = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
    >>> AddDistance()(graph).distance
    tensor([0, 1, 1, 0], dtype=torch.uint8)
    """

    def __init__(
        self, index: Index = "hops", *, symmetric: bool = False, codebook: Codebook | None = None
    ) -> None:
        choice("index", index, FIXED)
        if index == "hops" and codebook is not None:
            choice("codebook.name", codebook.name, ("hops",))
        self.index = index
        self.symmetric = symmetric
        self.codebook = codebook or FIXED[index]

    def forward(self, data: Data) -> Data:
        graphs = _arrays(data)
        x = _features(data) if self.index == "similarity" else None
        pairs, _ = pair_index(
            self.index, *graphs, x, symmetric=self.symmetric, codebook=self.codebook
        )
        data.distance = torch.from_numpy(pairs)
        return data


class AddRandomWalk(BaseTransform):
    """Set ``data.rwse``, [n, steps]: the probability of being back after 1…steps steps."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def forward(self, data: Data) -> Data:
        data.rwse = torch.from_numpy(random_walk(*_arrays(data), self.steps))
        return data


class AddLaplacian(BaseTransform):
    """Set ``data.lap``, [n, k]: eigenvectors of the Laplacian as :func:`laplacian` gives them by
    itself, which is what models are trained on."""

    def __init__(self, k: int) -> None:
        self.k = k

    def forward(self, data: Data) -> Data:
        vectors, _ = laplacian(*_arrays(data), self.k)
        data.lap = torch.from_numpy(vectors)
        return data


def _arrays(data: Data) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]:
    """A graph, or those of a ``Batch``, as they are packed: node_ptr, edge_ptr, edge_index."""
    if not isinstance(data, Data):
        raise InputError(
            f"data: expected PyG's Data, got {type(data).__name__}; "
            "HeteroData has a method to_homogeneous"
        )
    if data.edge_index is None or data.num_nodes is None:
        raise InputError("data: expected a graph with edge_index and num_nodes")
    edge_index = data.edge_index.detach().cpu().numpy()
    if getattr(data, "batch", None) is None:
        return np.array([0, data.num_nodes]), np.array([0, edge_index.shape[1]]), edge_index
    vector = data.batch.cpu().numpy()
    if (np.diff(vector) < 0).any():
        raise InputError("batch: graphs must be numbered in ascending order, node by node")
    node_ptr = pointer(np.bincount(vector, minlength=getattr(data, "num_graphs", 0)))
    graph = vector[edge_index[0]]
    edge_ptr = pointer(np.bincount(graph, minlength=len(node_ptr) - 1))
    return node_ptr, edge_ptr, (edge_index - node_ptr[graph])[:, np.argsort(graph, kind="stable")]


def _features(data: Data) -> NDArray[Any] | None:
    """``data.x``, which may be sparse or of a type that numpy has not."""
    if data.x is None:
        return None
    x = data.x.detach().cpu().to_dense()
    found: NDArray[Any] = (x.double() if x.is_floating_point() else x).numpy()
    return found
