"""GraphTrans: the truncation of long graphs, and the sum of all layers."""

from __future__ import annotations

import torch

from gradformer.attention import Layout
from gradformer.zoo.graphtrans import last_nodes
from tests.zoo import toys


def test_keeps_the_last_nodes():
    layout = Layout.from_sizes([5, 2, 4])
    smaller, rows = last_nodes(layout, 3)
    assert smaller.node_ptr.tolist() == [0, 3, 5, 8]
    assert rows.tolist()[:8] == [2, 3, 4, 5, 6, 8, 9, 10]
    assert last_nodes(layout, 5) == (layout, None)


def test_sum_of_all_layers_or_as_the_reference():
    batch = toys.toy_batch(toys.toy_schema())
    ours, theirs = (
        toys.make("graphtrans", join="sum", reference_quirks=quirks).eval().gnn
        for quirks in (False, True)
    )
    last = ours.layers[-1](ours.layers[0](ours.node(batch), batch), batch)
    torch.testing.assert_close(ours(batch), theirs(batch) + last)


def test_residuals_add_what_enters():
    batch = toys.toy_batch(toys.toy_schema())
    with_them, without = (
        toys.make("graphtrans", virtual_node=True, gnn_residual=residual).eval().gnn
        for residual in (True, False)
    )
    x, v = torch.randn(batch.num_nodes, 12), torch.randn(batch.num_graphs, 12)
    found = [gnn.layers[0](x, batch) for gnn in (with_them, without)]
    torch.testing.assert_close(found[0], found[1] + x)
    found = [gnn.virtual_nodes[0](v, x, batch) for gnn in (with_them, without)]
    torch.testing.assert_close(found[0], found[1] + v)
