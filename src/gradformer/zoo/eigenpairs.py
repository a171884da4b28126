"""Eigenpairs of the graph Laplacian as a node sees them: its entry of v_k and λ_k, k = 1…count."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gradformer.attention.layout import Layout
from gradformer.structure.encodings import LAPLACIAN_VERSION, Normalization, laplacian
from gradformer.structure.parallel import Progress
from gradformer.zoo.precomputed import Precomputed


def eigenpairs(
    node_ptr: NDArray[Any],
    edge_ptr: NDArray[Any],
    edge_index: NDArray[Any],
    count: int,
    normalization: Normalization,
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """The ``count`` smallest eigenpairs, the trivial one included: [nodes, count, 2].

    Last axis: entry of the unit eigenvector at the node, eigenvalue. Zero beyond the graph's size.
    """
    vectors, values = laplacian(
        node_ptr,
        edge_ptr,
        edge_index,
        count,
        normalization=normalization,
        skip_first=False,
        progress=progress,
    )
    return np.stack([vectors, np.abs(values).repeat(np.diff(node_ptr), axis=0)], axis=2)


NORMALISED, PLAIN = (
    Precomputed(
        f"eigenpairs_{kind}",
        partial(eigenpairs, normalization=kind),
        "node",
        version=LAPLACIAN_VERSION,
    )
    for kind in ("sym", "none")
)
"""Of L = I − D^(−½) A D^(−½), and of L = D − A."""


def real_slots(layout: Layout, count: int) -> Tensor:
    """True where a node has a k-th eigenpair: k < size of its graph, [nodes, count] bool.

    Padded rows keep one slot, so that no softmax runs over nothing.
    """
    size = layout.node_ptr.diff()[layout.slot].clamp(min=1)
    return torch.arange(count, device=layout.device) < size[:, None]
