"""Triton kernels of the gated convolution over nodes and their edges.

Node terms are the columns A | D | B | E of one tensor [nodes, 4 C]. Every row of an output is
written by exactly one program, sums are float32 and run in a fixed order, without atomics. Edges
from ``ptr[nodes]`` on are padding: they enter no sum.
Numbers of nodes and edges are not specialised, so that all batches share one compiled kernel.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.model.edge_tile_kernels import STEP, _rows, _sigmoid

GATE_EPS = tl.constexpr(1e-6)


@triton.jit
def node_kernel(
    terms, r, u, h, mean, inverse, moments, source, ptr,
    C: tl.constexpr, CHUNK: tl.constexpr, POSITION: tl.constexpr, MOMENTS: tl.constexpr,
):  # fmt: skip
    """g = σ(u) r, inverse_t = 1 / (Σ g + 1e-6), mean_t = inverse_t Σ g B_s, h = A + mean;
    grid (nodes · blocks of STEP channels,).

    With MOMENTS also moments [nodes, 2, C]: mean, and Σ (u − mean)², of each node's edges, summed
    as deviations from the last of them; without edges from the one before, and 0.
    """
    BLOCKS: tl.constexpr = (C + STEP - 1) // STEP
    node = tl.program_id(0) // BLOCKS
    channel = (tl.program_id(0) % BLOCKS) * STEP + tl.arange(0, STEP)
    wide = channel < C
    numerator = tl.zeros([CHUNK, STEP], tl.float32)
    denominator = tl.zeros([CHUNK, STEP], tl.float32)
    begin, end = tl.load(ptr + node), tl.load(ptr + node + 1)
    if MOMENTS:
        sums = tl.zeros([CHUNK, STEP], tl.float32)
        squares = tl.zeros([CHUNK, STEP], tl.float32)
        center = u + tl.maximum(end - 1, 0).to(tl.int64) * C + channel
        center = tl.load(center, wide, other=0.0).to(tl.float32)
    for start in range(begin, end, CHUNK):
        first, left = tl.cast(start, tl.int64), end - start
        row = tl.minimum(tl.arange(0, CHUNK), left - 1)
        other = tl.load(source + first + row)
        value = _rows(u + first * C, row, channel, C, C)
        if MOMENTS:
            apart = value - center[None, :]  # 0 where the last stands in
            sums += apart
            squares += apart * apart
        gate = tl.where((tl.arange(0, CHUNK) < left)[:, None], _sigmoid(value), 0.0)
        if POSITION:
            gate *= tl.load(r + first + row).to(tl.float32)[:, None]
        numerator += gate * _rows(terms + 2 * C, other, channel, 4 * C, C)
        denominator += gate
    share = 1.0 / (tl.sum(denominator, 0) + GATE_EPS)
    found = tl.sum(numerator, 0) * share
    here = node.to(tl.int64) * C + channel
    tl.store(mean + here, found, wide)
    tl.store(inverse + here, share, wide)
    if MOMENTS:
        total, one = tl.sum(sums, 0), 1.0 / tl.maximum(end - begin, 1).to(tl.float32)
        moments += node.to(tl.int64) * C  # here again: two rows a node
        tl.store(moments + here, center + total * one, wide)
        tl.store(moments + here + C, tl.sum(squares, 0) - total * total * one, wide)
    a = terms + node.to(tl.int64) * (4 * C) + channel
    found += tl.load(a, wide, other=0.0).to(tl.float32)
    tl.store(h + here, found.to(h.dtype.element_ty), wide)


# --- backward -------------------------------------------------------------------------------------


@triton.jit
def source_gradient_kernel(
    share, r, u, du, d_terms, target, ptr, order,
    C: tl.constexpr, CHUNK: tl.constexpr, POSITION: tl.constexpr,
):  # fmt: skip
    """By source: dB = Σ σ(u) r share_t and dE = Σ du;
    grid (nodes · blocks of STEP channels,)."""
    BLOCKS: tl.constexpr = (C + STEP - 1) // STEP
    node = tl.program_id(0) // BLOCKS
    channel = (tl.program_id(0) % BLOCKS) * STEP + tl.arange(0, STEP)
    wide = channel < C
    d_b = tl.zeros([CHUNK, STEP], tl.float32)
    d_e = tl.zeros([CHUNK, STEP], tl.float32)
    end = tl.load(ptr + node + 1)
    for start in range(tl.load(ptr + node), end, CHUNK):
        row, left = tl.arange(0, CHUNK), end - start
        inside = (row < left)[:, None] & wide[None, :]
        edge = tl.load(order + start + tl.minimum(row, left - 1)).to(tl.int64)
        at = edge[:, None] * C + channel[None, :]
        gate = _sigmoid(tl.load(u + at, inside, other=float("-inf")).to(tl.float32))
        if POSITION:
            gate *= tl.load(r + edge).to(tl.float32)[:, None]
        other = tl.load(target + edge)
        d_b += gate * _rows(share, other, channel, C, C)
        d_e += tl.load(du + at, inside, other=0.0).to(tl.float32)
    own = d_terms + node.to(tl.int64) * (4 * C) + channel
    tl.store(own + 2 * C, tl.sum(d_b, 0).to(d_terms.dtype.element_ty), wide)
    tl.store(own + 3 * C, tl.sum(d_e, 0).to(d_terms.dtype.element_ty), wide)
