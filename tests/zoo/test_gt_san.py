"""GT and SAN: the complete graph, attention that a loop can check, signs of eigenvectors."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from gradformer.model.base import create_model, model_class
from gradformer.zoo.complete_graph import complete_edges, unlinked
from gradformer.zoo.eigenpairs import NORMALISED
from tests.zoo import toys


def test_complete_edges_are_all_pairs():
    batch = toys.toy_batch(toys.toy_schema())
    pairs = complete_edges(batch.layout)
    first = batch.layout.node_ptr.tolist()
    spans = [range(a, b) for a, b in pairwise(first)]
    expected = [(s, t) for span in spans for t in span for s in span if s != t]
    assert list(zip(pairs.source.tolist(), pairs.target.tolist())) == expected
    by_source = sorted(range(len(expected)), key=lambda i: expected[i])
    assert pairs.by_source.tolist() == by_source
    linked = set(zip(batch.edges.source.tolist(), batch.edges.target.tolist()))
    assert unlinked(batch.edges, pairs, batch.layout).tolist() == [
        p not in linked for p in expected
    ]


def test_san_attention_by_hand():
    """One layer against loops over pairs: two kinds of scores, one normaliser."""
    model = toys.make("san", gamma=0.5).double().eval()
    batch = toys.toy_batch(model.schema)
    h = torch.randn(batch.num_nodes, 16, dtype=torch.float64)
    e, f, layer = model.edge(batch), model.other, model.layers[0]
    messages = []
    layer.block.message_dropout.register_forward_hook(lambda m, i, out: messages.append(out))
    layer(h, e, f, batch, model.others(batch))
    edge_at = {
        (s, t): i
        for i, (s, t) in enumerate(zip(batch.edges.source.tolist(), batch.edges.target.tolist()))
    }
    for t in range(batch.num_nodes):
        graph = batch.layout.graph[t]
        top, total = torch.zeros(2, 8).double(), torch.full((2, 1), 1e-6).double()
        for s in (batch.layout.graph == graph).nonzero()[:, 0].tolist():
            if s == t:
                continue
            if (s, t) in edge_at:
                c = layer.key(h[s]) * layer.query(h[t]) * layer.edge(e[edge_at[s, t]])
                share = 1 / 1.5
            else:
                c = layer.other_key(h[s]) * layer.other_query(h[t]) * layer.other_edge(f)
                share = 0.5 / 1.5
            score = (c / 8**0.5).view(2, 8).sum(1, keepdim=True)
            weight = score.clamp(-5, 5).exp() * share
            top, total = top + weight * layer.value(h[s]).view(2, 8), total + weight
        torch.testing.assert_close(messages[0][t], (top / total).flatten())


def test_san_reads_the_spectrum_of_pyg_graphs():
    """Eigenpairs are computed where the graphs do not bring them."""
    from torch_geometric.data import Data

    model = toys.make("san").eval()
    path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    graph = Data(
        x=torch.tensor([[0], [1], [2]]), edge_index=path, edge_attr=torch.ones(4, 1).long()
    )
    pairs = NORMALISED.of(model.prepare(graph), 4, 2, count=4)
    values = pairs[0, :, 1]
    torch.testing.assert_close(values, torch.tensor([0.0, 1.0, 2.0, 0.0]), atol=1e-6, rtol=0)
    assert model(graph).shape == (1, 2)


@pytest.mark.parametrize(
    "name", ["gradformer", "gt", "gatedgcn", "sat", "lgi_gt", "graphgps", "san", "egt"]
)
def test_no_model_relies_on_the_sign_of_an_eigenvector(name):
    """Without dropout two steps differ by the signs alone; SAT and LGI-GT drew none."""
    given = {"pe": "lap", "pe_steps": toys.STEPS, "pe_width": 4, "lap": toys.STEPS}
    given |= {"layers": 1, "width": 16, "heads": 2, "lpe_width": 4, "lpe_heads": 2}
    known = model_class(name).Config.__dataclass_fields__
    given |= {option: 0.0 for option in known if "drop" in option}
    for flip in (True, False)[: 1 + ("flip_signs" in known)]:
        given["flip_signs"] = flip
        options = {option: value for option, value in given.items() if option in known}
        model = create_model(name, toys.toy_schema(), **options).train()
        batch = toys.toy_batch(model.schema)
        first, second = (model(batch.with_seed(torch.tensor([3, k]), model.sites)) for k in (0, 1))
        assert torch.allclose(first, second) != flip
