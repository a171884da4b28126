"""The gated convolution's loops for a CPU are its plain form: results, gradients, threads."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gradformer import use_engine
from gradformer.attention.loops import running
from gradformer.model.gated import GatedGCN
from gradformer.model.loops import gated as gated_loops
from tests.model.messages import graphs, states


def everything(engine: str, kind: str, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Node and edge states, and the gradients of all that they depend on."""
    torch.manual_seed(0)
    batch, gated = graphs((3, 40)), kind == "gated"
    x, e = (t.detach().to(dtype).requires_grad_() for t in states(batch, 20))
    e = e[:1].expand(len(e), -1) if kind == "one row" else e
    module = GatedGCN(20, position_gate=gated, dropout=0.0).to(dtype)
    if kind == "shut":
        torch.nn.init.constant_(module.C.bias, -30.0)
    position = torch.randn(len(x), 3).to(dtype).requires_grad_() if gated else None
    with use_engine(engine):
        y, f = module(x, e, batch, position)
        loss = (y * y).sum() + (0.0 if kind == "nodes" else (f * f.sin()).sum())
        wanted = [x, e, *module.parameters(), *([] if position is None else [position])]
        grads = torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)
        return [y, f, *grads]


@pytest.mark.parametrize("kind", ["plain", "gated", "one row", "nodes", "shut"])
def test_they_give_what_plain_code_gives(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = everything("reference", kind, torch.float64)
    found = everything("auto", kind)
    for ours, plain in zip(found, expected):
        torch.testing.assert_close(ours.double(), plain, rtol=1e-4, atol=1e-4)
    monkeypatch.setattr(running, "LEAST_WORK", 1)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    assert all(map(torch.equal, everything("auto", kind), found))
    torch.set_num_threads(threads)
    monkeypatch.delattr(gated_loops, "looped_gates")
    with pytest.raises(ImportError):
        everything("auto", kind)  # the loops were what was asked


def test_second_derivatives_are_those_of_plain_code() -> None:
    found = []
    for engine in ("auto", "reference"):
        torch.manual_seed(0)
        batch = graphs()
        x, e = (t.detach().requires_grad_() for t in states(batch, 4))
        module = GatedGCN(4).eval()
        with use_engine(engine):
            y, f = module(x, e, batch)
            (first,) = torch.autograd.grad(y.sum() + f.sum(), x, create_graph=True)
            found.append(torch.autograd.grad(first.square().sum(), [x, e, module.C.weight]))
    for ours, plain in zip(*found):
        torch.testing.assert_close(ours, plain)


def test_a_map_of_edges_may_have_no_bias() -> None:
    batch, module = graphs(), GatedGCN(4)
    module.C.bias = None
    x, e = states(batch, 4)
    y, f = module(x, e, batch)
    (y.sum() + f.square().sum()).backward()
    assert module.C.weight.grad is not None
