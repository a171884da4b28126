"""PATTERN and CLUSTER follow their published law, and are the same everywhere."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from gradformer.graphs import sbm
from gradformer.graphs.arrays import GraphArrays


@pytest.fixture(scope="module")
def cluster() -> GraphArrays:
    return sbm.cluster(seed=3, splits=(1_000, 100, 100)).check("CLUSTER")


@pytest.fixture(scope="module")
def pattern() -> GraphArrays:
    return sbm.pattern(seed=3, patterns=100, copies=(8, 2, 2)).check("PATTERN")


def dense(arrays: GraphArrays, graph: int) -> np.ndarray:
    n = arrays.sizes[graph]
    adjacency = np.zeros((n, n), int)
    source, target = arrays.edge_index[:, arrays.edge_ptr[graph] : arrays.edge_ptr[graph + 1]]
    np.add.at(adjacency, (source, target), 1)
    return adjacency


@pytest.mark.parametrize("name", ["cluster", "pattern"])
def test_graphs_are_simple_and_undirected(name: str, request: pytest.FixtureRequest) -> None:
    arrays = request.getfixturevalue(name)
    for graph in range(20):
        adjacency = dense(arrays, graph)
        assert (adjacency == adjacency.T).all()
        assert adjacency.max() == 1
        assert adjacency.trace() == 0


def test_edges_come_sorted_by_destination(cluster: GraphArrays) -> None:
    graph = np.repeat(np.arange(cluster.num_graphs), np.diff(cluster.edge_ptr))
    source, target = cluster.edge_index.astype(np.int64)
    assert (np.diff((graph * 256 + target) * 256 + source) > 0).all()


def densities(arrays: GraphArrays, block: np.ndarray, graphs: int) -> tuple[float, float]:
    """Share of joined pairs inside a block and across blocks."""
    joined, pairs = np.zeros(2), np.zeros(2)
    for g in range(graphs):
        adjacency = dense(arrays, g)
        b = block[arrays.node_ptr[g] : arrays.node_ptr[g + 1]]
        same = b[:, None] == b
        off = ~np.eye(len(b), dtype=bool)
        for i, mask in enumerate((same & off, ~same)):
            joined[i] += adjacency[mask].sum()
            pairs[i] += mask.sum()
    return tuple(joined / pairs)


def test_cluster_follows_its_law(cluster: GraphArrays) -> None:
    # 6 blocks of mean 19.5, variance 74.9: standard error of the mean over 1,200 graphs is 0.61.
    assert cluster.sizes.mean() == pytest.approx(117.0, abs=2.5)
    assert np.diff(cluster.edge_ptr).mean() / 2 == pytest.approx(2145, abs=100)
    shares = np.bincount(cluster.y) / len(cluster.y)
    assert shares == pytest.approx(np.full(6, 1 / 6), abs=0.01)
    inside, across = densities(cluster, cluster.y, 150)
    assert inside == pytest.approx(0.55, abs=0.006)
    assert across == pytest.approx(0.25, abs=0.004)
    graph = np.repeat(np.arange(cluster.num_graphs), cluster.sizes)
    block_sizes = np.zeros((cluster.num_graphs, 6), int)
    np.add.at(block_sizes, (graph, cluster.y), 1)
    assert block_sizes.min() == 5
    assert block_sizes.max() == 34


def test_cluster_marks_one_random_node_of_each_block(cluster: GraphArrays) -> None:
    graph = np.repeat(np.arange(cluster.num_graphs), cluster.sizes)
    marked = cluster.x[:, 0] > 0
    assert (cluster.x[marked, 0] == cluster.y[marked] + 1).all()
    assert (np.bincount(graph[marked], minlength=cluster.num_graphs) == 6).all()
    place = (np.flatnonzero(marked) - cluster.node_ptr[graph[marked]]) / cluster.sizes[
        graph[marked]
    ]
    assert place.mean() == pytest.approx(0.5, abs=0.02)
    assert place.std() == pytest.approx(12**-0.5, abs=0.02)


def test_pattern_follows_its_law(pattern: GraphArrays) -> None:
    # One hundred pattern sizes only: a standard error of 0.87 nodes.
    assert pattern.sizes.mean() == pytest.approx(117.0, abs=4)
    assert pattern.y.mean() == pytest.approx(0.170, abs=0.025)
    assert np.bincount(pattern.x[:, 0]) / len(pattern.x) == pytest.approx(
        np.full(3, 1 / 3), abs=0.02
    )
    joined = pairs = 0
    for g in range(100):
        adjacency = dense(pattern, g)
        y = pattern.y[pattern.node_ptr[g] : pattern.node_ptr[g + 1]]
        between = np.not_equal.outer(y, y)
        joined += adjacency[between].sum()
        pairs += between.sum()
    assert joined / pairs == pytest.approx(0.5, abs=0.006)


def test_pattern_background_has_two_densities(pattern: GraphArrays) -> None:
    """Background pairs: p = 0.5 inside blocks, q = 0.35 across, five blocks of mean size 19.5."""
    joined = pairs = 0
    for g in range(200):
        y = pattern.y[pattern.node_ptr[g] : pattern.node_ptr[g + 1]]
        adjacency = dense(pattern, g)[y == 0][:, y == 0]
        joined += adjacency.sum()
        pairs += len(adjacency) * (len(adjacency) - 1)
    same = 5 * (19.5**2 + 74.9 - 19.5)
    across = 20 * 19.5**2
    expected = (0.5 * same + 0.35 * across) / (same + across)
    assert joined / pairs == pytest.approx(expected, abs=0.004)


def test_a_pattern_is_repeated_unchanged(pattern: GraphArrays) -> None:
    """Graphs 0..7 and the first of the other splits hide the same pattern, in shuffled order."""

    def hidden(g: int) -> tuple[int, list[int], list[int]]:
        own = slice(pattern.node_ptr[g], pattern.node_ptr[g + 1])
        y, x = pattern.y[own], pattern.x[own, 0]
        inside = dense(pattern, g)[y == 1][:, y == 1]
        features = np.bincount(x[y == 1], minlength=3).tolist()
        return len(inside), sorted(inside.sum(0).tolist()), features

    same = [hidden(g) for g in (0, 1, 7, 800, 1000)]
    assert all(found == same[0] for found in same)
    assert hidden(8) != same[0]


def test_splits_follow_one_another(pattern: GraphArrays) -> None:
    assert pattern.split is not None
    assert np.bincount(pattern.split[:, 0]).tolist() == [800, 200, 200]
    assert (np.diff(pattern.split[:, 0]) >= 0).all()


def digest(arrays: GraphArrays) -> str:
    parts = (arrays.node_ptr, arrays.edge_ptr, arrays.edge_index, arrays.x, arrays.y)
    return hashlib.sha256(b"".join(np.ascontiguousarray(p).tobytes() for p in parts)).hexdigest()[
        :16
    ]


def test_seeds_name_the_graphs_for_good() -> None:
    """These values are part of the format: recorded results refer to them."""
    assert digest(sbm.cluster(seed=0, splits=(5, 1, 1))) == "aff660f15d3727af"
    assert digest(sbm.pattern(seed=0, patterns=2, copies=(2, 1, 1))) == "d2d2deda19866857"
    assert digest(sbm.cluster(seed=1, splits=(5, 1, 1))) != digest(sbm.cluster(0, (5, 1, 1)))


def test_a_graph_does_not_depend_on_how_many_follow() -> None:
    few, many = sbm.cluster(seed=5, splits=(3, 0, 0)), sbm.cluster(seed=5, splits=(9, 0, 0))
    assert (few.edge_index == many.edge_index[:, : few.edge_ptr[-1]]).all()
    assert (few.x == many.x[: few.node_ptr[-1]]).all()
