"""Kernels compiled at once; that none are left is tested with captured steps, on a GPU."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from gradformer import use_engine
from gradformer.training import capture
from gradformer.training.precompile import Zeros, compile_kernels

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


def test_errors_are_left_for_the_real_run() -> None:
    pytest.importorskip("triton")
    found = []

    def body() -> None:
        found.append(torch.empty(3))
        raise ValueError

    with use_engine("fused"):  # whose kernels run here in Triton's interpreter
        compile_kernels(body, STREAM)
    (new,) = found
    assert torch.equal(new, torch.zeros(3))


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

    with use_engine("fused"):
        compile_kernels(body, STREAM)
    assert sorted(only_compiled) == [False, True]


def test_compiling_is_undone_before_the_run_that_warms_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch may have one batch only: the place of a second one is behind the end."""
    pytest.importorskip("triton")
    monkeypatch.setattr(capture, "_on", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", SimpleNamespace)
    monkeypatch.setattr(torch.cuda, "graph", lambda *_, **__: nullcontext())
    ids, cursor, seen = torch.tensor([7]), torch.tensor([0]), list[int]()

    def body() -> None:
        seen.append(int(ids.index_select(0, cursor)))
        cursor.add_(1)

    with use_engine("fused"):
        capture.Recorded(STREAM, body, [cursor], first=True)
    assert seen == [7, 7, 7]  # compiled, warmed up, recorded
