"""Hop distances against networkx, the reference files and the search without numba."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from gradformer.errors import InputError
from gradformer.structure import HOPS, SATURATED, UNREACHABLE, distance, hop_distances, pair_pointer
from gradformer.structure.adjacency import neighbours

from .random_graphs import directed, pack, path, permute, separate, to_networkx, undirected


def matrices(graphs, **options):
    """One [n, n] array for each graph."""
    flat = hop_distances(*pack(graphs), **options)
    cuts = pair_pointer(pack(graphs)[0])
    return [flat[a:b].reshape(n, n) for a, b, (n, _) in zip(cuts[:-1], cuts[1:], graphs)]


def by_networkx(graph, *, symmetric=False):
    nodes, _ = graph
    out = np.full((nodes, nodes), UNREACHABLE, np.uint8)
    for i, lengths in nx.all_pairs_shortest_path_length(
        to_networkx(graph, is_directed=not symmetric)
    ):
        for j, hops in lengths.items():
            out[i, j] = min(hops, SATURATED)
    return out


@pytest.fixture(scope="module")
def zoo():
    """Directed, disconnected, dense, single, empty, deep and word-size graphs."""
    rng = np.random.default_rng(0)
    graphs = [
        directed(rng, n, n * d // 2) for n in (1, 2, 9, 63, 64, 65, 130) for d in (0, 1, 3, 9)
    ]
    graphs += [undirected(rng, n, p) for n in (5, 64, 128) for p in (0.02, 0.3, 1.0)]
    graphs += [path(n) for n in (2, 65, 66, 67, 90)]
    return graphs


@pytest.mark.parametrize("symmetric", [False, True])
def test_equals_networkx(zoo, symmetric):
    for graph, ours in zip(zoo, matrices(zoo, symmetric=symmetric)):
        np.testing.assert_array_equal(ours, by_networkx(graph, symmetric=symmetric))


@pytest.mark.parametrize("symmetric", [False, True])
def test_without_numba_the_same(zoo, symmetric, monkeypatch):
    node_ptr, edge_ptr, edge_index = pack(zoo)
    expected = hop_distances(node_ptr, edge_ptr, edge_index, symmetric=symmetric)
    monkeypatch.setattr("gradformer.structure.distance.HAVE_NUMBA", False)
    monkeypatch.setattr("gradformer.structure.adjacency.HAVE_NUMBA", False)
    ours = hop_distances(node_ptr, edge_ptr, edge_index, symmetric=symmetric)
    np.testing.assert_array_equal(ours, expected)


def test_long_paths_saturate():
    (ours,) = matrices([path(300)])
    i, j = np.indices(ours.shape)
    np.testing.assert_array_equal(ours, np.minimum(np.abs(i - j), SATURATED))
    np.testing.assert_array_equal(by_networkx(path(300)), ours)


def test_deep_graphs_take_the_plain_search(monkeypatch):
    graphs = [path(distance.MAX_LEVELS + 20), undirected(np.random.default_rng(1), 40, 0.1)]
    expected = matrices(graphs)
    called = []
    plain = distance._search_nodes
    monkeypatch.setattr(distance, "_search_nodes", lambda *a: called.append(a) or plain(*a))
    for a, b in zip(matrices(graphs), expected):
        np.testing.assert_array_equal(a, b)
    assert len(called) == 1
    assert set(called[0][2].tolist()) == {0}, "only the path is deep"


def test_permutation_equivariance():
    rng = np.random.default_rng(2)
    for graph in (directed(rng, 70, 150), undirected(rng, 100, 0.03)):
        order = rng.permutation(graph[0])
        (before,), (after,) = matrices([graph]), matrices([permute(graph, order)])
        np.testing.assert_array_equal(after[np.ix_(order, order)], before)


def test_large_batches_are_split_between_threads(monkeypatch):
    monkeypatch.setattr("gradformer.structure.parallel.cores", lambda: 3)
    rng = np.random.default_rng(3)
    graphs = [undirected(rng, 400, 0.02) for _ in range(30)]
    graphs += [path(2), directed(rng, 2000, 6000)]
    seen = []
    arrays = pack(graphs)
    ours = hop_distances(*arrays, progress=seen.append)
    assert sum(seen) == len(graphs)
    assert len(seen) > 1
    expected = distance._search_scipy(arrays[0], neighbours(*arrays))
    np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("case", ["a", "b", "d"])
def test_equals_reference_files(golden_folder, case):
    file = np.load(golden_folder / "gradformer" / f"case_{case}.npz")
    for g, ours in enumerate(matrices(separate(file))):
        n = len(ours)
        np.testing.assert_array_equal(HOPS.values[ours], file["spd"][g, :n, :n])


def test_nothing_at_all():
    assert hop_distances(np.array([0]), np.array([0]), np.zeros((2, 0), np.int32)).shape == (0,)
    assert matrices([(1, np.zeros((2, 0)))])[0].tolist() == [[0]]


@pytest.mark.parametrize("numba", [True, False])
@pytest.mark.parametrize("bad", [(0, 3), (3, 0), (-1, 0), (0, -1)])
def test_edges_that_leave_their_graph(numba, bad, monkeypatch):
    if not numba:
        monkeypatch.setattr("gradformer.structure.adjacency.HAVE_NUMBA", False)
    edges = np.array([[0, 1, bad[0]], [1, 2, bad[1]]])
    arrays = pack([(3, np.array([[0], [1]])), (3, edges)])
    with pytest.raises(InputError, match="graph 1 has an edge"):
        hop_distances(*arrays)


@pytest.mark.parametrize(
    ("node_ptr", "edge_ptr", "edge_index", "named"),
    [
        ([0, 2], [0, 2], np.zeros((2, 1), int), "edge_index"),
        ([0, 2], [0, 1], np.zeros((2, 1)), "edge_index"),
        ([1, 2], [0, 1], np.zeros((2, 1), int), "node_ptr"),
        ([0, 2, 1], [0, 1, 1], np.zeros((2, 1), int), "node_ptr"),
        ([0, 2, 3], [0, 1], np.zeros((2, 1), int), "edge_ptr"),
    ],
)
def test_wrong_shapes(node_ptr, edge_ptr, edge_index, named):
    with pytest.raises(InputError, match=named):
        hop_distances(np.array(node_ptr), np.array(edge_ptr), edge_index)
