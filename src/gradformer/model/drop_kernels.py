"""The Triton kernel of dropout on packed rows."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.attention.draw_kernels import is_kept, keys_of_rows


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
