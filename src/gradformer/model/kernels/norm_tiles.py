r"""What the kernels of the batch norm share; with what stands around it, on [rows, channels].

.. math::
    z = \text{drop}(x) + \text{add}, \qquad \hat z = (z - \text{mean}) \cdot \text{rstd}, \qquad
    y = \text{plus} + \text{drop}(\text{ReLU}(\hat z \cdot \text{weight} + \text{bias})),

or the sum of two norms, y = BN₁(drop(x₁) + add) + BN₂(drop(x₂) + add). Only x and add are kept for
the way back: z is made again, and so are the draws.

``stats`` [norms, 3, C] holds mean, rstd and 1/rows; the last is 0 where the statistics are not
those of this batch, which takes their gradients out. Sums are float32.

What is absent is None. Helpers take some of their arguments together: a tile ``at`` (rows,
channels, places, which of them exist, which are real), ``keyed`` (what keys the draws of each row:
graph_id, index, rows), what is ``given`` (for each norm x and its dropout's seed, scale and
threshold; add; mask), and of a norm what it has ``learned`` (weight, bias), its ``moments`` (mean,
rstd), and the ``sums`` of its slopes (Σ dy·ẑ, Σ dy).
"""

# mypy: ignore-errors
# Triton drops the branch of a constant ``if`` that is not taken, so both are written out:
# ruff: noqa: RET505
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.attention.kernels.draws import is_kept, keys_of_rows


@triton.jit
def _tile(
    mask, start, rows, first_channel, C: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr
):
    """The tile of BLOCK_R rows from ``start`` and BLOCK_C channels, and which rows are real."""
    row = start + tl.arange(0, BLOCK_R)
    channel = first_channel + tl.arange(0, BLOCK_C)
    real = row < rows
    inside = real[:, None] & (channel < C)[None, :]
    place = row[:, None] * C + channel[None, :]
    if mask is not None:
        real = tl.load(mask + row, real, other=0) != 0
    at = (row, channel, place, inside, inside & real[:, None])
    return at, real


@triton.jit
def _kept(seed, threshold, keyed, at):
    """Where a dropout keeps a value."""
    graph_id, index, rows = keyed
    row, channel, _, _, _ = at
    graph = tl.load(graph_id + row, row < rows, other=0)
    inner = tl.load(index + row, row < rows, other=0)
    keys = keys_of_rows(seed, graph, row * 0, inner)
    return is_kept(keys[:, None], channel[None, :], threshold)


@triton.jit
def _entering(one, add, keyed, at):
    """z, 0 where it is not real; after a dropout also where that keeps x, and its factor.

    All is read that exists, so that no load waits for the mask.
    """
    x, seed, scale, threshold = one
    _, _, place, inside, there = at
    value = tl.load(x + place, inside, other=0.0).to(tl.float32)
    if seed is not None:
        kept = _kept(seed, threshold, keyed, at)
        value = tl.where(kept, value * scale, 0.0)
    if add is not None:
        value += tl.load(add + place, inside, other=0.0).to(tl.float32)
    value = tl.where(there, value, 0.0)
    if seed is None:
        return (value,)
    else:
        return value, kept, scale


@triton.jit
def all_entering(
    given, keyed, start, first_channel,
    C: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, BOTH: tl.constexpr,
):  # fmt: skip
    """A tile, which of its rows are real, and what enters one norm or two."""
    one, two, add, mask = given
    at, real = _tile(mask, start, keyed[2], first_channel, C, BLOCK_R, BLOCK_C)
    entered = (_entering(one, add, keyed, at),)
    if two[0] is not None:
        entered += (_entering(two, add if BOTH else None, keyed, at),)
    return at, real, entered


@triton.jit
def tile_moments(value, count, at):
    """Mean, and Σ (z − mean)², of the rows of a tile."""
    mean = tl.sum(value, 0) * (1.0 / tl.maximum(count, 1.0))
    centred = tl.where(at[4], value - mean[None, :], 0.0)
    return mean, tl.sum(centred * centred, 0)


@triton.jit
def settled(
    mean, square, count, running_mean, running_var, stats, channel, momentum, eps, writes,
    C: tl.constexpr, TRAINING: tl.constexpr,
):  # fmt: skip
    """Mean and rstd to go by; where ``writes``, also stats and the running statistics.

    Nobody needs the running statistics while they are written: then those of the batch count.
    """
    wide = channel < C
    center = tl.load(running_mean + channel, wide, other=0.0)
    variance = tl.load(running_var + channel, wide, other=1.0)
    inverse = 0.0
    if TRAINING:
        several = count > 1.0
        inverse = tl.where(several, 1.0 / tl.maximum(count, 1.0), 0.0)
        if writes:
            unbiased = square * (1.0 / tl.maximum(count - 1.0, 1.0))
            share = tl.where(several, momentum, 0.0)
            tl.store(running_mean + channel, center + share * (mean - center), wide)
            tl.store(running_var + channel, variance + share * (unbiased - variance), wide)
        center = tl.where(several, mean, center)
        variance = tl.where(several, square * inverse, variance)
    rstd = tl.rsqrt(variance + eps)
    if writes:
        tl.store(stats + channel, center, wide)
        tl.store(stats + C + channel, rstd, wide)
        tl.store(stats + 2 * C + channel, tl.zeros_like(rstd) + inverse, wide)
    return center, rstd


@triton.jit
def affine(value, moments, learned, channel, C: tl.constexpr):
    """ẑ·weight + bias."""
    mean, rstd = moments
    weight, bias = learned
    scale = tl.load(weight + channel, channel < C, other=0.0)
    shift = tl.load(bias + channel, channel < C, other=0.0)
    return (value - mean[None, :]) * rstd[None, :] * scale[None, :] + shift[None, :]


@triton.jit
def store_result(out, plus, y, seed, scale, threshold, keyed, at, RELU: tl.constexpr):
    """Store y: what follows the norm, 0 in padded rows, then ``plus``."""
    _, _, place, inside, there = at
    if RELU:
        out = tl.where(out <= 0.0, 0.0, out)  # NaN stays NaN
    if seed is not None:
        out = tl.where(_kept(seed, threshold, keyed, at), out * scale, 0.0)
    out = tl.where(there, out, 0.0)
    if plus is not None:
        out += tl.load(plus + place, inside, other=0.0).to(tl.float32)
    tl.store(y + place, out.to(y.dtype.element_ty), inside)


@triton.jit
def arriving_slope(grad, seed, scale, threshold, keyed, at):
    """The gradient behind the ReLU."""
    slope = tl.load(grad + at[2], at[3], other=0.0).to(tl.float32)
    if seed is not None:
        slope = tl.where(_kept(seed, threshold, keyed, at), slope * scale, 0.0)
    return tl.where(at[4], slope, 0.0)


@triton.jit
def slopes_at(slope, value, learned, stats, at, C: tl.constexpr, RELU: tl.constexpr):
    """The gradient before the ReLU, and ẑ, which is 0 where it is not real."""
    weight, bias = learned
    channel = at[1]
    wide = channel < C
    mean = tl.load(stats + channel, wide, other=0.0)
    rstd = tl.load(stats + C + channel, wide, other=0.0)
    normed = tl.where(at[4], (value - mean[None, :]) * rstd[None, :], 0.0)
    if RELU:
        scale = tl.load(weight + channel, wide, other=0.0)
        shift = tl.load(bias + channel, wide, other=0.0)
        slope = tl.where(normed * scale[None, :] + shift[None, :] > 0.0, slope, 0.0)
    return slope, normed


@triton.jit
def store_dx(slopes, sums, entered, weight, stats, dx, at, C: tl.constexpr):
    """dz = rstd·weight·(dy − mean(dy) − ẑ·mean(dy·ẑ)), of dy, ẑ and their sums; stores dx."""
    slope, normed = slopes
    along, total = sums
    _, channel, place, inside, there = at
    wide = channel < C
    rstd = tl.load(stats + C + channel, wide, other=0.0)
    inverse = tl.load(stats + 2 * C + channel, wide, other=0.0)
    scale = tl.load(weight + channel, wide, other=0.0)
    slope -= (total * inverse)[None, :] + normed * (along * inverse)[None, :]
    dz = tl.where(there, slope * (rstd * scale)[None, :], 0.0)
    dropped = dz
    if len(entered) > 1:
        dropped = tl.where(entered[1], dz * entered[2], 0.0)
    tl.store(dx + place, dropped.to(dx.dtype.element_ty), inside)
    return dz
