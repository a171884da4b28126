"""Sums and gathers along edges against their definitions, derivatives and padding included."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from gradformer.attention.layout import Layout
from gradformer.graphs.batch import Edges, sort_edges
from gradformer.model import segments
from gradformer.model.segments import (
    from_source,
    moved,
    pool,
    rows_of,
    sum_of_sources,
    sum_to_target,
)


@pytest.fixture
def edges() -> Edges:
    """Two directed graphs of 5 and 4 nodes; node 8 has no edge."""
    rng = np.random.default_rng(0)
    pairs = np.argwhere(rng.random((5, 5)) < 0.5).T
    more = np.argwhere(rng.random((3, 3)) < 0.7).T + 5
    index = torch.from_numpy(np.concatenate([pairs, more], axis=1))
    return sort_edges(index, Layout.from_sizes([5, 4]))[0]


def adjacency(edges: Edges) -> torch.Tensor:
    """A[t, s] = number of edges s → t, [nodes, nodes]."""
    dense = torch.zeros(9, 9, dtype=torch.float64)
    return dense.index_put_(
        (edges.target.long(), edges.source.long()), torch.ones(edges.num_edges).double(), True
    )


def test_sums_are_products_with_the_adjacency_matrix(edges: Edges) -> None:
    x = torch.randn(9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    dense = adjacency(edges)
    torch.testing.assert_close(sum_of_sources(x, edges), dense @ x)
    torch.testing.assert_close(sum_to_target(from_source(x, edges), edges), dense @ x)


def test_derivatives_of_first_and_second_order(edges: Edges) -> None:
    x = torch.randn(9, 2, dtype=torch.float64, requires_grad=True)
    v = torch.randn(edges.num_edges, 2, dtype=torch.float64, requires_grad=True)
    for function, argument in (
        (lambda x: sum_of_sources(x, edges), x),
        (lambda v: sum_to_target(v, edges).square(), v),
        (lambda x: from_source(x, edges), x),
    ):
        assert torch.autograd.gradcheck(function, argument)
        assert torch.autograd.gradgradcheck(function, argument)


def test_rows_move_to_other_places_and_their_gradients_back() -> None:
    there, back = torch.tensor([2, -1, 0, -1]), torch.tensor([2, -1, 0])
    x = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)
    y = moved(x, there, back)
    assert torch.equal(y, torch.stack([x[2], 0 * x[0], x[0], 0 * x[0]]))
    assert torch.autograd.gradcheck(lambda x: moved(x, there, back), x)
    assert torch.autograd.gradgradcheck(lambda x: moved(x, there, back).square(), x)


@pytest.mark.parametrize("way", [rows_of, segments._Rows.apply])
def test_rows_of_a_table_and_their_gradients(way: Callable[[Tensor, Tensor], Tensor]) -> None:
    """The second way is that of a GPU; rows 0 and 4 are read by none."""
    table = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    index = torch.tensor([3, 1, 3, 2, 3, 1])
    assert torch.equal(way(table, index), table[index])
    slope = torch.randn(6, 2, dtype=torch.float64)
    (found,) = torch.autograd.grad(way(table, index), table, slope)
    torch.testing.assert_close(found, torch.zeros(5, 2).double().index_add(0, index, slope))
    assert torch.autograd.gradgradcheck(lambda table: way(table, index).square(), table)


def test_edges_of_padding_take_no_part(edges: Edges) -> None:
    more = [torch.full((4,), 8, dtype=torch.int32), torch.zeros(4, dtype=torch.int32)]
    place = torch.arange(edges.num_edges, edges.num_edges + 4, dtype=torch.int32)
    padded = Edges(
        torch.cat([edges.source, more[0]]),
        torch.cat([edges.target, more[1]]),
        edges.target_ptr,
        torch.cat([edges.by_source, place]),
        edges.source_ptr,
        edges.rows,
    )
    x = torch.randn(9, 3)
    assert torch.equal(sum_of_sources(x, padded), sum_of_sources(x, edges))
    values = torch.randn(padded.num_edges, 3)
    assert torch.equal(
        sum_to_target(values, padded), sum_to_target(values[: edges.num_edges], edges)
    )


def test_pools_of_graphs_and_of_nothing() -> None:
    x, ptr = torch.arange(8.0).view(4, 2), torch.tensor([0, 3, 3, 4], dtype=torch.int32)
    assert pool(x, ptr, "add").tolist() == [[6, 9], [0, 0], [6, 7]]
    assert pool(x, ptr, "mean").tolist() == [[2, 3], [0, 0], [6, 7]]
    assert pool(x, ptr, "max").tolist() == [[4, 5], [0, 0], [6, 7]]
