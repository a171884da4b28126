"""Neighbourhoods beside PyG's, directed graphs and padding included."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.utils import k_hop_subgraph

from gradformer.attention import Layout
from gradformer.graphs.batch import batch_distances, sort_edges
from gradformer.zoo.subgraphs import neighbourhoods
from tests.zoo import toys


def listed(subgraphs, count, kept):
    """(root, nodes, edges between nodes, edge numbers) of each neighbourhood, as sorted lists."""
    node, root = (
        subgraphs.members.source[:count].tolist(),
        subgraphs.members.target[:count].tolist(),
    )
    inside, copies = subgraphs.inside, subgraphs.copies
    found = {r: ([n for n, t in zip(node, root) if t == r], []) for r in set(root)}
    for k in range(kept):
        source, target = int(inside.source[k]), int(inside.target[k])
        assert root[source] == root[target]
        found[root[source]][1].append((node[source], node[target], int(copies.source[k])))
    return {r: (sorted(nodes), sorted(edges)) for r, (nodes, edges) in found.items()}


@pytest.mark.parametrize("hops", [0, 1, 2])
def test_directed_neighbourhoods_are_pygs(hops):
    torch.manual_seed(0)
    sizes = [6, 1, 5]
    layout = Layout.from_sizes(sizes)
    blocks, first = [], 0
    for n in sizes:
        blocks.append((torch.rand(n, n) < 0.25).fill_diagonal_(False).nonzero().T + first)
        first += n
    index = torch.cat(blocks, dim=1)
    edges, order = sort_edges(index, layout)
    made = neighbourhoods(layout, edges, batch_distances(edges, layout), hops)
    found = listed(made, made.members.num_edges, made.inside.num_edges)
    for root in range(12):
        nodes, _, _, mask = k_hop_subgraph(root, hops, index[:, order], num_nodes=12)
        pairs = index[:, order][:, mask]
        numbers = mask.nonzero()[:, 0]
        expected = sorted(zip(pairs[0].tolist(), pairs[1].tolist(), numbers.tolist()))
        assert found[root] == (sorted(nodes.tolist()), expected)


def test_padding_comes_after_the_same_neighbourhoods():
    make = toys.collator(toys.toy_graphs(toys.toy_schema()))
    plain, padded = make(toys.IDS), make(toys.PADDED_IDS, toys.CAPACITIES[0])
    ours = neighbourhoods(plain.layout, plain.edges, plain.distance, 2)
    other = neighbourhoods(padded.layout, padded.edges, padded.distance, 2)
    for name in ("members", "inside", "copies"):
        a, b = getattr(ours, name), getattr(other, name)
        assert int(b.rows.mask.sum()) == a.num_edges
        assert torch.equal(b.source[: a.num_edges], a.source)
        assert torch.equal(b.target[: a.num_edges], a.target)
        assert torch.equal(b.by_source[: a.num_edges], a.by_source)
        assert int(b.target_ptr[-1]) == int(b.source_ptr[-1]) == a.num_edges


def test_pre_norm_normalises_what_branches_read_and_what_they_add_to():
    model = toys.make("sat", pre_norm=True).eval()
    batch, layer = toys.toy_batch(model.schema), model.layers[0]
    x, e = torch.randn(batch.num_nodes, model.config.width), model.edge(batch)
    parts = []
    layer.attention.register_forward_hook(lambda _, inputs, out: parts.append(out))
    layer.feed_forward.register_forward_hook(lambda _, inputs, out: parts.append(out))
    found = layer(x, e, batch, None, None)
    mixed, fed = parts
    u = layer.norm(layer.attention_norm(x, batch.nodes) + mixed, batch.nodes)
    torch.testing.assert_close(found, u + fed)
    torch.testing.assert_close(fed, layer.feed_forward(u, batch))
