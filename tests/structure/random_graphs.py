"""Random graphs in the packed convention, and small ways to look at them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import networkx as nx
import numpy as np

Packed = tuple[np.ndarray, np.ndarray, np.ndarray]


def pack(graphs: Iterable[tuple[int, np.ndarray]]) -> Packed:
    """(nodes, [2, edges]) pairs to node_ptr, edge_ptr, edge_index."""
    graphs = list(graphs)
    node_ptr = np.cumsum([0] + [n for n, _ in graphs])
    edge_ptr = np.cumsum([0] + [e.shape[1] for _, e in graphs])
    edges = [np.asarray(e, np.int32).reshape(2, -1) for _, e in graphs]
    return node_ptr, edge_ptr, np.concatenate(edges, axis=1)


def directed(rng: np.random.Generator, nodes: int, edges: int) -> tuple[int, np.ndarray]:
    """Random edges, self-loops and repetitions included."""
    return nodes, rng.integers(0, nodes, (2, edges))


def undirected(rng: np.random.Generator, nodes: int, probability: float) -> tuple[int, np.ndarray]:
    """A simple G(n, p) graph with both directions listed, in random order."""
    pairs = np.argwhere(np.triu(rng.random((nodes, nodes)) < probability, 1)).T
    both = np.concatenate([pairs, pairs[::-1]], axis=1)
    return nodes, both[:, rng.permutation(both.shape[1])]


def path(nodes: int) -> tuple[int, np.ndarray]:
    """0 – 1 – … – (nodes − 1), both directions."""
    one = np.stack([np.arange(nodes - 1), np.arange(1, nodes)])
    return nodes, np.concatenate([one, one[::-1]], axis=1)


def permute(graph: tuple[int, np.ndarray], order: np.ndarray) -> tuple[int, np.ndarray]:
    """The same graph with node v renamed to order[v]."""
    nodes, edges = graph
    return nodes, order[edges]


def separate(batch: Mapping[str, np.ndarray]) -> list[tuple[int, np.ndarray]]:
    """The graphs of a PyG batch, its arrays ``batch`` [nodes] and ``edge_index`` [2, edges]."""
    size = np.bincount(batch["batch"])
    first = np.cumsum(size) - size
    owner = batch["batch"][batch["edge_index"][0]]
    return [(n, batch["edge_index"][:, owner == g] - first[g]) for g, n in enumerate(size.tolist())]


def to_networkx(graph: tuple[int, np.ndarray], *, is_directed: bool = True) -> nx.Graph:
    nodes, edges = graph
    out = nx.DiGraph() if is_directed else nx.Graph()
    out.add_nodes_from(range(nodes))
    out.add_edges_from(edges.T.tolist())
    return out
