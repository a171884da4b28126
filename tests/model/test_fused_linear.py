"""The fused linear map against the plain one: outputs and all gradients."""

from __future__ import annotations

import pytest
import torch

from gradformer import use_engine
from gradformer.errors import ConfigError
from gradformer.model.fused_linear import fused_linear


@pytest.mark.parametrize(
    ("rows", "width", "out", "relu", "bias"),
    [
        (1, 4, 3, False, True),
        (70, 16, 40, True, True),
        (33, 65, 20, True, False),
        (5, 6, 16, False, False),
    ],
)
def test_matches_the_plain_map(rows, width, out, relu, bias, device):
    generator = torch.Generator().manual_seed(rows)

    def run(fused: bool) -> list[torch.Tensor]:
        generator.manual_seed(rows)
        kind = torch.float32 if fused else torch.float64
        x, w = (torch.randn(*s, generator=generator) for s in ((rows, width), (out, width)))
        b, g = torch.randn(out, generator=generator), torch.randn(rows, out, generator=generator)
        x, w, b, g = (t.to(device, kind).requires_grad_() for t in (x, w, b, g))
        given = b if bias else None
        if fused:
            with use_engine("fused"):
                y = fused_linear(x, w, given, relu)
        else:
            y = torch.nn.functional.linear(x, w, given)
            y = y.relu() if relu else y
        wanted = [x, w, b] if bias else [x, w]
        return [y.detach(), *torch.autograd.grad(y, wanted, g.detach())]

    again = run(fused=True)
    for ours, plain, same in zip(run(fused=True), run(fused=False), again):
        torch.testing.assert_close(ours.double(), plain, rtol=1e-5, atol=1e-5)
        assert torch.equal(ours, same)


def test_refuses_a_second_derivative(device):
    x = torch.randn(3, 4, device=device, requires_grad=True)
    w = torch.randn(2, 4, device=device, requires_grad=True)
    y = fused_linear(x, w, None).square().sum()
    with pytest.raises(ConfigError, match="reference engine"):
        torch.autograd.grad(y, x, create_graph=True)
