"""The PyG transforms: their results travel through PyG's own loader."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import Compose

from gradformer.errors import ConfigError, InputError
from gradformer.structure import (
    AddDistance,
    AddLaplacian,
    AddRandomWalk,
    curvature_distances,
    hop_distances,
    laplacian,
    random_walk,
    similarity_distances,
)

from .random_graphs import directed, pack, path, undirected


@pytest.fixture(scope="module")
def graphs():
    rng = np.random.default_rng(0)
    return [undirected(rng, 12, 0.3), path(5), (1, np.zeros((2, 0), int)), directed(rng, 9, 20)]


def as_data(graphs):
    rng = np.random.default_rng(1)
    return [
        Data(
            x=torch.as_tensor(rng.integers(0, 3, (n, 2))),
            edge_index=torch.as_tensor(np.asarray(edges, np.int64)),
        )
        for n, edges in graphs
    ]


def test_a_batch_has_what_its_graphs_have(graphs):
    transform = Compose([AddDistance(), AddRandomWalk(6), AddLaplacian(3)])
    alone = Batch.from_data_list([transform(data) for data in as_data(graphs)])
    together = Batch.from_data_list(as_data(graphs))
    edges = torch.randperm(together.num_edges)
    together.edge_index = together.edge_index[:, edges]
    found = transform(together)
    for name in ("distance", "rwse", "lap"):
        torch.testing.assert_close(found[name], alone[name], rtol=0, atol=1e-6)
    together.batch = together.batch.flip(0)
    with pytest.raises(InputError, match=r"^batch: graphs must be numbered in ascending order"):
        transform(together)


@pytest.mark.parametrize("workers", [0, 2])
def test_loader_concatenates(graphs, workers):
    transform = Compose([AddDistance(), AddRandomWalk(6), AddLaplacian(3)])
    arrays = pack(graphs)
    hop_distances(*arrays)  # compiled code has run before the workers fork

    class Lazy(torch.utils.data.Dataset):
        data = as_data(graphs)

        def __len__(self):
            return len(self.data)

        def __getitem__(self, i):
            return transform(self.data[i])

    loader = DataLoader(Lazy(), batch_size=len(graphs), num_workers=workers)
    (batch,) = list(loader)
    np.testing.assert_array_equal(batch.distance, hop_distances(*arrays))
    assert batch.distance.dtype == torch.uint8
    np.testing.assert_array_equal(batch.rwse, random_walk(*arrays, 6))
    np.testing.assert_allclose(batch.lap, laplacian(*arrays, 3)[0], atol=1e-6)
    back = batch.to_data_list()
    assert [len(d.distance) for d in back] == [n**2 for n, _ in graphs]


def test_other_indices_share_one_unit(graphs):
    data = as_data(graphs)
    x = np.concatenate([d.x.numpy() for d in data])
    arrays = pack(graphs)

    curved = AddDistance("curvature")
    batch = Batch.from_data_list([curved(d) for d in data])
    expected, _ = curvature_distances(*arrays, codebook=curved.codebook)
    np.testing.assert_array_equal(batch.distance, expected)

    alike = AddDistance("similarity")
    batch = Batch.from_data_list([alike(d) for d in data])
    expected, _ = similarity_distances(arrays[0], x, codebook=alike.codebook)
    np.testing.assert_array_equal(batch.distance, expected)


@pytest.mark.parametrize("index", ["hops", "curvature", "similarity"])
@pytest.mark.parametrize("change", [torch.Tensor.bfloat16, torch.Tensor.to_sparse])
def test_features_of_any_kind(index, change):
    x, edges = torch.tensor([[1.0, 0.5], [0.0, 2.0]]), torch.tensor([[0, 1], [1, 0]])
    expected = AddDistance(index)(Data(x=x, edge_index=edges)).distance
    found = AddDistance(index)(Data(x=change(x), edge_index=edges)).distance
    assert torch.equal(found, expected)


def test_symmetric_hops(graphs):
    one = AddDistance(symmetric=True)(as_data(graphs)[3])
    np.testing.assert_array_equal(one.distance, hop_distances(*pack(graphs[3:]), symmetric=True))


def test_bad_input():
    with pytest.raises(ConfigError, match="did you mean 'hops'"):
        AddDistance("hop")
    with pytest.raises(ConfigError, match=r"^codebook\.name: unknown value 'similarity'"):
        AddDistance("hops", codebook=AddDistance("similarity").codebook)
    with pytest.raises(InputError, match=r"^x: absent, .*; hops and curvature do not$"):
        AddDistance("similarity")(Data(edge_index=torch.zeros(2, 0, dtype=torch.long), num_nodes=2))
    with pytest.raises(InputError, match=r"^data: expected PyG's Data, got HeteroData; .*to_homog"):
        AddDistance()(HeteroData())
    with pytest.raises(InputError, match="edge_index"):
        AddDistance()(Data(x=torch.ones(2, 1)))
