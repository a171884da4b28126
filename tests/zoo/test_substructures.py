"""Candidates against all subsets of small graphs, and what a sample promises."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from gradformer.errors import ConfigError
from gradformer.structure.adjacency import simple_neighbours
from gradformer.zoo.shapes import find_balls, find_shapes, find_walks
from gradformer.zoo.substructures import substructures
from tests.zoo import toys


def random_graph(n, share, seed):
    rng = np.random.default_rng(seed)
    upper = np.argwhere(np.triu(rng.random((n, n)) < share, 1))
    index = np.concatenate([upper, upper[:, ::-1]]).T
    lists = simple_neighbours(np.array([0, n]), np.array([0, index.shape[1]]), index)
    linked = np.zeros((n, n), bool)
    linked[tuple(index)] = True
    return lists, linked


def rows(pieces):
    return [tuple(int(v) for v in piece if v >= 0) for piece in pieces]


def connected(linked):
    seen = {0}
    while grown := {int(w) for v in seen for w in np.flatnonzero(linked[v])} - seen:
        seen |= grown
    return len(seen) == len(linked)


@pytest.mark.parametrize(("n", "share"), [(1, 0.0), (7, 0.3), (9, 0.35), (9, 0.7)])
def test_shapes_are_all_induced_cycles_paths_and_stars(n, share):
    (ptr, near), linked = random_graph(n, share, seed=n)
    cycles, paths, stars = [], [], []
    for size in range(3, 9):
        for nodes in combinations(range(n), size):
            inside = linked[np.ix_(nodes, nodes)]
            degree = sorted(inside.sum(0).tolist())
            if degree == [2] * size and connected(inside):
                cycles.append(nodes)
            if size >= 4 and degree == [1, 1] + [2] * (size - 2) and connected(inside):
                paths.append(nodes)
            if size <= 7 and degree == [1] * (size - 1) + [size - 1]:
                stars.append(nodes)
    pieces, count = find_shapes(ptr, near, 4096, 8)
    found = rows(pieces)
    assert sorted(found[:count]) == sorted(cycles)
    assert sorted(found[count:]) == sorted(paths + stars)
    assert [len(piece) for piece in found[:count]] == sorted(map(len, cycles))


def test_balls_keep_the_nearest():
    edges = np.array([[0, 1, 1, 2, 2, 3, 3, 4], [1, 0, 2, 1, 3, 2, 4, 3]])
    ptr, near = simple_neighbours(np.array([0, 5]), np.array([0, 8]), edges)
    assert rows(find_balls(ptr, near, 9))[2] == (0, 1, 2, 3, 4)
    assert rows(find_balls(ptr, near, 9))[0] == (0, 1, 2)
    assert rows(find_balls(ptr, near, 4))[2] == (0, 1, 2, 3)


def test_walks_are_connected_and_begin_at_their_node():
    (ptr, near), linked = random_graph(12, 0.25, seed=4)
    pieces, used = find_walks(ptr, near, 6, np.uint64(5), 0)
    assert 0 < used <= 12 * 5
    for root, piece in enumerate(rows(pieces)):
        assert root in piece
        assert len(piece) <= 6
        assert connected(linked[np.ix_(piece, piece)])


@pytest.mark.parametrize("kind", ["shapes", "walks"])
def test_sample_covers_every_node(kind):
    graphs = toys.toy_graphs(toys.toy_schema())
    found = substructures(
        graphs.node_ptr, graphs.edge_ptr, graphs.edge_index, kind=kind, members=9, redundancy=2
    )
    assert found.shape[:2] == (len(toys.SIZES), 1)
    covered = [{v for piece in rows(pieces) for v in piece} for pieces in found[:, 0]]
    # half of the candidates are set aside, so a node may stay uncovered, but not many
    assert sum(map(len, covered)) > 0.8 * sum(toys.SIZES)
    assert all(nodes <= set(range(n)) for nodes, n in zip(covered, toys.SIZES))


def test_sample_depends_on_its_number_and_graph_only():
    graphs = toys.toy_graphs(toys.toy_schema())
    whole = substructures(graphs.node_ptr, graphs.edge_ptr, graphs.edge_index, samples=2)
    one = graphs.edge_index[:, graphs.edge_ptr[2] : graphs.edge_ptr[3]]
    alone = substructures(np.array([0, 9]), np.array([0, one.shape[1]]), one, samples=2)
    assert [rows(p) for p in alone[0]] == [rows(p) for p in whole[2, :, : alone.shape[2]]]
    assert (whole[2, :, alone.shape[2] :] == -1).all()
    assert rows(alone[0, 0]) != rows(alone[0, 1])


def test_refuses_too_few_members():
    with pytest.raises(ConfigError, match="members: got 5, expected at least 8"):
        substructures(np.array([0, 1]), np.array([0, 0]), np.zeros((2, 0), np.int64), members=5)
