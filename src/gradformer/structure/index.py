"""The structural index ψ by name: how far apart two nodes of a graph are."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import InputError
from gradformer.structure.codebook import HOPS, Codebook
from gradformer.structure.curvature import curvature_distances
from gradformer.structure.distance import hop_distances
from gradformer.structure.parallel import Progress
from gradformer.structure.similarity import similarity_distances

Index = Literal["hops", "curvature", "similarity"]


def pair_index(
    index: Index,
    node_ptr: NDArray[Any],
    edge_ptr: NDArray[Any],
    edge_index: NDArray[Any],
    x: NDArray[Any] | None,
    *,
    symmetric: bool = False,
    codebook: Codebook | None = None,
    progress: Progress | None = None,
) -> tuple[NDArray[np.uint8], Codebook]:
    """ψ of all pairs as bytes, flat [Σ n²], and what the bytes mean.

    ``symmetric`` takes edges as undirected when hops are counted (curvature always does);
    ``codebook`` is that of an earlier call, to give new graphs the same bytes.
    """
    graphs = node_ptr, edge_ptr, edge_index
    if index == "hops":
        return hop_distances(*graphs, symmetric=symmetric, progress=progress), HOPS
    if index == "curvature":
        return curvature_distances(*graphs, codebook=codebook, progress=progress)
    if x is None:
        raise InputError(
            "x: absent, and the index similarity needs node features; hops and curvature do not"
        )
    return similarity_distances(node_ptr, x, codebook=codebook, progress=progress)
