"""Feature similarity as a distance: ψ(i, j) = 1 − cos(x_i, x_j)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import InputError, choice
from gradformer.structure.codebook import Codebook
from gradformer.structure.parallel import Progress
from gradformer.structure.pointers import pair_pointer


def similarity_distances(
    node_ptr: NDArray[Any],
    x: NDArray[Any],
    *,
    codebook: Codebook | None = None,
    progress: Progress | None = None,
) -> tuple[NDArray[np.uint8], Codebook]:
    """One minus the cosine of the nodes' features as bytes, flat [Σ n²], and what they mean.

    Integer columns are categories, each one-hot: the cosine is then the share of columns in which
    two nodes agree. A node without any feature (all zeros) is at distance 1 from all others. The
    edges play no part, so no pair is unreachable.

    Args:
        node_ptr: first node of each graph, [graphs + 1].
        x: features, [nodes, columns], integers or finite floats.
        codebook: that of an earlier call, for new graphs; otherwise 255 even bins over [0, 1], or
            over [0, 2] where a feature is negative.
        progress: called with the number of graphs that became ready.

    >>> bytes_, book = similarity_distances(np.array([0, 2]), np.array([[1, 5], [1, 7]]))
    >>> book.values[bytes_].reshape(2, 2)
    array([[0. , 0.5],
           [0.5, 0. ]])
    """
    if x.ndim != 2 or len(x) != node_ptr[-1]:
        raise InputError(f"x: shape {x.shape}, expected ({node_ptr[-1]}, columns)")
    if codebook is not None:
        choice("codebook.name", codebook.name, ("similarity",))
    categorical = x.dtype.kind in "iu"
    if not categorical:
        if not np.isfinite(x).all():
            row = int((~np.isfinite(x)).any(axis=1).argmax())
            raise InputError(f"x: not a finite number in row {row}")
        norm = np.linalg.norm(x.astype(np.float64), axis=1, keepdims=True)
        x = x / np.where(norm > 0, norm, 1)
    if codebook is None:
        signed = not categorical and bool((x < 0).any())
        codebook = Codebook.uniform("similarity", 2.0 if signed else 1.0)

    pair_ptr = pair_pointer(node_ptr)
    out = np.empty(int(pair_ptr[-1]), np.uint8)
    for g in range(len(node_ptr) - 1):
        rows = x[node_ptr[g] : node_ptr[g + 1]]
        if categorical:
            cosine = sum((c[:, None] == c for c in rows.T), np.zeros((len(rows),) * 2))
            cosine /= max(x.shape[1], 1)
        else:
            cosine = rows @ rows.T
        psi = np.maximum(1 - cosine, 0)
        np.fill_diagonal(psi, 0)
        out[pair_ptr[g] : pair_ptr[g + 1]] = codebook.encode(psi).ravel()
        if progress is not None:
            progress(1)
    return out, codebook
