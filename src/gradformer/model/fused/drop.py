"""Dropout and stochastic depth in one Triton kernel.

The plain versions are :func:`~gradformer.attention.draws.drop` and
:func:`~gradformer.attention.draws.drop_rows`: what is kept is the same, bit for bit.
"""

# The kernel's arguments are untyped.
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from gradformer.attention.draws import threshold
from gradformer.attention.kernels.draws import is_kept, keys_of_rows
from gradformer.attention.kernels.tiles import block_of

if TYPE_CHECKING:
    from gradformer.model.parts import Draw


@triton.jit
def drop_kernel(
    x, y, graph_id, index, seed, rows, channels, scale, threshold,
    BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, WHOLE_GRAPHS: tl.constexpr,
):  # fmt: skip
    """y = x·scale where the draw keeps it, otherwise 0; grid (row tiles, channel tiles).

    One draw for each entry, or one for all rows of a graph: see :mod:`gradformer.attention.draws`.
    """
    row = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = (row < rows)[:, None] & (channel < channels)[None, :]
    graph = tl.load(graph_id + row, row < rows, other=0)
    if WHOLE_GRAPHS:
        kept = is_kept(keys_of_rows(seed, graph, row * 0, row * 0), row * 0, threshold)[:, None]
    else:
        inner = tl.load(index + row, row < rows, other=0)
        keys = keys_of_rows(seed, graph, row * 0, inner)
        kept = is_kept(keys[:, None], channel[None, :], threshold)
    place = row.to(tl.int64)[:, None] * channels + channel[None, :]
    value = tl.load(x + place, inside, other=0.0).to(tl.float32)
    out = tl.where(kept, value * scale, 0.0)
    tl.store(y + place, out.to(y.dtype.element_ty), inside)


def fused_drop(x: Tensor, draw: Draw) -> Tensor:
    """``draw(x)`` of x [rows, c], without its derivative."""
    x, rows = x.contiguous(), draw.rows
    size, channels = x.shape
    y = torch.empty_like(x)
    block_c = min(64, block_of(channels, 4))
    block_r = 1024 // block_c
    drop_kernel[(-(-size // block_r), -(-channels // block_c))](
        x, y, rows.graph_id, rows.index, draw.seed, size, channels, draw.scale,
        threshold(draw.p), BLOCK_R=block_r, BLOCK_C=block_c, WHOLE_GRAPHS=draw.whole_graphs,
    )  # fmt: skip
    return y
