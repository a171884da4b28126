"""Fused message passing against the plain code in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from gradformer import use_engine
from gradformer.attention.availability import runs_kernels
from gradformer.attention.layout import Layout
from gradformer.errors import ConfigError
from gradformer.graphs.batch import Batch, sort_edges
from gradformer.model import local, segments
from gradformer.model.fused import messages as fused_messages
from gradformer.model.fused.gated import gated
from gradformer.model.gated import GatedGCN
from gradformer.zoo.convs import PNA, aggregate
from tests.model.messages import graphs, states, weighted

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("on_the_device")


def gradients(
    module: nn.Module, engine: str, dtype: torch.dtype, batch: Batch, x: Tensor, e: Tensor,
    position: Tensor | None = None,
) -> dict[str, Tensor]:  # fmt: skip
    """Outputs, and gradients of a weighted sum of their real rows, by name."""
    module = module.to(dtype)
    module.zero_grad()
    x, e = (t.detach().to(dtype).requires_grad_() for t in (x, e))
    inputs = {"x": x, "e": e}
    options = []
    if position is not None:
        inputs["position"] = position.detach().to(dtype).requires_grad_()
        options.append(inputs["position"])
    with use_engine(engine):
        if options:
            y, f, same = module.pass_on(x, e, batch, *options)
        else:
            y, f, same = local.passed_on(module, x, e, batch)
        outputs = {"y": y, "same": same, "f": batch.edges.rows.zero_padding(f)}
        loss = sum(weighted(batch.nodes.zero_padding(t)) for t in (y, same))
        (loss + weighted(outputs["f"])).backward()
    found = {f"d{name}": t.grad for name, t in inputs.items() if t.grad is not None} | outputs
    found |= {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    return {name: value.detach().clone() for name, value in found.items()}


def compare(module: nn.Module, batch: Batch, *given: Tensor, tolerance: float = 2e-5) -> None:
    """The kernels in float32 against the plain code in float64."""
    module.eval()  # running statistics of a batch norm must not move between two runs
    with use_engine("fused"):
        assert runs_kernels(given[0])
    fused = gradients(module, "fused", torch.float32, batch, *given)
    plain = gradients(module, "reference", torch.float64, batch, *given)
    assert fused.keys() == plain.keys()
    for name, want in plain.items():
        scale = max(float(want.abs().max()), 1.0)
        gap = float((fused[name].double() - want).abs().max())
        assert gap <= tolerance * scale, f"{name}: {gap} of {scale}"


@pytest.mark.parametrize(("width", "padding"), [(1, None), (48, (3, 40)), (64, (0, 7))])
@pytest.mark.parametrize("kind", [local.GIN, local.GCN, local.GINE])
def test_sums_over_neighbours(
    kind: type[nn.Module], width: int, padding: tuple[int, int] | None
) -> None:
    torch.manual_seed(0)
    batch, learn = graphs(padding), kind is not local.GCN and width != 1
    module = kind(width, **({"learn_eps": True} if learn else {}))
    if learn:
        nn.init.constant_(module.get_parameter("eps"), 0.3)
    compare(module, batch, *states(batch, width))


def test_gcn_is_differentiated_twice() -> None:
    batch = graphs((2, 9), few=True)
    x, _ = states(batch, 6)
    found = {}
    for engine, dtype in (("fused", torch.float32), ("reference", torch.float64)):
        leaf = x.to(dtype, copy=True).requires_grad_()
        with use_engine(engine):
            y = segments.normalised_sum(leaf.sin(), batch.edges)
            (slope,) = torch.autograd.grad(weighted(y.square()), leaf, create_graph=True)
            weighted(slope).backward()
        assert leaf.grad is not None
        found[engine] = leaf.grad.double()
    torch.testing.assert_close(found["fused"], found["reference"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("width", "padding", "gate", "carry"),
    [
        (1, None, True, True),
        (6, (3, 40), True, True),
        (48, (0, 7), False, True),
        (32, None, False, False),
        (70, (1, 3), False, True),  # more channels than a program holds the map of
    ],
)
def test_gatedgcn(width: int, padding: tuple[int, int] | None, gate: bool, carry: bool) -> None:
    torch.manual_seed(0)
    batch = graphs(padding, few=width > 64)
    module = GatedGCN(width, position_gate=gate, carry_edges=carry)
    given = states(batch, width)
    if gate:
        given = (*given, states(batch, 3, seed=1)[0])
    compare(module, batch, *given)


@pytest.mark.parametrize(("width", "padding"), [(1, None), (22, (3, 40)), (64, (0, 7))])
@pytest.mark.parametrize("with_edges", [False, True])
def test_sum_and_max(width: int, padding: tuple[int, int] | None, with_edges: bool) -> None:
    """Of whole numbers, so that many messages are equal and share a gradient."""
    batch = graphs(padding)
    (x, e), (y, _) = states(batch, width), states(batch, width, seed=1)
    given = [(2.0 * t).round() for t in (x, y, e)][: 3 if with_edges else 2]

    def outcome(engine: str, dtype: torch.dtype) -> list[Tensor]:
        leaves = [t.to(dtype).requires_grad_() for t in given]
        term = leaves[2] if with_edges else None
        with use_engine(engine):
            if runs_kernels(leaves[0]):
                found = fused_messages.sum_and_max(*leaves[:2], term, batch.edges)
            else:
                message = segments.from_target(leaves[0], batch.edges)
                message = message + segments.from_source(leaves[1], batch.edges)
                message = message if term is None else message + term
                found = tuple(aggregate(message, batch.edges, ("sum", "max")))
            loss = sum((weighted(t.square()) for t in found), leaves[0].new_zeros(()))
            return [t.detach().double() for t in (*found, *torch.autograd.grad(loss, leaves))]

    fused, plain = outcome("fused", torch.float32), outcome("reference", torch.float64)
    for found, want in zip(fused, plain, strict=True):
        torch.testing.assert_close(found, want, rtol=1e-5, atol=1e-6 * float(want.abs().max()))


def test_pna() -> None:
    torch.manual_seed(0)
    batch = graphs((3, 40), few=True)
    compare(PNA(6, ("mean", "sum", "max"), edges=True, towers=1), batch, *states(batch, 6))
    scaled = PNA(6, ("max",), ("identity", "attenuation"), edges=True, towers=1)
    compare(scaled, batch, *states(batch, 6))


def test_one_row_for_all_edges() -> None:
    torch.manual_seed(0)
    batch = graphs((2, 9), few=True)
    x, _ = states(batch, 6)
    row = torch.randn(1, 6)
    for module in (local.GINE(6), GatedGCN(6)):
        found = {}
        for engine, dtype in (("fused", torch.float32), ("reference", torch.float64)):
            leaf = row.detach().to(dtype, copy=True).requires_grad_()
            with use_engine(engine):
                y, _ = module.eval().to(dtype)(
                    x.to(dtype), leaf.expand(batch.edges.num_edges, -1), batch
                )
                weighted(batch.nodes.zero_padding(y)).backward()
            assert leaf.grad is not None
            found[engine] = y.detach().double(), leaf.grad.double()
        torch.testing.assert_close(found["fused"], found["reference"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_short_floats_are_summed_in_float32(dtype: torch.dtype) -> None:
    batch = graphs()
    x, e = (t.to(dtype) for t in states(batch, 6))
    edges = batch.edges
    _, h, _ = gated(x.repeat(1, 4), e, nn.Linear(6, 6), None, edges)
    y, _, _ = fused_messages.gine(x, e, None, edges)
    assert h.dtype == y.dtype == dtype
    source, target = edges.edge_index
    sums = torch.zeros_like(x, dtype=torch.float64)
    sums.index_add_(0, target, (x.double()[source] + e.double()).relu())
    want = (x.double() + sums).to(dtype)  # the hub sums 100 messages: rounding each would show
    torch.testing.assert_close(y, want, rtol=torch.finfo(dtype).eps, atol=1e-2)


def test_edge_states_and_gradients_of_padding_are_zero() -> None:
    batch = graphs((1, 40), few=True)
    x, e = states(batch, 6)
    e, r = e.requires_grad_(), torch.rand(len(e), 1, requires_grad=True)
    real = int(batch.edges.target_ptr[-1])
    u, h, _ = gated(x.repeat(1, 4), e, nn.Linear(6, 6), r, batch.edges)
    assert (u[real:] == 0.0).all()
    (u.sum() + h.sum()).backward()
    assert e.grad is not None
    assert r.grad is not None
    assert (e.grad[real:] == 0.0).all()
    assert (r.grad[real:] == 0.0).all()
    e.grad = None
    fused_messages.gine(x, e, None, batch.edges)[0].sum().backward()
    assert e.grad is not None
    assert (e.grad[real:] == 0.0).all()


@pytest.mark.parametrize("few", [False, True])
def test_sums_and_gathers(few: bool) -> None:
    batch = graphs((2, 9), few=few)
    x, e = states(batch, 6)
    ptr = torch.tensor([0, 1, 1, 6, 10], dtype=torch.int32)  # the second graph is empty

    def outcome(engine: str, dtype: torch.dtype) -> list[Tensor]:
        nodes, values = (t.to(dtype).requires_grad_() for t in (x, e))
        with use_engine(engine):
            outputs = [
                segments.sum_to_target(values, batch.edges),
                segments.sum_to_target(segments.from_source(nodes, batch.edges), batch.edges),
                segments.sum_of_sources(nodes, batch.edges),
                segments.pool(nodes, ptr, "add"),
                segments.pool(nodes, ptr, "mean"),
            ]
            loss = sum((weighted(y.square()) for y in outputs), nodes.new_zeros(()))
            first = torch.autograd.grad(loss, (nodes, values), create_graph=True)
            second = torch.autograd.grad(sum(map(weighted, first)), (nodes, values))  # type: ignore[arg-type]
        return [t.detach().double() for t in (*outputs, *first, *second)]

    fused, plain = outcome("fused", torch.float32), outcome("reference", torch.float64)
    for found, want in zip(fused, plain, strict=True):
        torch.testing.assert_close(found, want, rtol=1e-5, atol=1e-5 * float(want.abs().max()))


def test_rows_that_move() -> None:
    there, back = torch.tensor([2, -1, 0, -1]), torch.tensor([2, -1, 0])
    x = torch.randn(3, 2, 5, requires_grad=True)
    with use_engine("fused"):
        y = segments.moved(x, there, back)
        (slope,) = torch.autograd.grad(weighted(y), x)
    with use_engine("reference"):
        plain = segments.moved(x, there, back)
        assert torch.equal(y, plain)
        assert torch.equal(slope, torch.autograd.grad(weighted(plain), x)[0])


def test_graphs_without_edges() -> None:
    layout = Layout.from_sizes([2], device=torch.get_default_device())
    edges, _ = sort_edges(torch.empty(2, 0, dtype=torch.long), layout)
    x, e = torch.randn(2, 6, requires_grad=True), torch.randn(0, 6)
    assert torch.equal(fused_messages.gin(x, None, edges)[0], x)
    assert torch.equal(fused_messages.gine(x, e, None, edges)[0], x)
    layer = nn.Linear(6, 6)
    u, h, _ = gated(x.repeat(1, 4), e, layer, None, edges)
    assert u.shape == (0, 6)
    assert torch.equal(h, x)
    h.sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))
    assert torch.equal(layer.weight.grad, torch.zeros(6, 6))
    with use_engine("fused"):
        assert torch.equal(segments.sum_to_target(e, edges), torch.zeros(2, 6))


@pytest.mark.gpu  # the interpreter runs one program after the other
def test_two_runs_give_the_same_bits() -> None:
    batch = graphs((2, 9), few=True)
    given = states(batch, 48)
    module = GatedGCN(48).eval()
    runs = [gradients(module, "fused", torch.float32, batch, *given) for _ in range(2)]
    for name, value in runs[0].items():
        assert torch.equal(value, runs[1][name]), name


def test_a_state_that_is_no_number_reaches_the_sum() -> None:
    batch = graphs(few=True)
    x, e = states(batch, 1)
    x[2] = torch.nan  # points at the hub, node 1
    assert fused_messages.gine(x, e, None, batch.edges)[0][1].isnan().all()


def test_second_derivatives_are_refused() -> None:
    batch = graphs(few=True)
    x, e = (t.requires_grad_() for t in states(batch, 1))
    outputs = (
        fused_messages.gin(x, None, batch.edges)[0],
        fused_messages.gine(x, e, None, batch.edges)[0],
        gated(x.repeat(1, 4), e, nn.Linear(1, 1), None, batch.edges)[1],
    )
    for y in outputs:
        (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        with pytest.raises(ConfigError, match="reference"):
            torch.autograd.grad(first.sum(), x)
