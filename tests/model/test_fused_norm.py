"""The batch norm kernels against the plain code in float64."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from gradformer.attention import Rows, use_engine
from gradformer.errors import ConfigError
from gradformer.model.fused.norm import MOST_CHUNKS, MOST_WHOLE_ROWS, Grid
from gradformer.model.parts import BatchNorm, Branch, Dropout, DropPath, norm_pair
from gradformer.training.weights import Weights

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("on_the_device")


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


@pytest.fixture(params=["whole", "chunked"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "chunked":
        monkeypatch.setattr("gradformer.model.fused.norm.MOST_WHOLE_ROWS", 0)


def _norm(channels: int, seed: int = 0) -> BatchNorm:
    norm = BatchNorm(channels, momentum=0.3)
    with torch.no_grad():
        for number, tensor in enumerate((norm.weight, norm.bias, norm.running_mean)):
            tensor.copy_(_random(channels, seed=seed + number))
        norm.running_var.copy_(_random(channels, seed=seed + 3).abs() + 0.5)
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
@pytest.mark.usefixtures("form")
def test_masks(real: str, training: bool) -> None:
    _check(40, 48, real, residual=True, relu=True, training=training)


@pytest.mark.parametrize("real", ["all", "holes"])
@pytest.mark.parametrize(("rows", "channels"), [(1, 6), (2, 1), (130, 64), (60, 20), (700, 5)])
@pytest.mark.usefixtures("form")
def test_sizes(rows: int, channels: int, real: str) -> None:
    _check(rows, channels, real, residual=True, relu=True, training=True)


def test_more_rows_than_a_program_holds() -> None:
    _check(2100, 5, "holes", residual=True, relu=True, training=True)


@pytest.mark.parametrize(("residual", "relu"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.usefixtures("form")
def test_combinations(residual: bool, relu: bool, training: bool) -> None:
    _check(90, 12, "holes", residual, relu, training)


def test_chunks_of_several_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradformer.model.fused.norm.MOST_CHUNKS", 6)
    monkeypatch.setattr("gradformer.model.fused.norm.MOST_WHOLE_ROWS", 0)
    grid = Grid.of(900, 32)
    assert grid.shape[0] == 3
    assert grid.chunk > grid.blocks["BLOCK_R"]
    _check(900, 32, "holes", residual=True, relu=True, training=True)


@pytest.mark.usefixtures("form")
def test_a_mean_far_from_zero() -> None:
    x, _ = _data(300, 8)
    fused, plain = _both(_norm(8), x + 3000.0, None, _rows(300, "holes"), relu=False)
    torch.testing.assert_close(fused["y"].double(), plain["y"], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(fused["var"].double(), plain["var"], rtol=1e-4, atol=0.0)


@pytest.mark.parametrize("rows", [1, 100, 1024, 5000, 10**6])
@pytest.mark.parametrize("channels", [1, 6, 64, 512])
def test_grid_covers_all(rows: int, channels: int) -> None:
    grid = Grid.of(rows, channels)
    if rows <= MOST_WHOLE_ROWS:
        assert grid.whole
        assert grid.blocks["BLOCK_R"] >= rows
        assert grid.blocks["BLOCK_C"] * grid.shape[0] >= channels
        return
    chunks, tiles = grid.shape
    assert chunks <= min(MOST_CHUNKS, grid.merging["BLOCK_P"])
    assert grid.chunk * chunks >= rows > grid.chunk * (chunks - 1)
    assert grid.blocks["BLOCK_C"] * tiles >= channels


class Around(torch.nn.Module):
    """A norm, or two, with all that can stand around it."""

    def __init__(self, channels: int, pair: bool, residual: bool, p: float, path: bool) -> None:
        super().__init__()
        self.first, self.second = _norm(channels), _norm(channels, seed=20)
        kind = DropPath if path else Dropout
        self.before, self.also, self.after = kind(p), Dropout(p / 2), Dropout(p)
        self.pair, self.residual = pair, residual
        for site, module in enumerate((self.before, self.also, self.after)):
            module.site = site

    def forward(self, x: Tensor, z: Tensor, add: Tensor, rows: Rows) -> Tensor:
        seeds = torch.tensor([[3, 1, site] for site in range(3)])
        if self.pair:
            first = Branch(self.first, x, self.before)
            return norm_pair(
                first, Branch(self.second, z, self.also, self.residual), add, rows, seeds
            )
        options = {"before": self.before, "after": self.after, "relu": True, "plus": z}
        return self.first(x, rows, seeds, add=add if self.residual else None, **options)


@pytest.mark.parametrize("pair", [False, True])
@pytest.mark.parametrize(
    ("residual", "p", "training", "path"),
    [
        (True, 0.4, True, False),
        (True, 0.0, True, False),
        (False, 0.4, True, False),
        (True, 0.4, False, False),
        (True, 0.4, True, True),
    ],
)
@pytest.mark.usefixtures("form")
def test_all_that_stands_around(
    pair: bool, residual: bool, p: float, training: bool, path: bool
) -> None:
    place = torch.arange(70, dtype=torch.int32)
    rows = Rows(place // 9, place % 9, place % 5 != 1)
    module = Around(12, pair, residual, p, path).train(training)
    inputs = [_random(70, 12, seed=seed) for seed in (5, 6, 7)]
    slope = _random(70, 12, seed=8)

    def run(kind: torch.dtype) -> dict[str, Tensor]:
        ours = copy.deepcopy(module).to(kind)
        given = [x.clone().to(kind).requires_grad_() for x in inputs]
        y = ours(*given, rows)
        (y * slope).sum().backward()
        found = {"y": y.detach()} | {f"dx{i}": x.grad for i, x in enumerate(given)}
        found |= {f"d{name}": p.grad for name, p in ours.named_parameters()}
        return found | dict(ours.named_buffers())

    with use_engine("fused"):
        fused = run(torch.float32)
    plain = run(torch.float64)
    for name, value in plain.items():
        if value is None:
            assert fused[name] is None
        else:
            torch.testing.assert_close(
                fused[name].double(), value.double(), rtol=2e-5, atol=2e-5, msg=name
            )


def test_gradients_in_pieces() -> None:
    module = Around(12, pair=True, residual=True, p=0.3, path=False)
    x, z, add = (_random(30, 12, seed=seed) for seed in (5, 6, 7))
    rows = _rows(30, "tail")
    weights = Weights(module)
    found = []
    for collect in (False, True):
        with use_engine("fused"), weights.collecting() as pieces:
            if not collect:
                pieces._places = {}
            y = module(x, z, add, rows)
            grads = torch.autograd.grad(y.square().sum(), weights.parameters, allow_unused=True)
        weights.set_grad(grads, pieces)
        assert all((grad is None) == collect for grad in grads)
        found.append(weights.grad.clone())
    assert torch.equal(*found)


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


@pytest.mark.gpu  # the interpreter runs one program after the other
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
    # Plain code rounds the sum of x and its residual before it takes the variance.
    tolerance = 1e-5 if residual is None else 1e-3
    torch.testing.assert_close(fused["var"], plain["var"], rtol=tolerance, atol=tolerance)


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
