"""The batch norm kernels against the plain code in float64."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from gradformer.attention import Rows, use_engine
from gradformer.errors import ConfigError
from gradformer.model.fused_norm import MOST_CHUNKS, Grid
from gradformer.model.parts import BatchNorm

pytest.importorskip("triton")


@pytest.fixture(autouse=True)
def _on_the_device(device: str) -> Iterator[None]:
    with torch.device(device):
        yield


def _random(*shape: int, seed: int) -> Tensor:
    """Normal numbers, the same on every device."""
    generator = torch.Generator("cpu").manual_seed(seed)
    return torch.randn(*shape, generator=generator, device="cpu").to(torch.get_default_device())


def _rows(count: int, real: str) -> Rows:
    """All real without a mask; a padded tail; holes; one real row; none."""
    place = torch.arange(count, dtype=torch.int32)
    masks = {
        "all": None,
        "tail": place < count - count // 3,
        "holes": place % 3 != 1,
        "one": place == count // 2,
        "none": place < 0,
    }
    return Rows(place, place, masks[real])


def _norm(channels: int) -> BatchNorm:
    norm = BatchNorm(channels, momentum=0.3)
    with torch.no_grad():
        for seed, tensor in enumerate((norm.weight, norm.bias, norm.running_mean)):
            tensor.copy_(_random(channels, seed=seed))
        norm.running_var.copy_(_random(channels, seed=3).abs() + 0.5)
    return norm


def _run(
    norm: BatchNorm, x: Tensor, add: Tensor | None, slope: Tensor, rows: Rows, relu: bool
) -> dict[str, Tensor]:
    """Output, all gradients and running statistics of one call on copies of everything."""
    norm = copy.deepcopy(norm)
    x = x.clone().requires_grad_()
    add = None if add is None else add.clone().requires_grad_()
    y = norm(x, rows, add=add, relu=relu)
    (y * slope).sum().backward()
    assert x.grad is not None
    found = {"y": y.detach(), "dx": x.grad, "dweight": norm.weight.grad, "dbias": norm.bias.grad}
    if add is not None:
        found["dadd"] = add.grad
    return found | {"mean": norm.running_mean, "var": norm.running_var}


def _both(
    norm: BatchNorm, x: Tensor, add: Tensor | None, rows: Rows, relu: bool
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    slope = _random(*x.shape, seed=4)
    with use_engine("fused"):
        fused = _run(norm, x, add, slope, rows, relu)
    wide = None if add is None else add.double()
    plain = _run(copy.deepcopy(norm).double(), x.double(), wide, slope.double(), rows, relu)
    return fused, plain


def _data(rows: int, channels: int) -> tuple[Tensor, Tensor]:
    return _random(rows, channels, seed=5) * 3.0 + 1.0, _random(rows, channels, seed=6)


def _check(rows: int, channels: int, real: str, residual: bool, relu: bool, training: bool) -> None:
    x, add = _data(rows, channels)
    norm = _norm(channels).train(training)
    fused, plain = _both(norm, x, add if residual else None, _rows(rows, real), relu)
    # Two rows that lie close together are divided by a small spread.
    tolerance = 1e-3 if rows == 2 else 2e-5
    for name, value in plain.items():
        torch.testing.assert_close(fused[name].double(), value, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("real", ["all", "tail", "holes", "one", "none"])
@pytest.mark.parametrize("training", [True, False])
def test_masks(real: str, training: bool) -> None:
    _check(40, 48, real, residual=True, relu=True, training=training)


@pytest.mark.parametrize("real", ["all", "holes"])
@pytest.mark.parametrize(
    ("rows", "channels"), [(1, 6), (2, 1), (7, 6), (130, 64), (100, 100), (700, 5)]
)
def test_sizes(rows: int, channels: int, real: str) -> None:
    _check(rows, channels, real, residual=True, relu=True, training=True)


@pytest.mark.parametrize(("residual", "relu"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("training", [True, False])
def test_combinations(residual: bool, relu: bool, training: bool) -> None:
    _check(90, 12, "holes", residual, relu, training)


def test_chunks_of_several_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradformer.model.fused_norm.MOST_CHUNKS", 3)
    grid = Grid.of(900, 32)
    assert grid.shape[0] == 3
    assert grid.chunk > grid.blocks["BLOCK_R"]
    _check(900, 32, "holes", residual=True, relu=True, training=True)


def test_a_mean_far_from_zero() -> None:
    x, _ = _data(300, 8)
    fused, plain = _both(_norm(8), x + 3000.0, None, _rows(300, "holes"), relu=False)
    torch.testing.assert_close(fused["y"].double(), plain["y"], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(fused["var"].double(), plain["var"], rtol=1e-4, atol=0.0)


@pytest.mark.parametrize("rows", [1, 100, 4096, 5000, 10**6])
@pytest.mark.parametrize("channels", [1, 6, 64, 512])
def test_grid_covers_all(rows: int, channels: int) -> None:
    grid = Grid.of(rows, channels)
    chunks, tiles = grid.shape
    assert chunks <= min(MOST_CHUNKS, grid.merging["BLOCK_P"])
    assert grid.chunk * chunks >= rows > grid.chunk * (chunks - 1)
    assert grid.blocks["BLOCK_C"] * tiles >= channels


def test_padding_is_never_read() -> None:
    x, add = _data(50, 6)
    rows = _rows(50, "holes")
    assert rows.mask is not None
    clean, _ = _both(_norm(6), x, add, rows, relu=True)
    x[~rows.mask] = torch.nan
    with use_engine("fused"):
        y = _norm(6)(x, rows, add=add, relu=True)
    assert torch.equal(y, clean["y"])
    assert not y[~rows.mask].any()


def test_same_bits_every_time() -> None:
    x, add = _data(100, 20)
    first, _ = _both(_norm(20), x, add, _rows(100, "tail"), relu=True)
    second, _ = _both(_norm(20), x, add, _rows(100, "tail"), relu=True)
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype) -> None:
    x, add = _data(50, 20)
    # No sum in bfloat16: the interpreter rounds it towards zero, a GPU does not.
    x, residual = x.to(dtype), add.to(dtype) if dtype == torch.float16 else None
    norm, rows = _norm(20), _rows(50, "holes")
    slope = _random(50, 20, seed=7).to(dtype)
    with use_engine("fused"):
        fused = _run(norm, x, residual, slope, rows, relu=False)
    with use_engine("reference"):
        plain = _run(norm, x, residual, slope, rows, relu=False)
    for name, value in plain.items():
        assert fused[name].dtype == value.dtype
        torch.testing.assert_close(fused[name], value, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(fused["var"], plain["var"], rtol=1e-5, atol=1e-5)


def test_a_residual_of_another_type() -> None:
    x, add = _data(30, 5)
    slope = _random(30, 5, seed=7)
    with use_engine("fused"):
        fused = _run(_norm(5), x.bfloat16(), add, slope, _rows(30, "all"), relu=False)
    with use_engine("reference"):
        plain = _run(_norm(5), x.bfloat16(), add, slope, _rows(30, "all"), relu=False)
    for name, value in plain.items():
        assert fused[name].dtype == value.dtype
        torch.testing.assert_close(fused[name], value, rtol=2e-2, atol=1e-4)


def test_no_second_derivative() -> None:
    x, _ = _data(20, 4)
    x.requires_grad_()
    with use_engine("fused"):
        y = _norm(4)(x, _rows(20, "all")).square().sum()
        (dx,) = torch.autograd.grad(y, x, create_graph=True)
        with pytest.raises(ConfigError, match="no second derivative"):
            dx.square().sum().backward()
