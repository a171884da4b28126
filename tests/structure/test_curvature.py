"""Curvature against an independent optimal transport, and the distance made of it."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from scipy.optimize import linprog

from gradformer.errors import ConfigError
from gradformer.structure import Codebook, curvature_distances, pair_pointer
from gradformer.structure.curvature import FLOOR, FORMAN, OLLIVIER, edge_curvature

from .random_graphs import directed, pack, path, permute, to_networkx, undirected


def curvature(graph, name):
    """κ of the edges of one graph, by their ends."""
    arrays = pack([graph])
    lists, kappa, used = edge_curvature(*arrays, name)
    assert used == name
    return dict(zip(zip(*(end.tolist() for end in lists.ends(arrays[0]))), kappa.tolist()))


def by_linear_program(graph):
    """κ with idleness ½ of every edge: Kantorovich's dual over all nodes, as a linear program."""
    hops = dict(nx.all_pairs_shortest_path_length(graph))
    out = {}
    for x, y in graph.edges:
        component = list(hops[x])
        place = {v: i for i, v in enumerate(component)}
        gap = np.zeros(len(component))
        for node, sign in ((x, 1), (y, -1)):
            gap[place[node]] += sign * 0.5
            for v in graph[node]:
                gap[place[v]] += sign * 0.5 / graph.degree[node]
        pairs = [(u, v) for u in component for v in component if u != v]
        slope = np.zeros((len(pairs), len(component)))
        for row, (u, v) in enumerate(pairs):
            slope[row, place[u]], slope[row, place[v]] = 1, -1
        bound = [hops[u][v] for u, v in pairs]
        solved = linprog(-gap, A_ub=slope, b_ub=bound, bounds=(-10, 10))
        assert solved.success
        out[x, y] = out[y, x] = 1 + solved.fun
    return out


@pytest.mark.parametrize("seed", range(6))
def test_ollivier_equals_linear_program(seed):
    rng = np.random.default_rng(seed)
    graph = undirected(rng, int(rng.integers(4, 13)), (0.2, 0.4, 0.7)[seed % 3])
    expected = by_linear_program(to_networkx(graph, is_directed=False))
    assert curvature(graph, OLLIVIER) == pytest.approx(expected, abs=1e-9)


def test_known_values():
    complete = np.argwhere(~np.eye(6, dtype=bool)).T
    pair = np.array([[0, 1], [1, 0]])
    cycle = to_networkx((8, np.array(nx.cycle_graph(8).edges).T), is_directed=False)
    cycle = np.array(list(cycle.to_directed().edges)).T
    for n, edges, kappa in ((6, complete, 6 / 5 / 2), (2, pair, 1), (8, cycle, 0)):
        expected = dict.fromkeys(zip(*edges.tolist()), kappa)
        assert curvature((n, edges), OLLIVIER) == pytest.approx(expected, abs=1e-12)
    assert curvature((3, np.array([[1], [1]])), OLLIVIER) == {}, "a self-loop has no curvature"


def test_forman_equals_ollivier_on_trees_and_complete_graphs():
    rng = np.random.default_rng(0)
    trees = []
    for n in (2, 3, 20, 40):
        up = np.array([rng.integers(0, i) for i in range(1, n)])
        down = np.arange(1, n)
        trees.append((n, np.stack([np.append(up, down), np.append(down, up)])))
    complete = [(n, np.argwhere(~np.eye(n, dtype=bool)).T) for n in (3, 4, 9)]
    for graph in trees + complete:
        assert curvature(graph, FORMAN) == pytest.approx(curvature(graph, OLLIVIER), abs=1e-12)


def test_forman_counts_triangles():
    square = np.array([[0, 1, 1, 2, 2, 3, 3, 0, 0, 2], [1, 0, 2, 1, 3, 2, 0, 3, 2, 0]])
    diagonal, side = 1 / 3 + 1 / 3 - 1 + 2 / 3 + 2 / 6, 1 / 3 + 1 / 2 - 1 + 1 / 3 + 1 / 4
    expected = dict.fromkeys(zip(*square.tolist()), side) | {(0, 2): diagonal, (2, 0): diagonal}
    assert curvature((4, square), FORMAN) == pytest.approx(expected)


@pytest.mark.parametrize(("name", "chance"), [(OLLIVIER, 0.3), (FORMAN, 0.9)])
def test_distance_is_the_weighted_shortest_path(name, chance):
    rng = np.random.default_rng(1)
    graphs = [undirected(rng, n, p) for n, p in ((1, 0), (12, 0.2), (70, 0.05), (30, chance))]
    arrays = pack(graphs)
    codes, book = curvature_distances(*arrays)
    assert book.name == name
    step, cuts = book.values[1], pair_pointer(arrays[0])
    for g, (n, edges) in enumerate(graphs):
        weighted = to_networkx((n, edges), is_directed=False)
        for (u, v), k in curvature((n, edges), name).items():
            weighted[u][v]["length"] = max(1 - k, FLOOR)
        ours = codes[cuts[g] : cuts[g + 1]].reshape(n, n)
        expected = np.full((n, n), np.inf)
        for i, lengths in nx.all_pairs_dijkstra_path_length(weighted, weight="length"):
            expected[i, list(lengths)] = list(lengths.values())
        np.testing.assert_array_equal(ours == 255, np.isinf(expected))
        near = np.isfinite(expected)
        assert np.abs(book.values[ours][near] - expected[near]).max() <= step / 2 + 1e-4
        assert not np.diag(ours).any()
    assert codes[codes < 255].max() == 254, "the codebook spans what was found"


def test_a_given_codebook_keeps_unit_and_curvature():
    rng = np.random.default_rng(2)
    arrays = pack([undirected(rng, 20, 0.2)])
    first, book = curvature_distances(*arrays)
    again, same = curvature_distances(*arrays, codebook=Codebook.from_dict(book.to_dict()))
    assert same == book
    np.testing.assert_array_equal(again, first)
    other, _ = curvature_distances(*arrays, codebook=Codebook(FORMAN, book.values))
    assert (other != first).any()
    short = Codebook.uniform(book.name, book.values[100])
    clipped, _ = curvature_distances(*arrays, codebook=short)
    assert (clipped[(first > 101) & (first < 255)] == 254).all()
    with pytest.raises(ConfigError, match="codebook"):
        curvature_distances(*arrays, codebook=Codebook.uniform("similarity", 1))


def test_dense_graphs_take_forman():
    rng = np.random.default_rng(3)
    assert curvature_distances(*pack([undirected(rng, 60, 0.7)]))[1].name == FORMAN
    assert curvature_distances(*pack([undirected(rng, 60, 0.1)]))[1].name == OLLIVIER


def test_direction_and_repetition_play_no_part():
    rng = np.random.default_rng(4)
    nodes, edges = directed(rng, 15, 40)
    both = np.concatenate([edges, edges[::-1], edges], axis=1)
    one, _ = curvature_distances(*pack([(nodes, edges)]))
    two, _ = curvature_distances(*pack([(nodes, both)]))
    np.testing.assert_array_equal(one, two)
    matrix = one.reshape(nodes, nodes)
    np.testing.assert_array_equal(matrix, matrix.T)


def test_permutation_equivariance():
    rng = np.random.default_rng(5)
    graph = undirected(rng, 40, 0.1)
    order = rng.permutation(40)
    before, _ = curvature_distances(*pack([graph]))
    after, _ = curvature_distances(*pack([permute(graph, order)]))
    np.testing.assert_array_equal(
        after.reshape(40, 40)[np.ix_(order, order)], before.reshape(40, 40)
    )


def test_a_pair_alone_is_as_near_as_can_be():
    codes, book = curvature_distances(*pack([path(2)]))  # κ = 1
    assert codes.tolist() == [0, 254, 254, 0]
    assert book.values[254] == pytest.approx(0.05)


def test_no_edges():
    codes, _ = curvature_distances(*pack([(2, np.zeros((2, 0))), (1, np.zeros((2, 0)))]))
    assert codes.tolist() == [0, 255, 255, 0, 0]
