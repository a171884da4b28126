"""Triton kernels that make du of the gated convolution, through the norm of u where it is inside.

What is made of du is in :mod:`.map_gradients`; how programs share the edges is told in
:mod:`.edge_tiles`.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.model.kernels.edge_tiles import (
    STEP,
    block_channels,
    learned_of,
    load_row,
    load_rows,
    passes_through,
    share_of,
    sigmoid,
    store_rows,
    words_at,
    zero_sums,
)
from gradformer.model.kernels.messages import write_rest

NUMBERS = ["nodes", "edges"]  # all batches share one compiled kernel


@triton.jit
def slope_of(grad, value, channel, learned, word, scale):
    """u − mean, and dy: what arrives at γ ẑ + β of that at e' = e + drop(ReLU(γ ẑ + β))."""
    apart = value - learned[0]
    if word is not None:
        grad *= scale
    return apart, tl.where(passes_through(apart, channel, learned, word), grad, 0.0)


# --- sums of the norm -----------------------------------------------------------------------------


@triton.jit(do_not_specialize=NUMBERS)
def slope_kernel(
    e_grad, u, gamma, beta, stats, partial, ptr, nodes, passes, scale,
    C: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """partial [programs, 2, C]: Σ dy (u − mean) and Σ dy over each program's edges."""
    BLOCKS: tl.constexpr = (C + STEP - 1) // STEP
    last = tl.load(ptr + nodes)
    along, total = zero_sums(ROWS, BLOCKS), zero_sums(ROWS, BLOCKS)
    begin, end = share_of(tl.program_id(0), tl.num_programs(0), last, ROWS)
    for first in range(begin.to(tl.int64) * ROWS, end.to(tl.int64) * ROWS, ROWS):
        left = (last - first).to(tl.int32)
        real = (tl.arange(0, ROWS) < left)[:, None]
        row = tl.minimum(tl.arange(0, ROWS), left - 1)
        more_along, more_total = (), ()
        for k in tl.static_range(BLOCKS):
            channel = block_channels(k)
            value = load_rows(u + first * C, row, channel, C, C)
            grad = tl.where(real, load_rows(e_grad + first * C, row, channel, C, C), 0.0)
            learned = learned_of(gamma, beta, stats, channel, C)
            word = None
            if passes is not None:
                word = tl.load(words_at(passes, first + row, k, C))[:, None]
            apart, slope = slope_of(grad, value, channel[None, :], learned, word, scale)
            more_along += (along[k] + slope * apart,)
            more_total += (total[k] + slope,)
        along, total = more_along, more_total
    partial += tl.program_id(0) * 2 * C
    for k in tl.static_range(BLOCKS):
        channel = block_channels(k)
        tl.store(partial + channel, tl.sum(along[k], 0), channel < C)
        tl.store(partial + C + channel, tl.sum(total[k], 0), channel < C)


@triton.jit(do_not_specialize=["pieces"])
def slope_sums_kernel(
    partial, gamma, stats, dgamma, dbeta, factors, pieces,
    C: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """dγ = Σ dy ẑ and dβ = Σ dy over all pieces; grid (channels / BLOCK_C,).

    Also factors [3, C]: γ rstd, and this times rstd dγ / rows and times dβ / rows.
    """
    channel = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    wide = channel < C
    along = tl.zeros([BLOCK_T, BLOCK_C], tl.float32)
    total = tl.zeros([BLOCK_T, BLOCK_C], tl.float32)
    for start in range(0, pieces, BLOCK_T):
        piece = start + tl.arange(0, BLOCK_T)
        listed = (piece < pieces)[:, None] & wide[None, :]
        at = partial + piece[:, None] * (2 * C) + channel
        along += tl.load(at, listed, other=0.0)
        total += tl.load(at + C, listed, other=0.0)
    rstd = tl.load(stats + C + channel, wide, other=0.0)
    d_gamma, d_beta = tl.sum(along, 0) * rstd, tl.sum(total, 0)
    tl.store(dgamma + channel, d_gamma, wide)
    tl.store(dbeta + channel, d_beta, wide)
    factor = tl.load(gamma + channel, wide, other=0.0) * rstd
    one = tl.load(stats + 2 * C + channel, wide, other=0.0)  # 1 / rows
    tl.store(factors + channel, factor, wide)
    tl.store(factors + C + channel, factor * (rstd * d_gamma * one), wide)
    tl.store(factors + 2 * C + channel, factor * (d_beta * one), wide)


# --- gradients ------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=NUMBERS)
def target_gradient_kernel(
    dh, mean, inverse, terms, u, r, out_grad, d_terms, du, dr, share, source, ptr, nodes, edges,
    beta, stats, factors, passes, scale,
    C: tl.constexpr, BLOCK_C: tl.constexpr, CHUNK: tl.constexpr, PADDING: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    """By target: dg = share_t (B_s − mean_t), share_t = dh_t inverse_t, dr = Σ_c dg σ(u),
    du = dg r σ'(u) (+ what arrives at u, directly or, of a norm, through e'), dA = dh, dD = Σ du;
    grid (nodes · PARTS,), each of one part of the channels: more warps, and what a node or a
    channel has alone is read once. Padded rows of dr, and with PADDING of du, are 0."""
    BLOCKS: tl.constexpr = (C + STEP - 1) // STEP // PARTS
    node, part = tl.program_id(0) // PARTS, tl.program_id(0) % PARTS
    here = node.to(tl.int64) * C
    shares, means, norms, sums = (), (), (), zero_sums(CHUNK, BLOCKS)
    for k in tl.static_range(BLOCKS):
        channel = part * (BLOCKS * STEP) + block_channels(k)
        shares += (load_row(dh + here, channel, C) * load_row(inverse + here, channel, C),)
        means += (load_row(mean + here, channel, C),)
        if factors is not None:
            factor = load_row(factors, channel, C)
            learned = (load_row(stats, channel, C), factor, load_row(beta, channel, C))
            slopes = (load_row(factors + C, channel, C), load_row(factors + 2 * C, channel, C))
            norms += ((learned, slopes),)
    end = tl.load(ptr + node + 1)
    for start in range(tl.load(ptr + node), end, CHUNK):
        first, left = tl.cast(start, tl.int64), end - start
        real = tl.arange(0, CHUNK) < left
        row = tl.minimum(tl.arange(0, CHUNK), left - 1)
        other = tl.load(source + first + row)
        position = 1.0 if r is None else tl.load(r + first + row).to(tl.float32)[:, None]
        found, more = tl.zeros([CHUNK], tl.float32), ()
        for k in tl.static_range(BLOCKS):
            channel = part * (BLOCKS * STEP) + block_channels(k)
            value = load_rows(u + first * C, row, channel, C, C)
            gate = sigmoid(value)
            apart = load_rows(terms + 2 * C, other, channel, 4 * C, C) - means[k]
            change = shares[k] * apart * gate
            if r is not None:
                found += tl.sum(change, 1)
            change *= (1.0 - gate) * position
            if out_grad is not None:
                grad = load_rows(out_grad + first * C, row, channel, C, C)
                if factors is not None:
                    learned, slopes = norms[k]
                    block = part * BLOCKS + k
                    word = None
                    if passes is not None:
                        word = tl.load(words_at(passes, first + row, block, C))[:, None]
                    away, slope = slope_of(grad, value, channel[None, :], learned, word, scale)
                    grad = slope * learned[1] - slopes[1] - away * slopes[0]
                change += grad
            more += (sums[k] + tl.where(real[:, None], change, 0.0),)
            store_rows(du + first * C, change, row, real[:, None], channel, C)
        sums = more
        if r is not None:
            tl.store(dr + first + row, found.to(dr.dtype.element_ty), real)
    for k in tl.static_range(BLOCKS):
        channel = part * (BLOCKS * STEP) + block_channels(k)
        own = d_terms + 4 * here + channel
        grad = tl.load(dh + here + channel, channel < C, other=0.0)
        tl.store(share + here + channel, tl.sum(shares[k], 0), channel < C)
        tl.store(own, grad.to(d_terms.dtype.element_ty), channel < C)
        tl.store(own + C, tl.sum(sums[k], 0).to(d_terms.dtype.element_ty), channel < C)
    if PADDING:
        write_rest(du, None, tl.load(ptr + nodes), edges, C, BLOCK_C, CHUNK)
    if r is not None:
        write_rest(dr, None, tl.load(ptr + nodes), edges, 1, 1, CHUNK)
