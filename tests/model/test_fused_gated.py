"""The map of the edge states inside the gated convolution: its pieces, and its precision."""

from __future__ import annotations

import copy
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from gradformer import use_engine
from gradformer.model import local, segments
from gradformer.model.fused_gated import gated
from gradformer.training.weights import Weights
from tests.model.test_fused_messages import graphs, states, weighted

pytest.importorskip("triton")


def test_gradients_in_pieces_are_those_of_autograd() -> None:
    torch.manual_seed(0)
    batch = graphs((3, 40))
    module = local.GatedGCN(6)
    weights = Weights(module)
    x, e = states(batch, 6)
    found = []
    for collect in (False, True):
        with use_engine("fused"), weights.collecting() if collect else nullcontext() as pieces:
            y, f = module(x, e, batch)
            loss = weighted(y) + weighted(batch.edges.rows.zero_padding(f))
            grads = torch.autograd.grad(loss, weights.parameters, allow_unused=True)
        weights.set_grad(grads, pieces)
        assert all((grad is None) == collect for grad in grads)
        found.append(weights.grad.clone())
    torch.testing.assert_close(*found)


@pytest.mark.gpu
@pytest.mark.parametrize("width", [48, 64])
def test_products_on_tensor_cores_keep_float32_precision(width: int, device: str) -> None:
    torch.manual_seed(0)
    batch = graphs((3, 40)).to(device)
    x, e = (t.to(device) for t in states(graphs((3, 40)), width))
    layer = nn.Linear(width, width).to(device)
    found = {}
    for dtype in (torch.float32, torch.float64):
        given, plain = e.to(dtype).requires_grad_(), copy.deepcopy(layer).to(dtype)
        terms = x.to(dtype).repeat(1, 4)
        if dtype == torch.float32:
            u, _, _ = gated(terms, given, plain, None, batch.edges)
        else:
            u = segments.from_target(x.to(dtype), batch.edges)
            u = u + segments.from_source(x.to(dtype), batch.edges) + plain(given)
            u = batch.edges.rows.zero_padding(u)
        weighted(u.cpu()).backward()
        found[dtype] = u, given.grad, plain.weight.grad, plain.bias.grad
    for ours, want in zip(*found.values()):
        gap = (ours.double() - want).abs().max() / want.abs().max()
        assert gap < 3e-6
