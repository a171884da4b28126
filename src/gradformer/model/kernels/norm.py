"""The Triton kernels of one batch norm, or of the sum of two.

*Chunked*: in the first of two kernels each program of a grid (chunks, channel tiles) stores its
share of the sums; in the second each merges all shares of its channels, in the same order
everywhere, and treats its own chunk. *Whole*, for fewer rows: a program of a grid (channel tiles,)
owns a few channels of all rows, so that the second kernel is given no shares (``partial`` is None)
and makes the sums itself. There are no atomics: bits are the same every time.

BOTH: the residual is added to both inputs, not to the first alone. ONE: a chunk is one tile, or all
rows are, which is read before the shares are merged.
"""

# mypy: ignore-errors
# Triton drops the branch of a constant ``if`` that is not taken, so both are written out:
# ruff: noqa: RET505
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.model.kernels.norm_tiles import (
    affine,
    all_entering,
    arriving_slope,
    settled,
    slopes_at,
    store_dx,
    store_result,
    tile_moments,
)

# All batches and sites share one compiled kernel.
NUMBERS = ["rows", "chunk", "threshold1", "threshold2", "threshold3"]
SEEDS = ["seed1", "seed2", "seed3"]


@triton.jit
def _own(rows, chunk, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, WHOLE: tl.constexpr):
    """Number, first row and end of a program's chunk, and its first channel."""
    if WHOLE:
        return 0, 0, BLOCK_R, tl.program_id(0) * BLOCK_C
    else:
        first = tl.program_id(0) * chunk
        end = tl.minimum(first + chunk, rows)
        return tl.program_id(0), first, end, tl.program_id(1) * BLOCK_C


@triton.jit
def _pool(before, count, value, more, at):
    """Mean and Σ(z − mean)² of ``count`` rows and those of a tile, ``more``."""
    mean, square = before
    tile_mean, tile_square = tile_moments(value, more, at)
    apart = tile_mean - mean
    share = more / tl.maximum(count + more, 1.0)
    return mean + apart * share, square + tile_square + apart * apart * (count * share)


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=SEEDS)
def statistics_kernel(
    x1, x2, add, mask, graph_id, index, seed1, seed2, partial,
    rows, chunk, scale1, threshold1, scale2, threshold2,
    C: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, BOTH: tl.constexpr,
):  # fmt: skip
    """partial [norms, chunks, 3, C]: mean, Σ(z − mean)² and count of each chunk's real rows."""
    NORMS: tl.constexpr = 1 if x2 is None else 2
    keyed = (graph_id, index, rows)
    given = ((x1, seed1, scale1, threshold1), (x2, seed2, scale2, threshold2), add, mask)
    number, first, end, first_channel = _own(rows, chunk, BLOCK_R, BLOCK_C, False)
    channel = first_channel + tl.arange(0, BLOCK_C)
    count = 0.0
    nothing, moments = tl.zeros([BLOCK_C], tl.float32), ()
    for _norm in tl.static_range(NORMS):
        moments += ((nothing, nothing),)
    for start in range(first, end, BLOCK_R):
        at, real, entered = all_entering(
            given, keyed, start, first_channel, C, BLOCK_R, BLOCK_C, BOTH
        )
        more = tl.sum(real.to(tl.float32))
        pooled = ()
        for i in tl.static_range(NORMS):
            pooled += (_pool(moments[i], count, entered[i][0], more, at),)
        moments = pooled
        count += more
    for i in tl.static_range(NORMS):
        here = partial + (i * tl.num_programs(0) + number) * 3 * C + channel
        tl.store(here, moments[i][0], channel < C)
        tl.store(here + C, moments[i][1], channel < C)
        tl.store(here + 2 * C, nothing + count, channel < C)


@triton.jit
def _shares(partial, channel, C: tl.constexpr, BLOCK_P: tl.constexpr):
    """Counts, means and squares of all chunks."""
    chunk = tl.arange(0, BLOCK_P)
    listed = chunk < tl.num_programs(0)
    inside = listed[:, None] & (channel < C)[None, :]
    at = chunk[:, None] * 3 * C + channel[None, :]
    counts = tl.load(partial + 2 * C + chunk * 3 * C, listed, other=0.0)
    means = tl.load(partial + at, inside, other=0.0)
    return counts, means, tl.load(partial + C + at, inside, other=0.0)


@triton.jit
def _merged(shares):
    """Mean, Σ(z − mean)² and count of all chunks."""
    counts, means, squares = shares
    count = tl.sum(counts)
    mean = tl.sum(counts[:, None] * means, 0) * (1.0 / tl.maximum(count, 1.0))
    apart = means - mean[None, :]
    return mean, tl.sum(squares + counts[:, None] * apart * apart, 0), count


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=SEEDS)
def normalise_kernel(
    x1, x2, add, mask, graph_id, index, plus, y,
    weight1, bias1, mean1, var1, weight2, bias2, mean2, var2, seed1, seed2, seed3, stats, partial,
    rows, chunk, momentum, eps, scale1, threshold1, scale2, threshold2, scale3, threshold3,
    C: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_P: tl.constexpr,
    TRAINING: tl.constexpr, BOTH: tl.constexpr, RELU: tl.constexpr, ONE: tl.constexpr,
):  # fmt: skip
    """y, stats and running statistics, from the shares of :func:`statistics_kernel` if any."""
    WHOLE: tl.constexpr = partial is None
    NORMS: tl.constexpr = 1 if x2 is None else 2
    keyed = (graph_id, index, rows)
    given = ((x1, seed1, scale1, threshold1), (x2, seed2, scale2, threshold2), add, mask)
    learned, running = ((weight1, bias1),), ((mean1, var1),)
    if x2 is not None:
        learned += ((weight2, bias2),)
        running += ((mean2, var2),)
    number, first, end, first_channel = _own(rows, chunk, BLOCK_R, BLOCK_C, WHOLE)
    channel = first_channel + tl.arange(0, BLOCK_C)
    if ONE:
        at, real, entered = all_entering(
            given, keyed, first, first_channel, C, BLOCK_R, BLOCK_C, BOTH
        )
    shares, moments = (), ()
    if WHOLE:
        count = tl.sum(real.to(tl.float32))
    for i in tl.static_range(NORMS if TRAINING and not WHOLE else 0):
        here = partial + i * tl.num_programs(0) * 3 * C
        shares += (_shares(here, channel, C, BLOCK_P),)
    for i in tl.static_range(NORMS):
        if WHOLE:
            mean, square = tile_moments(entered[i][0], count, at)
        elif TRAINING:
            mean, square, count = _merged(shares[i])
        else:
            mean, square, count = channel, channel, rows  # anything: the running ones count
        moments += (settled(
            mean, square, count, running[i][0], running[i][1], stats + i * 3 * C, channel,
            momentum, eps, number == 0, C, TRAINING,
        ),)  # fmt: skip
    for start in range(first, end, BLOCK_R):
        if not ONE:
            at, real, entered = all_entering(
                given, keyed, start, first_channel, C, BLOCK_R, BLOCK_C, BOTH
            )
        out = affine(entered[0][0], moments[0], learned[0], channel, C)
        for i in tl.static_range(1, NORMS):
            out += affine(entered[i][0], moments[i], learned[i], channel, C)
        store_result(out, plus, y, seed3, scale3, threshold3, keyed, at, RELU)


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=SEEDS)
def gradient_sums_kernel(
    x1, x2, add, mask, graph_id, index, grad, weight1, bias1, weight2, bias2,
    seed1, seed2, seed3, stats, partial,
    rows, chunk, scale1, threshold1, scale2, threshold2, scale3, threshold3,
    C: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, BOTH: tl.constexpr,
    RELU: tl.constexpr,
):  # fmt: skip
    """partial [norms, chunks, 2, C]: Σ dy·ẑ and Σ dy of each chunk."""
    NORMS: tl.constexpr = 1 if x2 is None else 2
    keyed = (graph_id, index, rows)
    given = ((x1, seed1, scale1, threshold1), (x2, seed2, scale2, threshold2), add, mask)
    learned = ((weight1, bias1),)
    if x2 is not None:
        learned += ((weight2, bias2),)
    number, first, end, first_channel = _own(rows, chunk, BLOCK_R, BLOCK_C, False)
    channel = first_channel + tl.arange(0, BLOCK_C)
    nothing, sums = tl.zeros([BLOCK_C], tl.float32), ()
    for _norm in tl.static_range(NORMS):
        sums += ((nothing, nothing),)
    for start in range(first, end, BLOCK_R):
        at, _, entered = all_entering(given, keyed, start, first_channel, C, BLOCK_R, BLOCK_C, BOTH)
        arriving = arriving_slope(grad, seed3, scale3, threshold3, keyed, at)
        more = ()
        for i in tl.static_range(NORMS):
            along, total = sums[i]
            slope, normed = slopes_at(
                arriving, entered[i][0], learned[i], stats + i * 3 * C, at, C, RELU
            )
            more += ((along + tl.sum(slope * normed, 0), total + tl.sum(slope, 0)),)
        sums = more
    for i in tl.static_range(NORMS):
        here = partial + (i * tl.num_programs(0) + number) * 2 * C + channel
        tl.store(here, sums[i][0], channel < C)
        tl.store(here + C, sums[i][1], channel < C)


@triton.jit
def _slope_shares(partial, channel, C: tl.constexpr, BLOCK_P: tl.constexpr):
    """Σ dy·ẑ and Σ dy of all chunks."""
    chunk = tl.arange(0, BLOCK_P)
    listed = (chunk < tl.num_programs(0))[:, None] & (channel < C)[None, :]
    at = partial + chunk[:, None] * 2 * C + channel[None, :]
    return tl.load(at, listed, other=0.0), tl.load(at + C, listed, other=0.0)


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=SEEDS)
def input_gradient_kernel(
    x1, x2, add, mask, graph_id, index, grad, dx1, dx2, dadd,
    weight1, bias1, weight2, bias2, dweight1, dbias1, dweight2, dbias2, seed1, seed2, seed3,
    stats, partial, rows, chunk, scale1, threshold1, scale2, threshold2, scale3, threshold3,
    C: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_P: tl.constexpr,
    BOTH: tl.constexpr, RELU: tl.constexpr, ONE: tl.constexpr,
):  # fmt: skip
    """All gradients, from the shares of :func:`gradient_sums_kernel` if any.

    ``dadd`` is that of the residual, where it is not dx₁ itself.
    """
    WHOLE: tl.constexpr = partial is None
    NORMS: tl.constexpr = 1 if x2 is None else 2
    keyed = (graph_id, index, rows)
    given = ((x1, seed1, scale1, threshold1), (x2, seed2, scale2, threshold2), add, mask)
    learned, made = ((weight1, bias1),), ((dx1, dweight1, dbias1),)
    if x2 is not None:
        learned += ((weight2, bias2),)
        made += ((dx2, dweight2, dbias2),)
    number, first, end, first_channel = _own(rows, chunk, BLOCK_R, BLOCK_C, WHOLE)
    channel = first_channel + tl.arange(0, BLOCK_C)
    if ONE:
        at, _, entered = all_entering(given, keyed, first, first_channel, C, BLOCK_R, BLOCK_C, BOTH)
        arriving = arriving_slope(grad, seed3, scale3, threshold3, keyed, at)
    slopes, shares, sums = (), (), ()
    for i in tl.static_range(NORMS):
        if WHOLE:
            slopes += (slopes_at(
                arriving, entered[i][0], learned[i], stats + i * 3 * C, at, C, RELU
            ),)  # fmt: skip
            shares += ((slopes[i][0] * slopes[i][1], slopes[i][0]),)
        else:
            here = partial + i * tl.num_programs(0) * 2 * C
            shares += (_slope_shares(here, channel, C, BLOCK_P),)
    for i in tl.static_range(NORMS):
        along, total = tl.sum(shares[i][0], 0), tl.sum(shares[i][1], 0)
        if number == 0:
            tl.store(made[i][1] + channel, along, channel < C)
            tl.store(made[i][2] + channel, total, channel < C)
        sums += ((along, total),)
    for start in range(first, end, BLOCK_R):
        if not ONE:
            at, _, entered = all_entering(
                given, keyed, start, first_channel, C, BLOCK_R, BLOCK_C, BOTH
            )
            arriving = arriving_slope(grad, seed3, scale3, threshold3, keyed, at)
        found = ()
        for i in tl.static_range(NORMS):
            if WHOLE:
                own = slopes[i]
            else:
                own = slopes_at(arriving, entered[i][0], learned[i], stats + i * 3 * C, at, C, RELU)
            found += (store_dx(
                own, sums[i], entered[i], learned[i][0], stats + i * 3 * C, made[i][0], at, C
            ),)  # fmt: skip
        if dadd is not None:
            dz = found[0] + found[1] if BOTH else found[0]
            tl.store(dadd + at[2], dz.to(dadd.dtype.element_ty), at[3])
