"""Does an engine give what the reference gives on this machine? One small batch for each kernel."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradformer.attention.availability import use_engine
from gradformer.attention.layout import Layout
from gradformer.attention.operation import decay_attention
from gradformer.errors import GradformerError

BATCHES: dict[str, tuple[list[int], int, torch.dtype]] = {  # sizes, head width, type
    "small graphs": ([5, 7], 20, torch.float32),
    "narrow heads": ([33], 6, torch.float32),
    "large graphs": ([70], 20, torch.float32),
    "large graphs in half precision": ([70], 32, torch.float16),
}


def why_not(engine: str, device: torch.device) -> str | None:
    """Why ``engine`` cannot be used on ``device``, found by trying; None if it works."""
    for name, batch in BATCHES.items():
        try:
            gap = _gap(engine, device, *batch)
        except GradformerError as error:
            return str(error)
        except Exception as error:  # a compiler that is missing has many faces
            return f"{name}: {type(error).__name__}: {error}".split("\n")[0]
        if not gap < (1e-4 if batch[2] == torch.float32 else 1e-2):
            return f"{name}: gives other results than the reference (by {gap:.1e})"
    return None


def _gap(
    engine: str, device: torch.device, sizes: list[int], width: int, dtype: torch.dtype
) -> float:
    """The largest relative error of the output and of all gradients."""
    generator = torch.Generator().manual_seed(0)
    layout = replace(Layout.from_sizes(sizes, device=device), symmetric=True)
    tensors = torch.randn(4, sum(sizes), 1, width, generator=generator).to(device, dtype)
    blocks = [torch.randint(0, 6, (n, n), generator=generator) for n in sizes]
    apart = [(torch.arange(n)[:, None] - torch.arange(n)).abs() // 16 for n in sizes]
    both = (torch.minimum(x, x.T) + far for x, far in zip(blocks, apart))
    distance = torch.cat([x.flatten().byte() for x in both]).to(device)
    mul = (0.6 ** torch.arange(256.0))[None].to(device).requires_grad_()

    def everything(name: str, dtype: torch.dtype) -> list[Tensor]:
        q, k, v, grad = (t.to(dtype, copy=True).requires_grad_() for t in tensors)
        with use_engine(name):
            out = decay_attention(q, k, v, layout, distance, mul, None)
        return [out.detach(), *torch.autograd.grad(out, [q, k, v, mul], grad)]

    pairs = zip(everything(engine, dtype), everything("reference", torch.float64))
    return max(float((a.double() - b).norm() / b.norm()) for a, b in pairs)
