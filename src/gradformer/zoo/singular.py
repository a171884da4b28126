"""Singular vectors of the adjacency matrix as a node sees them (EGT's positional encoding)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gradformer.graphs.batch import Batch
from gradformer.model.encoders import SignFlip
from gradformer.structure.adjacency import neighbours
from gradformer.structure.encodings import fix_signs
from gradformer.structure.parallel import Progress, over_slices
from gradformer.zoo.precomputed import Precomputed


def singular_vectors(
    node_ptr: NDArray[Any],
    edge_ptr: NDArray[Any],
    edge_index: NDArray[Any],
    count: int,
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """√s_k (u_k, v_k) of the ``count`` largest singular values: [nodes, count, 2].

    A + I = U diag(s) Vᵀ with A_ij = 1 where there is an edge i → j. Zero beyond the graph's size.
    The sign of a pair (u_k, v_k) is arbitrary; here its largest entry is positive.
    """
    lists = neighbours(node_ptr, edge_ptr, edge_index)
    sizes = np.diff(node_ptr).astype(np.int64)
    found = np.zeros((int(node_ptr[-1]), count, 2), np.float32)

    def work(first: int, last: int) -> None:
        for g in range(first, last):
            low, high = int(node_ptr[g]), int(node_ptr[g + 1])
            n = high - low
            kept = min(count, n)
            if not n:
                continue
            matrix = np.eye(n)
            matrix[lists.within(low, high)] = 1
            left, values, right = np.linalg.svd(matrix)
            both = np.concatenate([left[:, :kept], right[:kept].T]) * np.sqrt(values[:kept])
            found[low:high, :kept] = fix_signs(both).reshape(2, n, kept).transpose(1, 2, 0)

    over_slices(work, 10 * sizes**3 + 200_000, progress=progress, lapack=True)
    return found


SINGULAR = Precomputed("singular", singular_vectors, "node")


class SingularEncoder(nn.Module):
    """Singular vectors [rows, count, 2] → [rows, width]; the signs of pairs are drawn anew."""

    def __init__(self, count: int, width: int, flip_signs: bool) -> None:
        super().__init__()
        self.flip = SignFlip() if flip_signs else None
        self.linear = nn.Linear(2 * count, width)

    def forward(self, vectors: Tensor, batch: Batch) -> Tensor:
        vectors = vectors.to(self.linear.weight.dtype)
        if self.flip is not None:
            sign = self.flip(torch.ones_like(vectors[:, :, 0]), batch.nodes, batch.seeds)
            vectors = vectors * sign[:, :, None]
        return self.linear(vectors.flatten(1))
