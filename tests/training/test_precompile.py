"""Kernels compiled at once; that none are left is tested with captured steps, on a GPU."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from gradformer import use_engine
from gradformer.model.base import all_models
from gradformer.training import capture, precompile
from gradformer.training.precompile import Zeros, compile_kernels
from tests.training import toy

STREAM: Any = SimpleNamespace(device=torch.device("cpu"), synchronize=lambda: None)


class Indexed(torch.autograd.Function):
    """Uses memory that nobody has written as an index, both ways."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x[torch.empty(1000, dtype=torch.int64)]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return x[x.new_empty(len(x), dtype=torch.int64)] + torch.empty_like(x)


def test_new_memory_is_zeros() -> None:
    dirty = torch.full((1000,), 1 << 40)  # so that memory which is used again is not zeros
    del dirty
    x = torch.arange(3.0).add(5).requires_grad_()
    with Zeros():
        y = Indexed.apply(x)
        (dx,) = torch.autograd.grad(y.sum(), x)
    assert (y == 5).all()
    assert (dx == 5).all()


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where kernels can run."""
    pytest.importorskip("triton")
    monkeypatch.setattr(precompile, "why_no_triton", lambda device: None)


@pytest.mark.usefixtures("kernels")
def test_errors_are_left_for_the_real_run() -> None:
    found = []

    def body() -> None:
        found.append(torch.empty(3))
        raise ValueError

    compile_kernels(body, STREAM)
    (new,) = found
    assert torch.equal(new, torch.zeros(3))


@pytest.mark.usefixtures("kernels")
def test_kernels_of_others_are_launched_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    jit = pytest.importorskip("triton.runtime.jit").JITFunction
    only_compiled, now = list[bool](), [STREAM]
    monkeypatch.setattr(jit, "run", lambda *_, grid, warmup: only_compiled.append(warmup))
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: now[0])
    kernel = SimpleNamespace(fn=None, device_caches={None: None})

    def body() -> None:
        for now[0] in (STREAM, None, STREAM):  # None: that of another thread
            jit.run(kernel, torch.ones(1), 16, grid=(1,), warmup=False)

    compile_kernels(body, STREAM)
    assert sorted(only_compiled) == [False, True]


@pytest.mark.usefixtures("kernels")
def test_compiling_is_undone_before_the_run_that_warms_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch may have one batch only: the place of a second one is behind the end."""
    monkeypatch.setattr(capture, "_on", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", SimpleNamespace)
    monkeypatch.setattr(torch.cuda, "graph", lambda *_, **__: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: None)
    ids, cursor, seen = torch.tensor([7]), torch.tensor([0]), list[int]()

    def body() -> None:
        seen.append(int(ids.index_select(0, cursor)))
        cursor.add_(1)

    capture.recorded(STREAM, body, [cursor], first=True)
    assert seen == [7, 7, 7]  # compiled, warmed up, recorded


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels of the interpreter are left out")
@pytest.mark.parametrize("name", sorted(all_models()))
def test_a_step_without_its_kernels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the plain code between kernels that do nothing looks up is there, in every model."""
    interpreter = pytest.importorskip("triton.runtime.interpreter")
    monkeypatch.setattr(interpreter.InterpretedFunction, "run", lambda *_, **__: None)
    recipe = toy.recipe_of(name)
    with use_engine("fused"):
        trial = toy.trial(recipe)
        captured = capture.CapturedTrial(trial)
        with Zeros():
            captured.step(captured.capacity(0))()
