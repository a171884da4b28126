"""Triton kernels of the gated convolution over nodes and their edges.

Node terms are the columns A | D | B | E of one tensor [nodes, 4 C]. Every row of an output is
written by exactly one program, sums are float32 and run in a fixed order, without atomics. Edges
from ``ptr[nodes]`` on are padding: they enter no sum. What is absent is None.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.model.kernels.edge_tiles import (
    STEP,
    block_channels,
    load_row,
    load_rows,
    sigmoid,
    zero_sums,
)

GATE_EPS = tl.constexpr(1e-6)


@triton.jit
def _blocks(x, row, first, X_ROW: tl.constexpr, C: tl.constexpr, BLOCKS: tl.constexpr):
    """Some blocks of channels of some rows of x [·, C], from channel ``first`` on."""
    found = ()
    for k in tl.static_range(BLOCKS):
        found += (load_rows(x, row, first + block_channels(k), X_ROW, C),)
    return found


@triton.jit
def node_kernel(
    terms, r, u, h, mean, inverse, moments, source, ptr,
    C: tl.constexpr, CHUNK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """g = σ(u) r, inverse_t = 1 / (Σ g + 1e-6), mean_t = inverse_t Σ g B_s, h = A + mean;
    grid (nodes · parts of BLOCKS blocks of channels,).

    Where they are asked for also moments [nodes, 2, C]: mean, and Σ (u − mean)², of each node's
    edges, summed as deviations from the last of them; without edges from the one before, and 0.
    """
    PARTS: tl.constexpr = (C + STEP * BLOCKS - 1) // (STEP * BLOCKS)
    node, part = tl.program_id(0) // PARTS, tl.program_id(0) % PARTS * (STEP * BLOCKS)
    numerator, denominator = zero_sums(CHUNK, BLOCKS), zero_sums(CHUNK, BLOCKS)
    sums, squares, centers = zero_sums(CHUNK, BLOCKS), zero_sums(CHUNK, BLOCKS), ()
    begin, end = tl.load(ptr + node), tl.load(ptr + node + 1)
    for k in tl.static_range(0 if moments is None else BLOCKS):
        last = u + tl.maximum(end - 1, 0).to(tl.int64) * C
        centers += (load_row(last, part + block_channels(k), C),)
    for start in range(begin, end, CHUNK):
        first, left = tl.cast(start, tl.int64), end - start
        real = (tl.arange(0, CHUNK) < left)[:, None]
        row = tl.minimum(tl.arange(0, CHUNK), left - 1)
        other = tl.load(source + first + row)
        values = _blocks(u + first * C, row, part, C, C, BLOCKS)
        given = _blocks(terms + 2 * C, other, part, 4 * C, C, BLOCKS)
        position = 1.0 if r is None else tl.load(r + first + row).to(tl.float32)[:, None]
        above, below, more, more_squares = (), (), (), ()
        for k in tl.static_range(BLOCKS):
            gate = tl.where(real, sigmoid(values[k]), 0.0)
            if r is not None:
                gate *= position
            above += (numerator[k] + gate * given[k],)
            below += (denominator[k] + gate,)
            if moments is not None:
                apart = values[k] - centers[k]  # 0 where the last stands in
                more += (sums[k] + apart,)
                more_squares += (squares[k] + apart * apart,)
        numerator, denominator = above, below
        if moments is not None:
            sums, squares = more, more_squares
    for k in tl.static_range(BLOCKS):
        channel = part + block_channels(k)
        here, wide = node.to(tl.int64) * C + channel, channel < C
        share = 1.0 / (tl.sum(denominator[k], 0) + GATE_EPS)
        found = tl.sum(numerator[k], 0) * share
        tl.store(mean + here, found, wide)
        tl.store(inverse + here, share, wide)
        if moments is not None:
            total, one = tl.sum(sums[k], 0), 1.0 / tl.maximum(end - begin, 1).to(tl.float32)
            at = moments + node.to(tl.int64) * C + here  # two rows a node
            tl.store(at, tl.sum(centers[k], 0) + total * one, wide)
            tl.store(at + C, tl.sum(squares[k], 0) - total * total * one, wide)
        a = terms + node.to(tl.int64) * (4 * C) + channel
        found += tl.load(a, wide, other=0.0).to(tl.float32)
        tl.store(h + here, found.to(h.dtype.element_ty), wide)


# --- backward -------------------------------------------------------------------------------------


@triton.jit
def source_gradient_kernel(
    share, r, u, du, d_terms, target, ptr, order,
    C: tl.constexpr, CHUNK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """By source: dB = Σ σ(u) r share_t and dE = Σ du;
    grid (nodes · parts of BLOCKS blocks of channels,): rows, which lie apart, are read whole."""
    PARTS: tl.constexpr = (C + STEP * BLOCKS - 1) // (STEP * BLOCKS)
    node, part = tl.program_id(0) // PARTS, tl.program_id(0) % PARTS * (STEP * BLOCKS)
    d_b, d_e = zero_sums(CHUNK, BLOCKS), zero_sums(CHUNK, BLOCKS)
    end = tl.load(ptr + node + 1)
    for start in range(tl.load(ptr + node), end, CHUNK):
        row, left = tl.arange(0, CHUNK), end - start
        real = (row < left)[:, None]
        edge = tl.load(order + start + tl.minimum(row, left - 1)).to(tl.int64)
        other = tl.load(target + edge)
        values = _blocks(u, edge, part, C, C, BLOCKS)
        changes = _blocks(du, edge, part, C, C, BLOCKS)
        shares = _blocks(share, other, part, C, C, BLOCKS)
        position = 1.0 if r is None else tl.load(r + edge).to(tl.float32)[:, None]
        more_b, more_e = (), ()
        for k in tl.static_range(BLOCKS):
            gate = tl.where(real, sigmoid(values[k]), 0.0)
            if r is not None:
                gate *= position
            more_b += (d_b[k] + gate * shares[k],)
            more_e += (d_e[k] + tl.where(real, changes[k], 0.0),)
        d_b, d_e = more_b, more_e
    for k in tl.static_range(BLOCKS):
        channel = part + block_channels(k)
        own, wide = d_terms + node.to(tl.int64) * (4 * C) + channel, channel < C
        tl.store(own + 2 * C, tl.sum(d_b[k], 0).to(d_terms.dtype.element_ty), wide)
        tl.store(own + 3 * C, tl.sum(d_e[k], 0).to(d_terms.dtype.element_ty), wide)
