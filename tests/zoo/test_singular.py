"""The singular vectors that EGT reads."""

from __future__ import annotations

import numpy as np

from gradformer.zoo.singular import singular_vectors
from tests.zoo import toys


def test_singular_vectors_give_the_adjacency_back():
    arrays = toys.toy_graphs(toys.toy_schema())
    seen: list[int] = []
    found = singular_vectors(
        arrays.node_ptr, arrays.edge_ptr, arrays.edge_index, 9, progress=seen.append
    )
    assert sum(seen) == len(toys.SIZES)
    for g, n in enumerate(toys.SIZES):
        index = arrays.edge_index[:, arrays.edge_ptr[g] : arrays.edge_ptr[g + 1]]
        expected = np.eye(n)
        expected[index[0], index[1]] = 1
        left, right = found[arrays.node_ptr[g] : arrays.node_ptr[g + 1]].transpose(2, 0, 1)
        np.testing.assert_allclose(left @ right.T, expected, atol=1e-5)
        assert not left[:, n:].any()
