"""Dropout in ``torch.compile``: one operator, the same draws and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import fx

from gradformer.attention.layout import Layout
from gradformer.model.fused.drop_operator import drop_operator
from gradformer.model.parts import Dropout, DropPath

ROWS = Layout.from_sizes([3, 4, 2]).rows
SEEDS = torch.tensor([[1, 2, 3]])


@pytest.mark.parametrize("kind", [Dropout, DropPath])
def test_a_compiled_dropout_is_one_operator(kind: type[Dropout]) -> None:
    made: list[fx.GraphModule] = []

    def backend(graph: fx.GraphModule, _: list[torch.Tensor]) -> fx.GraphModule:
        made.append(graph)
        return graph

    layer = kind(0.4)
    x, slope = torch.randn(2, 9, 5)
    results = []
    for call in (layer, torch.compile(layer, backend=backend, fullgraph=True)):
        given = x.clone().requires_grad_()
        y = call(given, ROWS, SEEDS)
        y.backward(slope)
        results.append((y.detach(), given.grad))
    (y, gradient), (again, gradient_again) = results
    assert not torch.equal(y, x)
    assert torch.equal(y, again)
    assert torch.equal(gradient, gradient_again)
    (graph,) = made
    called = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    assert torch.ops.gradformer.drop.default in called
    assert not any("bitwise" in str(target) for target in called)


def test_the_operator_is_registered_as_torch_expects() -> None:
    x = torch.randn(9, 5, requires_grad=True)
    draw = Dropout(0.4).draw(ROWS, SEEDS)
    assert draw is not None
    assert torch.equal(drop_operator(x, draw), draw(x))
    for entries in (x, torch.randn(5, 9, requires_grad=True).T):
        given = (entries, ROWS.graph_id, ROWS.index, SEEDS[0], 0.4, False)
        torch.library.opcheck(torch.ops.gradformer.drop.default, given)
