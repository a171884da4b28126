"""Where a node sits in its graph: random-walk return probabilities and Laplacian eigenvectors."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import at_least, choice
from gradformer.structure.adjacency import Neighbours, neighbours
from gradformer.structure.parallel import (
    BLOCK,
    HAVE_NUMBA,
    Progress,
    compiled,
    node_blocks,
    over_slices,
)


def random_walk(
    node_ptr: NDArray[Any],
    edge_ptr: NDArray[Any],
    edge_index: NDArray[Any],
    steps: int,
    *,
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """Probability of being back after t steps, diag((D⁻¹A)ᵗ) for t = 1…steps: [nodes, steps].

    A counts the edges i → j (row i), D is the out-degree; a walk that meets a node without edges
    ends there, so isolated nodes have zeros.

    >>> triangle = np.array([[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]])
    >>> random_walk(np.array([0, 3]), np.array([0, 6]), triangle, 3)[0].tolist()
    [0.0, 0.5, 0.25]
    """
    at_least("steps", steps, 1)
    lists = neighbours(node_ptr, edge_ptr, edge_index)
    follow = _walk_compiled if HAVE_NUMBA else _walk_numpy
    return follow(np.asarray(node_ptr, np.int64), lists, steps, progress)


def _walk_compiled(
    node_ptr: NDArray[np.int64], lists: Neighbours, steps: int, progress: Progress | None = None
) -> NDArray[np.float32]:
    sizes = np.diff(node_ptr)
    graph, block = node_blocks(node_ptr)
    out = np.empty((int(node_ptr[-1]), steps), np.float32)
    work_per_graph = steps * (np.diff(lists.ptr[node_ptr]) + sizes) * np.minimum(sizes, BLOCK)

    def work(first: int, last: int) -> None:
        _walk_blocks(first, last, graph, block, node_ptr, *lists, steps, out)

    over_slices(work, work_per_graph[graph], block == 0, progress)
    return out


@compiled
def _walk_blocks(first, last, graph, block, node_ptr, ptr, targets, steps, out):  # type: ignore[no-untyped-def]
    """Columns of (D⁻¹A)ᵗ, 64 at a time: each step averages every node's out-neighbours."""
    largest = 0
    for item in range(first, last):
        largest = max(largest, node_ptr[graph[item] + 1] - node_ptr[graph[item]])
    now, then = np.empty((largest, BLOCK), np.float32), np.empty((largest, BLOCK), np.float32)
    for item in range(first, last):
        base, n = node_ptr[graph[item]], node_ptr[graph[item] + 1] - node_ptr[graph[item]]
        low = BLOCK * block[item]
        width = min(BLOCK, n - low)
        whole = -(-width // 16) * 16  # full vector registers
        now[:n, :whole] = 0
        for j in range(width):
            now[low + j, j] = 1
        for t in range(steps):
            for i in range(n):
                e, stop = ptr[base + i], ptr[base + i + 1]
                share = np.float32(1) / np.float32(max(stop - e, 1))
                for j in range(whole):
                    then[i, j] = 0
                while e + 4 <= stop:  # four at a time: half the loads and stores
                    a, b, c, d = targets[e], targets[e + 1], targets[e + 2], targets[e + 3]
                    for j in range(whole):
                        then[i, j] += (now[a, j] + now[b, j]) + (now[c, j] + now[d, j])
                    e += 4
                while e < stop:
                    a = targets[e]
                    for j in range(whole):
                        then[i, j] += now[a, j]
                    e += 1
                for j in range(whole):
                    then[i, j] *= share
            now, then = then, now
            for j in range(width):
                out[base + low + j, t] = now[low + j, j]


def _walk_numpy(
    node_ptr: NDArray[np.int64], lists: Neighbours, steps: int, progress: Progress | None = None
) -> NDArray[np.float32]:
    """The same probabilities without numba: dense powers, one graph after the other."""
    out = np.empty((int(node_ptr[-1]), steps), np.float32)
    degree = np.diff(lists.ptr)
    for low, high in pairwise(node_ptr):
        n = int(high - low)
        walk = np.zeros((n, n), np.float32)
        np.add.at(walk, lists.within(low, high), 1)
        walk /= np.maximum(degree[low:high, None], 1)
        power = np.eye(n, dtype=np.float32)
        for t in range(steps):
            power = walk @ power
            out[low:high, t] = np.diagonal(power)
        if progress is not None:
            progress(1)
    return out


Normalization = Literal["sym", "none"]
LAPLACIAN_VERSION = 2
"""Raised when eigenpairs change, so that old stores are not taken for new ones."""


def laplacian(
    node_ptr: NDArray[Any],
    edge_ptr: NDArray[Any],
    edge_index: NDArray[Any],
    k: int,
    *,
    normalization: Normalization = "sym",
    skip_first: bool = True,
    isolated: float = 1.0,
    progress: Progress | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The k smallest eigenpairs of the graph Laplacian: vectors [nodes, k], values [graphs, k].

    L = I − D^(−½) A D^(−½) (``"sym"``) or D − A (``"none"``), of the simple undirected graph: both
    directions, no self-loops, no edge twice. Columns follow the rising eigenvalues and have unit
    norm; a graph with fewer than k fills the rest with zeros. An eigenvector's sign is arbitrary:
    here its largest entry is positive (the first of equals), and models flip signs in training.

    Args:
        skip_first: leave out the very first eigenvector.
        isolated: diagonal of L at a node without edges; codes differ between 1 and 0 ("sym").
        progress: called with the number of graphs that became ready.
    """
    at_least("k", k, 1)
    choice("normalization", normalization, ("sym", "none"))
    lists = neighbours(node_ptr, edge_ptr, edge_index)
    sizes = np.diff(node_ptr)
    vectors = np.zeros((int(node_ptr[-1]), k), np.float32)
    values = np.zeros((len(sizes), k), np.float32)
    skip = int(skip_first)

    def work(first: int, last: int) -> None:
        for g in range(first, last):
            low, high = int(node_ptr[g]), int(node_ptr[g + 1])
            kept = min(k, high - low - skip)
            if kept < 1:
                continue
            matrix = _laplacian_matrix(lists, low, high, normalization, isolated)
            spectrum, basis = _eigenpairs(matrix, slice(skip, skip + kept))
            values[g, :kept] = spectrum
            vectors[low:high, :kept] = fix_signs(basis)

    over_slices(work, sizes.astype(np.int64) ** 3 + 200_000, progress=progress, lapack=True)
    return vectors, values


def _laplacian_matrix(
    lists: Neighbours, low: int, high: int, normalization: Normalization, isolated: float
) -> NDArray[np.float64]:
    source, target = lists.within(low, high)
    adjacency = np.zeros((high - low, high - low))
    adjacency[source, target] = 1
    adjacency[target, source] = 1
    np.fill_diagonal(adjacency, 0)
    degree = adjacency.sum(axis=1)
    if normalization == "none":
        np.fill_diagonal(adjacency, -degree)
        return -adjacency
    scale = 1 / np.sqrt(np.maximum(degree, 1))
    matrix: NDArray[np.float64] = -scale[:, None] * adjacency * scale
    np.fill_diagonal(matrix, np.where(degree > 0, 1.0, isolated))
    return matrix


def _eigenpairs(
    matrix: NDArray[np.float64], wanted: slice
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Some eigenvalues of a symmetric matrix, rising, and their unit eigenvectors as columns."""
    from scipy.linalg import eigh  # slow to load, and most models do not need it

    ends = wanted.start, wanted.stop - 1
    spectrum, basis = eigh(matrix, subset_by_index=ends, check_finite=False)
    # Where many eigenvalues are equal, as the zeros of a graph in many pieces, a search for some of
    # them may find the same vector twice.
    if np.abs(basis.T @ basis - np.eye(len(spectrum))).max() > 1e-8:
        spectrum, basis = eigh(matrix, driver="evd", check_finite=False)
        return spectrum[wanted], basis[:, wanted]
    return spectrum, basis


def fix_signs(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn each column so that its first entry of (nearly) largest size is positive."""
    size = np.abs(vectors)
    leader = (size > size.max(axis=0) * (1 - 1e-5)).argmax(axis=0)
    signs: NDArray[np.float64] = np.sign(vectors[leader, np.arange(vectors.shape[1])])
    return vectors * signs
