"""Fused message passing against the plain code in float64, in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from gradformer import use_engine
from gradformer.attention.layout import Layout, Rows
from gradformer.errors import ConfigError
from gradformer.graphs.batch import Batch, Edges, sort_edges
from gradformer.model import local, segments

pytest.importorskip("triton")

# A single node; a hub with many, repeated edges; one-way edges, loops and an isolated node.
SIZES = [1, 5, 4]
HUB = [(1 + k % 4, 1) for k in range(100)] + [(1, 2), (1, 3), (1, 3)]
LOOSE = [(6, 6), (6, 7), (7, 7), (7, 7)]


def graphs(padding: tuple[int, int] | None = None, few: bool = False) -> Batch:
    """The graphs, with padded rows of nodes and edges; ``few`` leaves most edges of the hub out."""
    layout = Layout.from_sizes(SIZES)
    edges, _ = sort_edges(torch.tensor((HUB[::20] if few else HUB) + LOOSE).T, layout)
    if padding is None:
        return Batch(layout, edges)
    more, free = padding
    nodes, real = layout.capacity + more, edges.num_edges
    rest = torch.arange(real, real + free, dtype=torch.int32)

    def longer(index: Tensor, fill: int) -> Tensor:
        return torch.cat([index, torch.full((free,), fill, dtype=torch.int32)])

    def pointers(ptr: Tensor) -> Tensor:
        return torch.cat([ptr, ptr[-1:].expand(more)])

    rows = Rows(
        longer(edges.rows.graph_id, 0), longer(edges.rows.index, 0), torch.arange(real + free) < real
    )
    padded = Edges(
        longer(edges.source, 0),
        longer(edges.target, nodes - 1),
        pointers(edges.target_ptr),
        torch.cat([edges.by_source, rest]),
        pointers(edges.source_ptr),
        rows,
    )
    wide = Layout(layout.node_ptr, layout.pair_ptr, layout.graph_id, nodes, layout.largest, True)
    return Batch(wide, padded)


def states(batch: Batch, width: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Node states, zero in padded rows, and edge states, arbitrary in padded rows."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(batch.num_nodes, width, generator=draw)
    e = torch.randn(batch.edges.num_edges, width, generator=draw)
    return batch.nodes.zero_padding(x), e


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
        y, f = module(x, e, batch, *options)
        loss = _weighted(batch.nodes.zero_padding(y))
        if f is not e:
            loss = loss + _weighted(batch.edges.rows.zero_padding(f))
        loss.backward()
    found = {"y": y, **{f"d{name}": t.grad for name, t in inputs.items() if t.grad is not None}}
    if f is not e:
        found["f"] = batch.edges.rows.zero_padding(f)
    found |= {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    return {name: value.detach().clone() for name, value in found.items()}


def _weighted(y: Tensor) -> Tensor:
    return (y * torch.linspace(-1.0, 1.0, y.numel(), dtype=y.dtype).view_as(y).sin()).sum()


def compare(module: nn.Module, batch: Batch, *given: Tensor, tolerance: float = 2e-5) -> None:
    """The kernels in float32 against the plain code in float64."""
    module.eval()  # running statistics of a batch norm must not move between two runs
    fused = gradients(module, "fused", torch.float32, batch, *given)
    plain = gradients(module, "reference", torch.float64, batch, *given)
    assert fused.keys() == plain.keys()
    for name, want in plain.items():
        scale = max(float(want.abs().max()), 1.0)
        gap = float((fused[name].double() - want).abs().max())
        assert gap <= tolerance * scale, f"{name}: {gap} of {scale}"


PADDINGS = (None, (0, 7), (3, 40))


@pytest.mark.parametrize(("width", "padding"), [(1, None), (6, (3, 40)), (64, (0, 7))])
def test_gin(width: int, padding: tuple[int, int] | None) -> None:
    torch.manual_seed(0)
    batch = graphs(padding)
    module = local.GIN(width, learn_eps=width != 1)
    if module.eps is not None:
        nn.init.constant_(module.eps, 0.3)
    compare(module, batch, *states(batch, width))


@pytest.mark.parametrize(("width", "padding"), [(1, (0, 7)), (48, (3, 40)), (64, None)])
def test_gine(width: int, padding: tuple[int, int] | None) -> None:
    torch.manual_seed(0)
    batch = graphs(padding)
    module = local.GINE(width, learn_eps=width != 1)
    if module.eps is not None:
        nn.init.constant_(module.eps, 0.3)
    compare(module, batch, *states(batch, width))


@pytest.mark.parametrize(
    ("width", "padding", "gate", "carry"),
    [(1, None, True, True), (6, (3, 40), True, True), (48, (0, 7), False, True), (64, None, False, False)],
)  # fmt: skip
def test_gatedgcn(width: int, padding: tuple[int, int] | None, gate: bool, carry: bool) -> None:
    torch.manual_seed(0)
    batch = graphs(padding)
    module = local.GatedGCN(width, position_gate=gate, carry_edges=carry)
    given = states(batch, width)
    if gate:
        given = (*given, states(batch, 3, seed=1)[0])
    compare(module, batch, *given)
