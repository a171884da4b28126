"""Shortest paths as first edges, against the recursion they stand for."""

from __future__ import annotations

import numpy as np
import pytest

from gradformer.errors import InputError
from gradformer.structure.distance import hop_distances
from gradformer.structure.paths import first_edges


def recursive_path(middle, i, j):
    """Nodes between i and j, as Floyd and Warshall's table of middle nodes tells them."""
    k = middle[i, j]
    if k < 0:
        return []
    return [*recursive_path(middle, i, k), k, *recursive_path(middle, k, j)]


def floyd_warshall(n, edges):
    hops = np.full((n, n), 10**6)
    np.fill_diagonal(hops, 0)
    middle = np.full((n, n), -1)
    for i, j in edges:
        if i != j:
            hops[i, j] = 1
    for k in range(n):
        for i in range(n):
            for j in range(n):
                if hops[i, k] + hops[k, j] < hops[i, j]:
                    hops[i, j] = hops[i, k] + hops[k, j]
                    middle[i, j] = k
    return hops, middle


@pytest.mark.parametrize("directed", [False, True])
def test_following_first_edges_gives_the_recursions_path(directed):
    rng = np.random.default_rng(3)
    node_ptr, edge_ptr, parts = [0], [0], []
    for n in (1, 2, 5, 9, 14):
        edges = np.argwhere(rng.random((n, n)) < 1.6 / n)
        if not directed:
            edges = np.unique(np.concatenate([edges, edges[:, ::-1]]), axis=0)
        parts.append(edges[rng.permutation(len(edges))].T)
        node_ptr.append(node_ptr[-1] + n)
        edge_ptr.append(edge_ptr[-1] + len(edges))
    index = np.concatenate(parts, axis=1)
    node_ptr, edge_ptr = np.array(node_ptr), np.array(edge_ptr)
    found = first_edges(node_ptr, edge_ptr, index)
    lengths = hop_distances(node_ptr, edge_ptr, index)
    start = 0
    for edges, n in zip(parts, np.diff(node_ptr)):
        first = found[start : start + n * n].reshape(n, n)
        near = lengths[start : start + n * n].reshape(n, n)
        start += n * n
        hops, middle = floyd_warshall(n, edges.T.tolist())
        for i in range(n):
            for j in range(n):
                if i == j or hops[i, j] > n:
                    assert first[i, j] == -1
                    continue
                walked = [i]
                while walked[-1] != j:
                    edge = edges[:, first[walked[-1], j]]
                    assert edge[0] == walked[-1]
                    walked.append(int(edge[1]))
                assert walked[1:-1] == recursive_path(middle, i, j)
                assert len(walked) - 1 == near[i, j]


def test_the_last_of_parallel_edges_counts():
    edges = np.array([[0, 0, 1], [1, 1, 0]])
    found = first_edges(np.array([0, 2]), np.array([0, 3]), edges)
    assert found.reshape(2, 2)[0, 1] == 1


def test_refuses_a_wrong_shape():
    with pytest.raises(InputError, match="edge_index"):
        first_edges(np.array([0, 2]), np.array([0, 3]), np.zeros((3, 2), np.int64))
