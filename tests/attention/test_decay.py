"""The tables of a decay: their values, their derivatives, and what is refused."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from gradformer.attention import Decay, Layout, Table, decay_attention
from gradformer.attention.decay import SHAPES, TARGETS, UNREACHABLE
from gradformer.errors import ConfigError
from gradformer.structure import Codebook
from gradformer.structure.codebook import HOPS

PSI = torch.tensor(HOPS.values, dtype=torch.float64)


def tables(**options: Any) -> tuple[Table | None, Table | None]:
    """mul and add of a decay in float64."""
    (found,) = Decay(options.pop("heads", 1), **options).double()()
    return found.mul, found.add


def values(**options: Any) -> Tensor:
    """The one table that a decay makes, [heads, 256]."""
    (found,) = [table for table in tables(**options) if table is not None]
    return found.value.detach()


def test_it_shows_its_options_and_what_it_has_learned() -> None:
    rest = "sets=1, shape=exponential, on=logit, slope=0.0, unreachable=far"
    decay = Decay(4)
    assert repr(decay) == f"Decay(heads=4, decay=0.6, start=2.0, {rest})"
    with torch.no_grad():
        decay.start[0, 3] = 3.5  # type: ignore[index]
    assert "start=2.0…3.5," in repr(decay)
    assert "decay=0.7, start=2.0, end=9.0," in repr(Decay(1, decay=0.7, shape="linear", end=9.0))
    assert "decay=0.7, start=2.0," in repr(Decay(1, decay=0.7, learn_decay=True))
    assert "start" not in repr(Decay(1, shape="free"))
    assert "start=?," in repr(Decay(2).to("meta"))


def test_the_exponential_is_the_papers() -> None:
    for start in (2.5, 12.5):  # also beyond where the linear shape would end
        found = values(heads=3, decay=0.7, start=start, spread=1.5)
        starts = start + torch.tensor([-1.5, 0.0, 1.5], dtype=torch.float64)
        torch.testing.assert_close(found, 0.7 ** (PSI - starts[:, None]).relu())
    assert tables(decay=0.7)[1] is None


def test_the_weight_variant_is_its_logarithm() -> None:
    assert tables(on="weight")[0] is None
    on_logit = values(decay=0.7, start=2.5, slope=0.1)
    on_weight = values(decay=0.7, start=2.5, slope=0.1, on="weight")
    torch.testing.assert_close(on_weight.exp(), on_logit)


def test_a_slope_raises_the_factor_below_the_start() -> None:
    found = values(decay=0.5, start=3.0, slope=0.2)[0, :5]
    expected = 0.5 ** torch.tensor([-0.6, -0.4, -0.2, 0.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(found, expected)


def test_a_decay_of_zero_is_a_step() -> None:
    near = PSI[None] <= 1
    assert torch.equal(values(decay=0.0, start=1.0), near.double())
    on_weight = values(decay=0.0, start=1.0, on="weight")
    assert torch.equal(on_weight, torch.where(near, 0.0, -math.inf).double())


def test_the_linear_shape_falls_to_zero_at_its_end() -> None:
    found = values(shape="linear", start=2.0, end=6.0)[0, :8]
    expected = torch.tensor([1, 1, 1, 0.75, 0.5, 0.25, 0, 0], dtype=torch.float64)
    torch.testing.assert_close(found, expected)
    on_weight = values(shape="linear", start=2.0, end=6.0, on="weight")[0, :8]
    torch.testing.assert_close(on_weight, expected.log())


@pytest.mark.parametrize("on", TARGETS)
def test_a_free_profile_begins_at_the_exponential(on: str) -> None:
    options = {"decay": 0.7, "start": 2.5, "on": on}
    found = values(shape="free", heads=2, **options)
    expected = values(heads=2, **options)
    if on == "weight":  # log of the least float that is kept
        expected = expected.clamp(min=math.log(1e-30))
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("on", TARGETS)
def test_a_learned_profile_is_added_to_the_logit(on: str) -> None:
    decay = Decay(2, on=on, profile=True).double()
    profile = torch.linspace(-1.0, 1.0, 512, dtype=torch.float64).view(1, 2, 256)
    with torch.no_grad():
        decay.profile.copy_(profile)  # type: ignore[union-attr]
    (found,) = decay()
    without = tables(heads=2, on=on)[1]
    assert found.add is not None
    assert (without is None) == (on == "logit")
    expected = profile[0] if without is None else profile[0] + without.value
    torch.testing.assert_close(found.add.value, expected)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("on", TARGETS)
def test_unreachable_pairs(shape: str, on: str) -> None:
    options = {"shape": shape, "on": on, "decay": 0.9, "start": 1.0}
    far = values(unreachable="far", **options)[0, 255]
    full = values(unreachable="full", **options)[0, 255]
    strongest = 1.0 if on == "logit" else 0.0
    assert full == strongest
    expected = 0.0 if shape == "linear" else 0.9**509  # ψ = 510, sp = 1
    factor = far if on == "logit" else far.exp()
    torch.testing.assert_close(factor, torch.tensor(expected).double(), atol=1e-29, rtol=1e-4)
    _, add = tables(unreachable="blocked", **options)
    assert add is not None
    assert add.value[0, 255] == -math.inf
    assert (add.value[0, :5] > -math.inf).all()


def test_a_codebook_gives_the_unit() -> None:
    psi = torch.linspace(0.0, 2.0, 256)
    found = values(decay=0.5, start=1.0, codebook=Codebook("mine", psi.numpy()))
    torch.testing.assert_close(found[0], 0.5 ** (psi.double() - 1.0).relu())


def test_a_set_for_each_layer() -> None:
    decay = Decay(2, sets=3, learn_decay=True, profile=True)
    assert decay.start is not None
    with torch.no_grad():
        decay.start[1] += 1.0
    first, second, third = decay()
    assert first.mul is not None
    assert second.mul is not None
    assert third.mul is not None
    assert torch.equal(first.mul.value, third.mul.value)
    assert not torch.equal(first.mul.value, second.mul.value)
    second.mul.value.sum().backward()
    assert decay.start.grad is not None
    assert (decay.start.grad[1] != 0.0).all()
    assert decay.start.grad[[0, 2]].abs().sum() == 0.0


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"slope": 0.15},
        {"learn_decay": True},
        {"learn_decay": True, "slope": 0.15},
        {"shape": "linear", "end": 6.0},
        {"shape": "linear", "end": 3.005},  # so near to the last start that the width is held
        {"shape": "linear", "end": 600.0},  # the byte of unreachable pairs is on the ramp
    ],
)
@pytest.mark.parametrize("unreachable", UNREACHABLE)
@pytest.mark.parametrize("on", TARGETS)
def test_jacobian_is_the_derivative_of_every_entry(
    shape: dict[str, Any], unreachable: str, on: str
) -> None:
    """Also at the kinks, where ψ is a start or end point: as torch has it."""
    decay = Decay(
        2, decay=0.6, start=2.0, spread=1.0, sets=2, unreachable=unreachable, on=on, **shape
    ).double()
    one_byte = torch.eye(256, dtype=torch.float64)[:, None].expand(256, 2, 256)
    parameters = list(decay.parameters())
    for number, found in enumerate(decay()):
        table = found.mul if on == "logit" else found.add
        assert table is not None
        assert table.jacobian is not None
        assert table.parameters is not None
        assert not table.jacobian.requires_grad
        assert len(table.jacobian) == len(parameters) == table.parameters.shape[1]
        expected = torch.autograd.grad(
            table.value, parameters, one_byte, is_grads_batched=True, retain_graph=True
        )  # of each parameter [256, sets, heads]
        for row, derivative in zip(table.jacobian, expected):
            torch.testing.assert_close(row, derivative[:, number].T)


def allowed(shape: str, decay: float, on: str) -> bool:
    return not (shape == "free" and on == "weight" and decay == 0.0)


CASES = [
    (shape, on, unreachable, decay, learn)
    for shape, on, unreachable, decay in itertools.product(
        SHAPES, TARGETS, UNREACHABLE, (0.0, 0.5, 1.0)
    )
    if allowed(shape, decay, on)
    for learn in ([False, True] if decay == 0.5 and shape == "exponential" else [False])
]


@pytest.mark.parametrize(("shape", "on", "unreachable", "decay", "learn"), CASES)
@pytest.mark.parametrize("profile", [False, True])
@pytest.mark.parametrize("kind", [torch.float32, torch.float16])
def test_no_gradient_is_ever_nan(
    shape: str,
    on: str,
    unreachable: str,
    decay: float,
    learn: bool,
    profile: bool,
    kind: torch.dtype,
) -> None:
    """Starts and ends lie on whole numbers: the kinks and the linear end point are hit exactly."""
    made = Decay(
        2, decay=decay, start=1.0, end=3.0, shape=shape, on=on, unreachable=unreachable,
        learn_decay=learn, profile=profile,
    ).to(kind)  # fmt: skip
    (found,) = made()
    layout = Layout.from_sizes([4, 1, 2])
    distance = torch.tensor(
        [0, 1, 2, 3, 1, 0, 255, 254, 2, 255, 0, 1, 3, 254, 1, 0, 0, 0, 255, 255, 0]
    )
    torch.manual_seed(0)
    q, k, v = (torch.randn(7, 2, 3).to(kind).requires_grad_() for _ in range(3))
    out = decay_attention(q, k, v, layout, distance.byte(), found.mul, found.add)
    assert torch.isfinite(out).all()
    out.square().sum().backward()
    for name, parameter in [("q", q), ("k", k), ("v", v), *made.named_parameters()]:
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name


def test_every_parameter_is_exempt_from_weight_decay() -> None:
    decay = Decay(2, learn_decay=True, profile=True)
    assert {id(p) for p in decay.no_weight_decay()} == {id(p) for p in decay.parameters()}


@pytest.mark.parametrize(
    ("named", "options"),
    [
        ("decay", {"decay": 1.1}),
        ("decay", {"decay": -0.1}),
        ("decay", {"decay": math.nan}),
        ("decay", {"decay": "0.6"}),
        ("start", {"start": [1.0, 2.0]}),
        ("start", {"start": torch.ones(2)}),
        ("slope", {"slope": 0.1, "shape": "linear"}),
        ("slope", {"slope": 0.1, "decay": 0.0}),
        ("learn_decay", {"learn_decay": True, "decay": 1.0}),
        ("learn_decay", {"learn_decay": True, "decay": 0.0}),
        ("learn_decay", {"learn_decay": True, "shape": "linear"}),
        ("learn_decay", {"learn_decay": True, "shape": "free"}),
        ("decay", {"shape": "free", "on": "weight", "decay": 0.0}),
        ("end", {"shape": "linear", "start": 4.0, "spread": 1.0, "end": 5.0}),
        ("end", {"shape": "linear", "end": math.inf}),
        ("slope", {"slope": math.nan}),
        ("heads", {"heads": 0}),
        ("sets", {"sets": 0}),
        ("codebook", {"codebook": torch.zeros(256)}),
        ("codebook", {"codebook": "hops"}),
        ("decay.shape", {"shape": "exponentail"}),
        ("decay.on", {"on": "logits"}),
        ("decay.unreachable", {"unreachable": "close"}),
    ],
)
def test_impossible_options_are_named(named: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"^{named}: "):
        Decay(**{"heads": 2, **options})


@pytest.mark.parametrize("on", TARGETS)
@pytest.mark.parametrize("raw", [-200.0, 200.0])
def test_a_learned_decay_at_its_bounds_has_finite_tables(on: str, raw: float) -> None:
    decay = Decay(2, decay=0.5, learn_decay=True, on=on)
    torch.nn.init.constant_(decay.raw_decay, raw)
    (made,) = decay()
    table = made.mul or made.add
    assert table.value.isfinite().all()
    assert table.jacobian.isfinite().all()
    for gradient in torch.autograd.grad(table.value.sum(), [*decay.parameters()]):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("decay", [0.0, 1.0])
def test_start_points_that_nothing_depends_on_are_no_parameters(decay: float) -> None:
    fixed = Decay(2, decay=decay, start=1.0)
    assert list(fixed.parameters()) == []
    assert fixed.start.tolist() == [[1.0, 1.0]]
    assert "start" in fixed.state_dict()
