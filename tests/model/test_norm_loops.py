"""The norm's loops for a CPU are its plain form: results, statistics, gradients, threads."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor

from gradformer import use_engine
from gradformer.attention.layout import Rows
from gradformer.attention.loops import running
from gradformer.model import parts
from gradformer.model.loops import norm as norm_loops
from gradformer.model.parts import BatchNorm, Dropout

ROWS, WIDTH = 300, 20  # more than two pieces, and no multiple of a vector
AROUND = {
    "alone": {},
    "residual": {"add"},
    "all": {"add", "relu", "plus"},
    "one row": {"relu", "plus", "one row"},
    "across": {"add", "plus", "across"},
    "dropout": {"add", "relu", "plus", "dropout"},
}


@pytest.fixture(autouse=True)
def looped(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """However few the numbers are; whether the norms that loops took were in training."""
    calls: list[bool] = []
    known = norm_loops.looped_norm

    def note(x: Tensor, add: Tensor, plus: Tensor, norm: BatchNorm, relu: bool) -> Tensor:
        calls.append(norm.training)
        return known(x, add, plus, norm, relu)

    monkeypatch.setattr(norm_loops, "looped_norm", note)
    monkeypatch.setattr(parts, "LEAST_LOOPED", 0)
    return calls


def problem(kind: str, dtype: torch.dtype) -> tuple[BatchNorm, dict[str, Tensor]]:
    """A norm, and the leaves that it is given by name."""
    torch.manual_seed(0)
    options = AROUND[kind]
    norm = BatchNorm(WIDTH, eps=1e-2, momentum=0.3)
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    given = {"x": torch.randn(ROWS, WIDTH) + 3.0 * torch.randn(WIDTH)}
    given |= {name: torch.randn(ROWS, WIDTH) for name in ("add", "plus") if name in options}
    if "one row" in options:
        given["plus"] = given["plus"][:1]
    if "across" in options:
        given = {name: x.T.contiguous().T for name, x in given.items()}
    return norm.to(dtype), {name: x.to(dtype).requires_grad_() for name, x in given.items()}


def result(norm: BatchNorm, given: dict[str, Tensor], kind: str) -> Tensor:
    around = {n: x.expand(ROWS, -1) if len(x) == 1 else x for n, x in given.items() if n != "x"}
    place = torch.arange(ROWS, dtype=torch.int32)
    rows, seeds = Rows(place % 3, place), torch.tensor([[5, 7, 0]])
    drops = dict.fromkeys(("before", "after"), Dropout(0.3) if "dropout" in AROUND[kind] else None)
    return norm(given["x"], rows, seeds, relu="relu" in AROUND[kind], **drops, **around)


def everything(engine: str, kind: str, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """The result, all gradients, and the running statistics."""
    norm, given = problem(kind, dtype)
    with use_engine(engine):
        y = result(norm, given, kind)
        grads = torch.autograd.grad((y * y.sin()).sum(), [*given.values(), *norm.parameters()])
    return [y, *grads, *norm.buffers()]


@pytest.mark.parametrize("kind", AROUND)
def test_they_give_what_plain_code_gives(
    kind: str, looped: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = everything("reference", kind, torch.float64)
    assert looped == []
    found = everything("auto", kind)
    assert looped == [True]
    for ours, plain in zip(found, expected):
        torch.testing.assert_close(ours.to(plain.dtype), plain, rtol=1e-4, atol=1e-4)
    monkeypatch.setattr(running, "LEAST_WORK", 1)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    assert all(map(torch.equal, everything("auto", kind), found))
    torch.set_num_threads(threads)


def test_evaluation_takes_them_where_nothing_is_derived(looped: list[bool]) -> None:
    norm, given = problem("all", torch.float32)
    result(norm, given, "all")  # moves the running statistics
    derived = result(norm.eval(), given, "all")
    with torch.no_grad():
        torch.testing.assert_close(result(norm, given, "all"), derived)
    assert looped == [True, False]
    assert derived.requires_grad


def test_second_derivatives_are_those_of_plain_code() -> None:
    found = []
    for engine in ("auto", "reference"):
        norm, given = problem("all", torch.float32)
        leaves = [*given.values(), *norm.parameters()]
        with use_engine(engine):
            made = given | {"x": given["x"] + given["add"].sin()}  # of another input
            y = result(norm, made, "all")
            wanted = given["add"], given["plus"]
            first = torch.autograd.grad(y.square().sum(), wanted, create_graph=True)
            found.append(torch.autograd.grad(sum(g.square().sum() for g in first), leaves))
    for ours, plain in zip(*found):
        torch.testing.assert_close(ours, plain, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("batched", [False, True])
def test_gradients_over_a_batch_of_slopes(batched: bool, looped: list[bool]) -> None:
    norm, given = problem("all", torch.float32)
    y, leaves = result(norm, given, "all"), [*given.values(), *norm.parameters()]
    assert looped
    slopes = torch.randn(2, *y.shape)

    def gradient(slope: Tensor, batched: bool = False) -> tuple[Tensor, ...]:
        return torch.autograd.grad(y, leaves, slope, retain_graph=True, is_grads_batched=batched)

    found = gradient(slopes, batched=True) if batched else torch.vmap(gradient)(slopes)
    for ours, each in zip(found, zip(*map(gradient, slopes))):
        torch.testing.assert_close(ours, torch.stack(each), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["x", "add"])
def test_what_was_written_to_is_not_derived(name: str) -> None:
    norm, given = problem("all", torch.float32)
    y = result(norm, given, "all")
    given[name].detach().mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_what_is_not_a_number_stays_so() -> None:
    norm, given = problem("all", torch.float32)
    given["x"].detach()[7, 3] = torch.nan
    assert result(norm, given, "all").isnan().any(0).nonzero().flatten().tolist() == [3]


def test_infinite_states_are_passed_on_without_a_word(looped: list[bool]) -> None:
    norm, given = problem("alone", torch.float32)
    with torch.no_grad():
        given["x"][::200, 0] = torch.inf
    slope = torch.ones(ROWS, WIDTH)
    slope[0, 1], slope[200, 1] = torch.inf, -torch.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = result(norm, given, "alone")
        (dx,) = torch.autograd.grad(y, given["x"], slope)
    assert looped == [True]
    assert y.isnan().all(0).nonzero().tolist() == [[0]]
    assert dx.isnan().all(0).nonzero().tolist() == [[0], [1]]
