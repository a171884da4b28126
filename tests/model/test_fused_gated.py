"""The map of the edge states inside the gated convolution: its pieces, and its precision."""

from __future__ import annotations

import copy
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gradformer import use_engine
from gradformer.attention.draws import number_sites
from gradformer.graphs.batch import Batch
from gradformer.model import segments
from gradformer.model.fused import edge_norm as fused_edge_norm
from gradformer.model.fused import gated as fused_gated
from gradformer.model.fused import norm as fused_norm
from gradformer.model.fused.edge_norm import Unmade, made
from gradformer.model.fused.gated import gated, updates
from gradformer.model.gated import GatedGCN
from gradformer.model.maps import linear
from gradformer.training.weights import Weights
from tests.model.messages import graphs, states, weighted

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("on_the_device")


def test_gradients_in_pieces_are_those_of_autograd() -> None:
    torch.manual_seed(0)
    batch = graphs((3, 40))
    module = GatedGCN(6)
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


class Stack(nn.Module):
    """Three layers that leave edge states to the next, and are asked for the last.

    With ``both`` also for those of the first, and the last layer makes none of its own.
    """

    def __init__(self, width: int, dropout: float, both: bool = False) -> None:
        super().__init__()
        self.both = both
        self.layers = nn.ModuleList(
            GatedGCN(width, dropout=dropout, update_edges=update)
            for update in (True, True, not both)
        )
        number_sites(self)

    def forward(self, x: Tensor, e: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        left = [e]
        for layer in self.layers:
            x, e = layer.spread(linear(x, layer.ADBE), x, left[-1], batch)
            left.append(e)
        return x, made(e) + made(left[1]) if self.both else made(e)


@pytest.mark.parametrize(
    ("width", "padding", "few", "training", "dropout", "both"),
    [
        (6, (2, 40), False, True, 0.4, True),
        (24, None, True, True, 0.0, False),
        (6, (2, 40), True, False, 0.4, False),
        pytest.param(48, (2, 40), False, True, 0.1, False, marks=pytest.mark.gpu),
        pytest.param(64, (2, 40), False, True, 0.0, False, marks=pytest.mark.gpu),
    ],
)
def test_the_edge_norm_inside(
    width: int,
    padding: tuple[int, int] | None,
    few: bool,
    training: bool,
    dropout: float,
    both: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As for more edges than fit into one kernel of the norm; running statistics included.

    A layer makes the sums of the norm before it, which hold if nothing else is made of the edge
    states between them.
    """
    monkeypatch.setattr(fused_norm, "MOST_WHOLE_ROWS", 4)
    monkeypatch.setattr(fused_gated, "PAIRS", 1)  # so that programs walk over several tiles
    monkeypatch.setattr(fused_edge_norm, "SLOPE_PIECES", 2)
    monkeypatch.setattr(fused_gated, "MAP_PROGRAMS", 2)
    take, known = fused_edge_norm.Slopes.take, []

    def recorded(slopes: fused_edge_norm.Slopes, grad: Tensor) -> Tensor | None:
        known.append(take(slopes, grad))
        return known[-1]

    monkeypatch.setattr(fused_edge_norm.Slopes, "take", recorded)
    torch.manual_seed(0)
    batch = graphs(padding, few).with_seed(torch.tensor([3, 5]), 6)
    module = Stack(width, dropout, both).train(training)
    x, e = states(batch, width)
    assert updates(module.layers[0].C, len(e))
    found = {}
    for engine, dtype in (("fused", torch.float32), ("reference", torch.float64)):
        one = copy.deepcopy(module).to(dtype)
        given = [t.detach().to(dtype, copy=True).requires_grad_() for t in (x, e)]
        with use_engine(engine):
            y, f = one(*given, batch)
            f = batch.edges.rows.zero_padding(f)
            (weighted(batch.nodes.zero_padding(y)) + weighted(f)).backward()
        found[engine] = {"x": y.detach(), "e": f.detach(), "dx": given[0].grad, "de": given[1].grad}
        found[engine] |= {name: p.grad for name, p in one.named_parameters()}
        found[engine] |= {name: b for name, b in one.named_buffers() if b.is_floating_point()}
    for name, want in found["reference"].items():
        gap = (found["fused"][name].double() - want).abs().max()
        assert gap <= 5e-5 * max(float(want.abs().max()), 1.0), name
    assert [sums is None for sums in known] == ([False, True] if both else [True, False, False])


def test_moments_of_numbers_far_from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variance keeps its digits where the mean is a thousand times the deviation."""
    monkeypatch.setattr(fused_norm, "MOST_WHOLE_ROWS", 4)
    monkeypatch.setattr(fused_gated, "PROGRAMS", 2)
    torch.manual_seed(0)
    batch = graphs((2, 40))
    module = GatedGCN(6)
    nn.init.constant_(module.C.bias, 1000.0)
    found = []
    for engine, dtype in (("fused", torch.float32), ("reference", torch.float64)):
        one = copy.deepcopy(module).to(dtype)
        with use_engine(engine), torch.no_grad():
            one(*(t.to(dtype) for t in states(batch, 6)), batch)
        found.append(one.edge_norm.running_var.double())
    torch.testing.assert_close(*found, rtol=2e-4, atol=0.0)


def test_the_next_layer_makes_the_edge_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other layer keeps them; a layer called by hand gives them back made."""
    monkeypatch.setattr(fused_norm, "MOST_WHOLE_ROWS", 4)
    batch = graphs(few=True)
    x, e = states(batch, 6)
    stack = Stack(6, dropout=0.0).eval()
    with use_engine("fused"), torch.no_grad():
        y, f = stack.layers[0](x, e, batch)
        want = stack.layers[1](y, f, batch)[0]
        left: list[Tensor | Unmade] = [e]
        for layer in stack.layers[:2]:
            x, e = layer.spread(linear(x, layer.ADBE), x, left[-1], batch)
            left.append(e)
    assert torch.equal(x, want)
    assert torch.equal(left[1].states, f)
    assert [e.origin.kept for e in left[1:]] == [True, False]


class Scaled(nn.Linear):
    """A map that is more than its weight, as those of adapters are."""

    def forward(self, x: Tensor) -> Tensor:
        return 2.0 * super().forward(x)


@pytest.mark.parametrize(
    "way", ["other parameters", "checkpoint", "frozen", "a map of another kind"]
)
def test_layers_in_the_hands_of_others(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two layers called with other parameters (and short floats), remade, frozen, or adapted."""
    monkeypatch.setattr(fused_norm, "MOST_WHOLE_ROWS", 4)
    torch.manual_seed(0)
    batch = graphs(few=True)
    module = Stack(6, dropout=0.0)
    del module.layers[2]
    if way == "a map of another kind":
        one, two = module.layers
        one.C, one.ADBE, two.C = Scaled(6, 6), Scaled(6, 24), nn.Linear(6, 6, bias=False)
    for p in module.layers[0].parameters():
        p.requires_grad_(way != "frozen")
    turned = {name: torch.randn(p.shape[::-1]) for name, p in module.named_parameters()}
    others = {name: t.movedim(0, -1) for name, t in turned.items()}  # matrices lie column by column
    found = []
    for engine, dtype in (("fused", torch.float32), ("reference", torch.float64)):
        one = copy.deepcopy(module).to(dtype)
        x, e = states(batch, 6)
        x, e = x.to(dtype), e.half()
        if engine == "reference" or way != "other parameters":
            e = e.to(dtype)
        learned = {name: t.to(dtype).requires_grad_() for name, t in others.items()}
        with use_engine(engine):
            if way == "other parameters":
                y, f = torch.func.functional_call(one, learned, (x, e, batch))
            elif way == "checkpoint":
                x.requires_grad_()
                y, f = checkpoint(one, x, e, batch, use_reentrant=False)
            else:
                y, f = one(x, e, batch)
            wanted = learned if way == "other parameters" else dict(one.named_parameters())
            wanted = [t for t in wanted.values() if t.requires_grad]
            found.append(torch.autograd.grad(weighted(y) + weighted(f), wanted))
    for got, want in zip(*found):
        assert (got - want).abs().max() <= 3e-5 * max(float(want.abs().max()), 1.0)


def test_places_need_32_bits() -> None:
    layer, one = GatedGCN(16), torch.zeros(1)
    with use_engine("fused"):
        assert layer.runs_kernels(one.expand((1 << 25) - 1, 64))
        assert not layer.runs_kernels(one.expand(1 << 25, 64))


@pytest.mark.gpu
@pytest.mark.parametrize("width", [48, 64])
def test_products_on_tensor_cores_keep_float32_precision(width: int) -> None:
    torch.manual_seed(0)
    batch = graphs((3, 40))
    x, e = states(batch, width)
    layer = nn.Linear(width, width)
    found = {}
    for dtype in (torch.float32, torch.float64):
        given, plain = e.to(dtype, copy=True).requires_grad_(), copy.deepcopy(layer).to(dtype)
        terms = x.to(dtype).repeat(1, 4)
        if dtype == torch.float32:
            u, _, _ = gated(terms, given, plain, None, batch.edges)
        else:
            u = segments.from_target(x.to(dtype), batch.edges)
            u = u + segments.from_source(x.to(dtype), batch.edges) + plain(given)
            u = batch.edges.rows.zero_padding(u)
        weighted(u).backward()
        found[dtype] = u, given.grad, plain.weight.grad, plain.bias.grad
    for ours, want in zip(*found.values()):
        gap = (ours.double() - want).abs().max() / want.abs().max()
        assert gap < 3e-6
