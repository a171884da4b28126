"""Random-walk and Laplacian encodings against their definitions, PyG and the reference files."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import AddRandomWalkPE

from gradformer.errors import ConfigError
from gradformer.structure import laplacian, random_walk

from .random_graphs import directed, pack, path, permute, separate, to_networkx, undirected


@pytest.fixture(scope="module")
def zoo():
    rng = np.random.default_rng(0)
    graphs = [undirected(rng, n, p) for n in (1, 2, 17, 64, 100) for p in (0.0, 0.05, 0.4)]
    return [*graphs, path(70), (3, np.zeros((2, 0), int))]


def returns(graph, steps):
    """diag((D⁻¹A)ᵗ) by matrix powers in float64, edges counted as often as they are listed."""
    nodes, edges = graph
    counts = np.zeros((nodes, nodes))
    np.add.at(counts, tuple(np.asarray(edges, int)), 1)
    walk = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    return np.stack([np.diag(np.linalg.matrix_power(walk, t + 1)) for t in range(steps)], 1)


@pytest.mark.parametrize("numba", [True, False])
def test_random_walk_is_the_diagonal_of_powers(zoo, numba, monkeypatch):
    rng = np.random.default_rng(1)
    graphs = zoo + [directed(rng, n, 3 * n) for n in (1, 30, 90)]
    if not numba:
        monkeypatch.setattr("gradformer.structure.encodings.HAVE_NUMBA", False)
    ours = random_walk(*pack(graphs), 9)
    expected = np.concatenate([returns(graph, 9) for graph in graphs])
    np.testing.assert_allclose(ours, expected, atol=1e-6)


def test_random_walk_equals_pyg(zoo):
    for nodes, edges in zoo:
        graph = Data(edge_index=torch.as_tensor(np.asarray(edges, np.int64)), num_nodes=nodes)
        theirs = AddRandomWalkPE(20, attr_name="pe")(graph).pe
        ours = random_walk(*pack([(nodes, edges)]), 20)
        np.testing.assert_allclose(ours, theirs.numpy(), atol=1e-6)


@pytest.mark.parametrize("case", ["a", "b", "d"])
def test_random_walk_equals_reference_files(golden_folder, case):
    file = np.load(golden_folder / "gradformer" / f"case_{case}.npz")
    ours = random_walk(*pack(separate(file)), file["pe"].shape[1])
    np.testing.assert_allclose(ours, file["pe"], atol=1e-6)


def test_random_walk_moves_with_the_nodes():
    rng = np.random.default_rng(2)
    graph = undirected(rng, 80, 0.05)
    order = rng.permutation(80)
    before, after = random_walk(*pack([graph]), 16), random_walk(*pack([permute(graph, order)]), 16)
    np.testing.assert_allclose(after[order], before, atol=1e-6)


def laplacian_matrix(graph, normalization, isolated):
    adjacency = nx.to_numpy_array(to_networkx(graph, is_directed=False))
    np.fill_diagonal(adjacency, 0)
    degree = adjacency.sum(1)
    if normalization == "none":
        return np.diag(degree) - adjacency
    scale = np.diag(np.where(degree > 0, degree, 1) ** -0.5)
    return np.diag(np.where(degree > 0, 1, isolated)) - scale @ adjacency @ scale


@pytest.mark.parametrize("normalization", ["sym", "none"])
@pytest.mark.parametrize("isolated", [0.0, 1.0])
@pytest.mark.parametrize("skip_first", [True, False])
def test_laplacian_gives_the_first_eigenpairs(zoo, normalization, isolated, skip_first):
    rng = np.random.default_rng(3)
    graphs = [*zoo, directed(rng, 25, 60)]
    node_ptr, edge_ptr, edge_index = pack(graphs)
    k = 8
    vectors, values = laplacian(
        node_ptr,
        edge_ptr,
        edge_index,
        k,
        normalization=normalization,
        skip_first=skip_first,
        isolated=isolated,
    )
    for g, graph in enumerate(graphs):
        mine = vectors[node_ptr[g] : node_ptr[g + 1]].astype(np.float64)
        kept = max(0, min(k, graph[0] - skip_first))
        matrix = laplacian_matrix(graph, normalization, isolated)
        spectrum = np.linalg.eigvalsh(matrix)[int(skip_first) :][:kept]
        np.testing.assert_allclose(values[g, :kept], spectrum, atol=1e-5)
        np.testing.assert_allclose(matrix @ mine[:, :kept], mine[:, :kept] * spectrum, atol=1e-5)
        np.testing.assert_allclose(mine[:, :kept].T @ mine[:, :kept], np.eye(kept), atol=1e-5)
        assert not mine[:, kept:].any()
        assert not values[g, kept:].any()


def test_laplacian_of_many_pieces_has_orthogonal_eigenvectors():
    rng = np.random.default_rng(0)
    graphs = [undirected(rng, 130, 0.004) for _ in range(60)]
    node_ptr, *_ = arrays = pack(graphs)
    vectors, _ = laplacian(*arrays, 8)
    for graph, rows in zip(graphs, map(slice, node_ptr[:-1], node_ptr[1:])):
        mine = vectors[rows].astype(np.float64)
        matrix = laplacian_matrix(graph, "sym", 1.0)
        np.testing.assert_allclose(matrix @ mine, mine * np.diag(mine.T @ matrix @ mine), atol=1e-5)
        np.testing.assert_allclose(mine.T @ mine, np.eye(8), atol=1e-5)


def test_laplacian_signs_do_not_depend_on_chance():
    rng = np.random.default_rng(4)
    graph = undirected(rng, 30, 0.2)
    ours, _ = laplacian(*pack([graph]), 5)
    leader = np.abs(ours).argmax(axis=0)
    assert (ours[leader, range(5)] > 0).all()
    order = rng.permutation(30)
    moved, _ = laplacian(*pack([permute(graph, order)]), 5)
    np.testing.assert_allclose(moved[order], ours, atol=1e-5)


@pytest.mark.parametrize("folder", ["gatedgcn", "gt"])
def test_laplacian_equals_reference_files(golden_folder, folder):
    isolated = {"gatedgcn": 0.0, "gt": 1.0}[folder]
    checked = 0
    for name in sorted((golden_folder / folder).glob("case_*.npz")):
        file = np.load(name)
        encoding = file["pe" if "pe" in file else "lap_pos_enc"].astype(np.float64)
        graphs = separate(file)
        node_ptr, *_ = pack(graphs)
        ours, values = laplacian(*pack(graphs), encoding.shape[1], isolated=isolated)
        for g, rows in enumerate(map(slice, node_ptr[:-1], node_ptr[1:])):
            matrix = laplacian_matrix(graphs[g], "sym", isolated)
            theirs = encoding[rows]
            np.testing.assert_allclose(matrix @ theirs, theirs * values[g], atol=1e-5)
            assert (np.abs(ours[rows]).any(0) == theirs.any(0)).all()
            checked += 1
    assert checked


def test_laplacian_in_threads_is_the_same(monkeypatch):
    monkeypatch.setattr("gradformer.structure.parallel.cores", lambda: 3)
    rng = np.random.default_rng(5)
    graphs = [undirected(rng, 40, 0.2) for _ in range(40)]
    seen = []
    together, _ = laplacian(*pack(graphs), 4, progress=seen.append)
    alone = np.concatenate([laplacian(*pack([graph]), 4)[0] for graph in graphs])
    np.testing.assert_array_equal(together, alone)
    assert sum(seen) == 40


def test_impossible_options():
    arrays = pack([path(3)])
    with pytest.raises(ConfigError, match="steps"):
        random_walk(*arrays, 0)
    with pytest.raises(ConfigError, match="k: got 0, expected at least 1"):
        laplacian(*arrays, 0)
    with pytest.raises(ConfigError, match="normalization"):
        laplacian(*arrays, 2, normalization="symmetric")
