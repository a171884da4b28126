"""The pooling kernels against plain sums."""

from __future__ import annotations

import pytest
import torch

from gradformer.attention import use_engine
from gradformer.model.segments import pool

pytest.importorskip("triton")


@pytest.mark.parametrize("how", ["add", "mean"])
@pytest.mark.parametrize("channels", [3, 70])
def test_pool(how: str, channels: int, device: str) -> None:
    sizes = torch.tensor([5, 0, 40, 1, 0])  # an empty graph has a zero row
    ptr = torch.nn.functional.pad(sizes.cumsum(0), (1, 0)).int().to(device)
    x = torch.randn(60, channels, generator=torch.Generator().manual_seed(0)).to(device)
    slope = torch.cos(torch.arange(5 * channels, device=device)).view(5, channels)
    found = []
    for engine in ("fused", "reference"):
        x = x.detach().requires_grad_()
        with use_engine(engine):
            y = pool(x, ptr, how)
            found.append((y.detach(), *torch.autograd.grad(y, x, slope)))
    for got, expected in zip(*found, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)
    assert not found[0][1][46:].any()


def test_it_can_be_differentiated_twice(device: str) -> None:
    ptr = torch.tensor([0, 2, 3], dtype=torch.int32, device=device)
    x = torch.tensor([[1.0], [2.0], [3.0]], device=device, requires_grad=True)
    with use_engine("fused"):
        (dx,) = torch.autograd.grad(pool(x, ptr, "add").pow(3).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(dx.sum(), x)
    assert second.flatten().tolist() == [36.0, 36.0, 18.0]
