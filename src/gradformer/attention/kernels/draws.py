"""Random draws inside Triton kernels, bit by bit those of :mod:`gradformer.attention.draws`."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _leading(x):
    x = (x ^ (x >> 16)) * 0x7FEB352D
    return (x ^ (x >> 15)) * 0x846CA68B


@triton.jit
def mix(x):
    x = _leading(x)
    return x ^ (x >> 16)


@triton.jit
def site_key(seed):
    """The key of a site's draws; ``seed`` points at (trial seed, step, site)."""
    trial = tl.load(seed).to(tl.uint32)
    step = tl.load(seed + 1).to(tl.uint32)
    site = tl.load(seed + 2).to(tl.uint32)
    return mix(mix(mix(trial) + step) + site)


@triton.jit
def keys_of_rows(seed, graph, head, rows):
    """The key of each row's draws."""
    key = mix(site_key(seed) + graph.to(tl.uint32))
    return mix(key + (head.to(tl.uint32) << 24) + rows.to(tl.uint32))


@triton.jit
def is_kept(row_key, column, threshold):
    """Whether dropout keeps (row, column); ``threshold`` as ``draws.threshold`` gives it."""
    x = _leading(row_key + column.to(tl.uint32) * 0x9E3779B9)
    return x.to(tl.int32, bitcast=True) >= threshold
