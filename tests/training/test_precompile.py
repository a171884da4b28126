"""Kernels compiled at once; that none are left is tested with captured steps, on a GPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gradformer.training.precompile import Zeros, compile_kernels


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
    calls = []

    def body() -> None:
        calls.append(torch.empty(3))
        raise ValueError

    compile_kernels(body, torch.device("cpu"))
    assert len(calls) <= 1  # none where no kernels can run
