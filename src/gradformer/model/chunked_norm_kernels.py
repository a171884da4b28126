"""Batch norm of many rows in two kernels each way: shares of the sums, then the result."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.model.norm_kernels import (
    NUMBERS,
    SEEDS,
    affine,
    all_entering,
    arriving_slope,
    settled,
    slopes_at,
    store_dx,
    store_result,
    tile_moments,
)


@triton.jit
def _pool(mean, square, count, value, more, at):
    """Mean and Σ(z − mean)² of ``count`` rows and those of a tile, ``more``."""
    tile_mean, tile_square = tile_moments(value, more, at)
    apart = tile_mean - mean
    share = more / tl.maximum(count + more, 1.0)
    return mean + apart * share, square + tile_square + apart * apart * (count * share)


@triton.jit
def _store_moments(partial, mean, square, count, channel, C: tl.constexpr):
    tl.store(partial + channel, mean, channel < C)
    tl.store(partial + C + channel, square, channel < C)
    tl.store(partial + 2 * C + channel, tl.zeros_like(mean) + count, channel < C)


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=SEEDS)
def statistics_kernel(
    x1, x2, add, mask, graph_id, index, seed1, seed2, partial,
    rows, chunk, scale1, threshold1, scale2, threshold2,
    C: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, MASK: tl.constexpr,
    PAIR: tl.constexpr, DROP1: tl.constexpr, DROP2: tl.constexpr, ADD1: tl.constexpr,
    ADD2: tl.constexpr,
):  # fmt: skip
    """partial [norms, chunks, 3, C]: mean, Σ(z − mean)² and count of each chunk's real rows."""
    keyed = (graph_id, index, rows)
    draw1, draw2 = (seed1, scale1, threshold1), (seed2, scale2, threshold2)
    first_channel = tl.program_id(1) * BLOCK_C
    channel = first_channel + tl.arange(0, BLOCK_C)
    first = tl.program_id(0) * chunk
    count = 0.0
    mean1 = tl.zeros([BLOCK_C], tl.float32)
    square1, mean2, square2 = mean1, mean1, mean1
    for start in range(first, tl.minimum(first + chunk, rows), BLOCK_R):
        at, real, value1, _, value2, _ = all_entering(
            x1, x2, add, mask, draw1, draw2, keyed, start, first_channel,
            C, BLOCK_R, BLOCK_C, MASK, PAIR, DROP1, DROP2, ADD1, ADD2,
        )  # fmt: skip
        more = tl.sum(real.to(tl.float32))
        mean1, square1 = _pool(mean1, square1, count, value1, more, at)
        if PAIR:
            mean2, square2 = _pool(mean2, square2, count, value2, more, at)
        count += more
    partial += tl.program_id(0) * 3 * C
    _store_moments(partial, mean1, square1, count, channel, C)
    if PAIR:
        partial += tl.num_programs(0) * 3 * C
        _store_moments(partial, mean2, square2, count, channel, C)


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
def _merge_moments(
    shares, running_mean, running_var, stats, channel, momentum, eps,
    C: tl.constexpr, TRAINING: tl.constexpr,
):  # fmt: skip
    """Mean and rstd of all chunks."""
    mean = tl.zeros_like(channel).to(tl.float32)
    square = mean
    count = 0.0
    if TRAINING:
        counts, means, squares = shares
        count = tl.sum(counts)
        mean = tl.sum(counts[:, None] * means, 0) * (1.0 / tl.maximum(count, 1.0))
        apart = means - mean[None, :]
        square = tl.sum(squares + counts[:, None] * apart * apart, 0)
    return settled(
        mean, square, count, running_mean, running_var, stats, channel, momentum, eps,
        tl.program_id(0) == 0, C, TRAINING,
    )  # fmt: skip


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=SEEDS)
def normalise_kernel(
    x1, x2, add, plus, y, mask, graph_id, index,
    weight1, bias1, mean1, var1, weight2, bias2, mean2, var2, seed1, seed2, seed3, partial, stats,
    rows, chunk, momentum, eps, scale1, threshold1, scale2, threshold2, scale3, threshold3,
    C: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_P: tl.constexpr,
    TRAINING: tl.constexpr, MASK: tl.constexpr, PAIR: tl.constexpr, DROP1: tl.constexpr,
    DROP2: tl.constexpr, ADD1: tl.constexpr, ADD2: tl.constexpr, RELU: tl.constexpr,
    AFTER: tl.constexpr, PLUS: tl.constexpr, ONE: tl.constexpr,
):  # fmt: skip
    """y, stats and running statistics from the shares of :func:`statistics_kernel`.

    ONE: a chunk is one tile, which is read before the shares are merged.
    """
    keyed = (graph_id, index, rows)
    draw1, draw2 = (seed1, scale1, threshold1), (seed2, scale2, threshold2)
    first_channel = tl.program_id(1) * BLOCK_C
    channel = first_channel + tl.arange(0, BLOCK_C)
    first = tl.program_id(0) * chunk
    if ONE:
        at, _, value1, _, value2, _ = all_entering(
            x1, x2, add, mask, draw1, draw2, keyed, first, first_channel,
            C, BLOCK_R, BLOCK_C, MASK, PAIR, DROP1, DROP2, ADD1, ADD2,
        )  # fmt: skip
    shares1 = _shares(partial, channel, C, BLOCK_P)
    shares2 = shares1
    if PAIR:
        shares2 = _shares(partial + tl.num_programs(0) * 3 * C, channel, C, BLOCK_P)
    center1, rstd1 = _merge_moments(
        shares1, mean1, var1, stats, channel, momentum, eps, C, TRAINING
    )  # fmt: skip
    center2, rstd2 = center1, rstd1
    if PAIR:
        center2, rstd2 = _merge_moments(
            shares2, mean2, var2, stats + 3 * C, channel, momentum, eps, C, TRAINING
        )
    for start in range(first, tl.minimum(first + chunk, rows), BLOCK_R):
        if not ONE:
            at, _, value1, _, value2, _ = all_entering(
                x1, x2, add, mask, draw1, draw2, keyed, start, first_channel,
                C, BLOCK_R, BLOCK_C, MASK, PAIR, DROP1, DROP2, ADD1, ADD2,
            )  # fmt: skip
        out = affine(value1, center1, rstd1, weight1, bias1, channel, C)
        if PAIR:
            out += affine(value2, center2, rstd2, weight2, bias2, channel, C)
        store_result(out, plus, y, (seed3, scale3, threshold3), keyed, at, RELU, AFTER, PLUS)


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=SEEDS)
def gradient_sums_kernel(
    grad, x1, x2, add, mask, graph_id, index, weight1, bias1, weight2, bias2,
    seed1, seed2, seed3, stats, partial,
    rows, chunk, scale1, threshold1, scale2, threshold2, scale3, threshold3,
    C: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, MASK: tl.constexpr,
    PAIR: tl.constexpr, DROP1: tl.constexpr, DROP2: tl.constexpr, ADD1: tl.constexpr,
    ADD2: tl.constexpr, RELU: tl.constexpr, AFTER: tl.constexpr,
):  # fmt: skip
    """partial [norms, chunks, 2, C]: Σ dy·ẑ and Σ dy of each chunk."""
    keyed = (graph_id, index, rows)
    draw1, draw2 = (seed1, scale1, threshold1), (seed2, scale2, threshold2)
    first_channel = tl.program_id(1) * BLOCK_C
    channel = first_channel + tl.arange(0, BLOCK_C)
    first = tl.program_id(0) * chunk
    along1 = tl.zeros([BLOCK_C], tl.float32)
    total1, along2, total2 = along1, along1, along1
    for start in range(first, tl.minimum(first + chunk, rows), BLOCK_R):
        at, _, value1, _, value2, _ = all_entering(
            x1, x2, add, mask, draw1, draw2, keyed, start, first_channel,
            C, BLOCK_R, BLOCK_C, MASK, PAIR, DROP1, DROP2, ADD1, ADD2,
        )  # fmt: skip
        arriving = arriving_slope(grad, (seed3, scale3, threshold3), keyed, at, AFTER)
        slope, normed = slopes_at(arriving, value1, weight1, bias1, stats, at, C, RELU)
        along1 += tl.sum(slope * normed, 0)
        total1 += tl.sum(slope, 0)
        if PAIR:
            slope, normed = slopes_at(arriving, value2, weight2, bias2, stats + 3 * C, at, C, RELU)
            along2 += tl.sum(slope * normed, 0)
            total2 += tl.sum(slope, 0)
    partial += tl.program_id(0) * 2 * C + channel
    tl.store(partial, along1, channel < C)
    tl.store(partial + C, total1, channel < C)
    if PAIR:
        partial += tl.num_programs(0) * 2 * C
        tl.store(partial, along2, channel < C)
        tl.store(partial + C, total2, channel < C)


@triton.jit
def _slope_shares(partial, channel, C: tl.constexpr, BLOCK_P: tl.constexpr):
    """Σ dy·ẑ and Σ dy of all chunks."""
    chunk = tl.arange(0, BLOCK_P)
    listed = (chunk < tl.num_programs(0))[:, None] & (channel < C)[None, :]
    at = partial + chunk[:, None] * 2 * C + channel[None, :]
    return tl.load(at, listed, other=0.0), tl.load(at + C, listed, other=0.0)


@triton.jit
def _merge_slopes(shares, dweight, dbias, channel, C: tl.constexpr):
    """Σ dy·ẑ and Σ dy over all chunks: the gradients of weight and bias."""
    along, total = tl.sum(shares[0], 0), tl.sum(shares[1], 0)
    if tl.program_id(0) == 0:
        tl.store(dweight + channel, along, channel < C)
        tl.store(dbias + channel, total, channel < C)
    return along, total


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=SEEDS)
def input_gradient_kernel(
    grad, x1, x2, add, dx1, dx2, dadd, mask, graph_id, index,
    weight1, bias1, weight2, bias2, dweight1, dbias1, dweight2, dbias2, seed1, seed2, seed3,
    stats, partial, rows, chunk, scale1, threshold1, scale2, threshold2, scale3, threshold3,
    C: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_P: tl.constexpr,
    MASK: tl.constexpr, PAIR: tl.constexpr, DROP1: tl.constexpr, DROP2: tl.constexpr,
    ADD1: tl.constexpr, ADD2: tl.constexpr, DADD: tl.constexpr, RELU: tl.constexpr,
    AFTER: tl.constexpr, ONE: tl.constexpr,
):  # fmt: skip
    """All gradients from the shares of :func:`gradient_sums_kernel`; ONE as before."""
    keyed = (graph_id, index, rows)
    draw1, draw2 = (seed1, scale1, threshold1), (seed2, scale2, threshold2)
    last_draw = (seed3, scale3, threshold3)
    first_channel = tl.program_id(1) * BLOCK_C
    channel = first_channel + tl.arange(0, BLOCK_C)
    first = tl.program_id(0) * chunk
    if ONE:
        at, _, value1, kept1, value2, kept2 = all_entering(
            x1, x2, add, mask, draw1, draw2, keyed, first, first_channel,
            C, BLOCK_R, BLOCK_C, MASK, PAIR, DROP1, DROP2, ADD1, ADD2,
        )  # fmt: skip
        slope = arriving_slope(grad, last_draw, keyed, at, AFTER)
    shares1 = _slope_shares(partial, channel, C, BLOCK_P)
    shares2 = shares1
    if PAIR:
        shares2 = _slope_shares(partial + tl.num_programs(0) * 2 * C, channel, C, BLOCK_P)
    along1, total1 = _merge_slopes(shares1, dweight1, dbias1, channel, C)
    along2, total2 = along1, total1
    if PAIR:
        along2, total2 = _merge_slopes(shares2, dweight2, dbias2, channel, C)
    for start in range(first, tl.minimum(first + chunk, rows), BLOCK_R):
        if not ONE:
            at, _, value1, kept1, value2, kept2 = all_entering(
                x1, x2, add, mask, draw1, draw2, keyed, start, first_channel,
                C, BLOCK_R, BLOCK_C, MASK, PAIR, DROP1, DROP2, ADD1, ADD2,
            )  # fmt: skip
            slope = arriving_slope(grad, last_draw, keyed, at, AFTER)
        change, normed = slopes_at(slope, value1, weight1, bias1, stats, at, C, RELU)
        dz = store_dx(
            change, normed, along1, total1, weight1, stats, dx1, kept1, scale1, at, C, DROP1
        )
        if PAIR:
            change, normed = slopes_at(slope, value2, weight2, bias2, stats + 3 * C, at, C, RELU)
            dz2 = store_dx(
                change, normed, along2, total2, weight2, stats + 3 * C, dx2, kept2, scale2, at,
                C, DROP2,
            )  # fmt: skip
            if ADD2:
                dz += dz2
        if DADD:
            tl.store(dadd + at[2], dz.to(dadd.dtype.element_ty), at[3])
