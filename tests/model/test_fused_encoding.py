"""The encoding kernels against the plain encoders: states, all gradients, padding, signs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gradformer.attention import Rows, use_engine
from gradformer.attention.draws import site_seeds
from gradformer.errors import InputError
from gradformer.graphs.batch import Batch
from gradformer.model import encoders
from gradformer.model.base import create_model
from gradformer.model.encoders import (
    CategoryEncoder,
    DegreeEncoder,
    FeatureEncoder,
    PositionEncoder,
    SignFlip,
    encode_nodes,
    fits_kernel,
)
from gradformer.training.weights import Weights
from tests.zoo import toys

fused_encoding = pytest.importorskip("gradformer.model.fused.encoding")


@pytest.fixture(autouse=True)
def _several_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_encoding, "LEAST_PIECE", 32)


def with_gradients(y: Tensor, real: Tensor | None, modules: nn.ModuleList) -> list[Tensor]:
    """Real rows of y, and the gradients of all parameters for a slope that is zero elsewhere."""
    rows = torch.ones(len(y), dtype=torch.bool, device=y.device) if real is None else real
    slope = torch.cos(torch.arange(y.numel(), device=y.device)).view_as(y) * rows[:, None]
    found = torch.autograd.grad(y, list(modules.parameters()), slope)
    return [y[rows].detach(), *found]


def same(found: list[list[Tensor]]) -> None:
    for got, expected in zip(*found, strict=True):
        torch.testing.assert_close(got, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("sizes", [(4,), (40, 3, 2)])
@pytest.mark.parametrize("padded", [False, True])
def test_embeddings(sizes: tuple[int, ...], padded: bool, device: str) -> None:
    draw = torch.Generator().manual_seed(0)
    columns = [torch.randint(0, size, (70,), generator=draw) for size in sizes]
    x = torch.stack(columns, dim=1).to(device)
    mask = torch.arange(70, device=device) < 61 if padded else None
    encoder = CategoryEncoder(sizes, 6, "x").to(device)
    found = []
    for engine in ("fused", "reference"):
        with use_engine(engine):
            found.append(with_gradients(encoder(x, mask), mask, nn.ModuleList([encoder])))
    same(found)


def padded_batch(device: str) -> Batch:
    make = toys.collator(toys.toy_graphs(toys.toy_schema()))
    return make(toys.PADDED_IDS, toys.CAPACITIES[0]).to(device)


@pytest.mark.parametrize("concat", [True, False])
@pytest.mark.parametrize("norm", [True, False])
def test_features_and_positions(concat: bool, norm: bool, device: str) -> None:
    batch = padded_batch(device)
    modules = nn.ModuleList(
        [FeatureEncoder((7,), 5), PositionEncoder("rwse", toys.STEPS, 3 if concat else 5, norm)]
    ).to(device)
    found = []
    for engine in ("fused", "reference"):
        with use_engine(engine):
            y, raw = encode_nodes(*modules, batch, concat)  # type: ignore[arg-type]
        assert raw is not None
        assert not y[~batch.nodes.mask].any()  # type: ignore[index]
        found.append([raw.detach(), *with_gradients(y, batch.nodes.mask, modules)])
    same(found)


def test_gradients_in_pieces(device: str) -> None:
    """Collected for one sum at the end, they are those of autograd."""
    batch = padded_batch(device)
    modules = nn.ModuleList([FeatureEncoder((7,), 5), PositionEncoder("rwse", toys.STEPS, 3)])
    weights = Weights(modules.to(device))
    with use_engine("fused"):
        y, _ = encode_nodes(*modules, batch)  # type: ignore[arg-type]
        expected = torch.autograd.grad(y.square().sum(), weights.parameters)
        with weights.collecting() as pieces:
            y, _ = encode_nodes(*modules, batch)  # type: ignore[arg-type]
        grads = torch.autograd.grad(y.square().sum(), weights.parameters, allow_unused=True)
        weights.set_grad(grads, pieces)
    assert all(grad is None for grad in grads)
    found = list(weights.views(weights.grad).values())
    same([found, list(expected)])


def test_degrees(device: str) -> None:
    batch = padded_batch(device)
    encoder = DegreeEncoder(6, largest=3).to(device)
    found = []
    for engine in ("fused", "reference"):
        with use_engine(engine):
            y = encoder(batch)
            found.append(with_gradients(y, batch.nodes.mask, nn.ModuleList([encoder])))
    same(found)


@pytest.mark.parametrize(("name", "most"), [("NUMBERS", 4 * 6 - 1), ("WIDTH", 5)])
def test_large_tables_are_left_to_torch(
    name: str, most: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = padded_batch(device)
    categories, degrees = CategoryEncoder((3, 1), 6, "x"), DegreeEncoder(6, largest=3)
    x = torch.zeros(5, 2, dtype=torch.int64, device=device)
    with use_engine("fused"):
        assert fits_kernel([*categories.to(device).parameters()])
        monkeypatch.setattr(encoders, f"MOST_FUSED_{name}", most)
        monkeypatch.setattr(fused_encoding, "embed", None)
        assert categories(x).shape == (5, 6)
        assert degrees.to(device)(batch).shape == (batch.num_nodes, 6)


def test_signs(device: str) -> None:
    rows = Rows(*(torch.arange(50, device=device, dtype=torch.int32) // n for n in (4, 1)))
    vectors = torch.randn(50, 5, device=device)
    flip, seeds = SignFlip().train(), site_seeds(torch.tensor([1, 2], device=device), 1)
    found = []
    for engine in ("fused", "reference"):
        with use_engine(engine):
            found.append(flip(vectors, rows, seeds))
    assert torch.equal(*found)
    assert not torch.equal(found[0], vectors)


def test_a_category_that_the_kernel_would_not_see_is_refused(device: str) -> None:
    model = create_model("gradformer", toys.toy_schema(), layers=1, width=8, pe="none").to(device)
    graph = Data(
        x=torch.tensor([[0], [7]]),
        edge_index=torch.tensor([[0, 1], [1, 0]]),
        edge_attr=torch.tensor([[1], [1]]),
    )
    with (
        use_engine("fused"),
        pytest.raises(InputError, match="x: category 7 in row 1, column 0, expected 0 to 6"),
    ):
        model(graph.to(device))
