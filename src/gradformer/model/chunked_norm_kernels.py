"""Batch norm of many rows in two kernels each way: shares of the sums, then the result."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.model.norm_kernels import (
    NUMBERS,
    SEEDS,
    _affine,
    _arriving,
    _back,
    _entering,
    _leave,
    _moments,
    _settle,
    _slopes,
    _tile,
)


@triton.jit
def _pool(mean, square, count, value, more, at):
    """Mean and Σ(z − mean)² of ``count`` rows and those of a tile, ``more``."""
    tile_mean, tile_square = _moments(value, more, at)
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
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    first = tl.program_id(0) * chunk
    count = 0.0
    mean1 = tl.zeros([BLOCK_C], tl.float32)
    square1, mean2, square2 = mean1, mean1, mean1
    for start in range(first, tl.minimum(first + chunk, rows), BLOCK_R):
        at, real = _tile(
            mask, start, rows, tl.program_id(1) * BLOCK_C, C, BLOCK_R, BLOCK_C, MASK
        )  # fmt: skip
        value1, _ = _entering(x1, add, (seed1, scale1, threshold1), keyed, at, DROP1, ADD1)
        value2 = value1
        if PAIR:
            value2, _ = _entering(x2, add, (seed2, scale2, threshold2), keyed, at, DROP2, ADD2)
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
def _merge_moments(
    partial, running_mean, running_var, stats, channel, momentum, eps,
    C: tl.constexpr, BLOCK_P: tl.constexpr, TRAINING: tl.constexpr,
):  # fmt: skip
    """Mean and rstd of all chunks."""
    mean = tl.zeros_like(channel).to(tl.float32)
    square = mean
    count = 0.0
    if TRAINING:
        program = tl.arange(0, BLOCK_P)
        listed = program < tl.num_programs(0)
        inside = listed[:, None] & (channel < C)[None, :]
        at = program[:, None] * 3 * C + channel[None, :]
        counts = tl.load(partial + 2 * C + program * 3 * C, listed, other=0.0)
        means = tl.load(partial + at, inside, other=0.0)
        squares = tl.load(partial + C + at, inside, other=0.0)
        count = tl.sum(counts)
        mean = tl.sum(counts[:, None] * means, 0) * (1.0 / tl.maximum(count, 1.0))
        apart = means - mean[None, :]
        square = tl.sum(squares + counts[:, None] * apart * apart, 0)
    return _settle(
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
    AFTER: tl.constexpr, PLUS: tl.constexpr,
):  # fmt: skip
    """y, stats and running statistics from the shares of :func:`statistics_kernel`."""
    keyed = (graph_id, index, rows)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    center1, rstd1 = _merge_moments(
        partial, mean1, var1, stats, channel, momentum, eps, C, BLOCK_P, TRAINING
    )
    center2, rstd2 = center1, rstd1
    if PAIR:
        center2, rstd2 = _merge_moments(
            partial + tl.num_programs(0) * 3 * C, mean2, var2, stats + 3 * C, channel,
            momentum, eps, C, BLOCK_P, TRAINING,
        )  # fmt: skip
    first = tl.program_id(0) * chunk
    for start in range(first, tl.minimum(first + chunk, rows), BLOCK_R):
        at, _ = _tile(
            mask, start, rows, tl.program_id(1) * BLOCK_C, C, BLOCK_R, BLOCK_C, MASK
        )  # fmt: skip
        value, _ = _entering(x1, add, (seed1, scale1, threshold1), keyed, at, DROP1, ADD1)
        out = _affine(value, center1, rstd1, weight1, bias1, channel, C)
        if PAIR:
            value, _ = _entering(x2, add, (seed2, scale2, threshold2), keyed, at, DROP2, ADD2)
            out += _affine(value, center2, rstd2, weight2, bias2, channel, C)
        _leave(out, plus, y, (seed3, scale3, threshold3), keyed, at, RELU, AFTER, PLUS)


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
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    first = tl.program_id(0) * chunk
    along1 = tl.zeros([BLOCK_C], tl.float32)
    total1, along2, total2 = along1, along1, along1
    for start in range(first, tl.minimum(first + chunk, rows), BLOCK_R):
        at, _ = _tile(
            mask, start, rows, tl.program_id(1) * BLOCK_C, C, BLOCK_R, BLOCK_C, MASK
        )  # fmt: skip
        arriving = _arriving(grad, (seed3, scale3, threshold3), keyed, at, AFTER)
        value1, _ = _entering(x1, add, (seed1, scale1, threshold1), keyed, at, DROP1, ADD1)
        value2 = value1
        if PAIR:
            value2, _ = _entering(x2, add, (seed2, scale2, threshold2), keyed, at, DROP2, ADD2)
        slope, normed = _slopes(arriving, value1, weight1, bias1, stats, at, C, RELU)
        along1 += tl.sum(slope * normed, 0)
        total1 += tl.sum(slope, 0)
        if PAIR:
            slope, normed = _slopes(arriving, value2, weight2, bias2, stats + 3 * C, at, C, RELU)
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
def _merge_slopes(partial, dweight, dbias, channel, C: tl.constexpr, BLOCK_P: tl.constexpr):
    """Σ dy·ẑ and Σ dy over all chunks: the gradients of weight and bias."""
    program = tl.arange(0, BLOCK_P)
    wide = channel < C
    listed = (program < tl.num_programs(0))[:, None] & wide[None, :]
    at = program[:, None] * 2 * C + channel[None, :]
    along = tl.sum(tl.load(partial + at, listed, other=0.0), 0)
    total = tl.sum(tl.load(partial + C + at, listed, other=0.0), 0)
    if tl.program_id(0) == 0:
        tl.store(dweight + channel, along, wide)
        tl.store(dbias + channel, total, wide)
    return along, total


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=SEEDS)
def input_gradient_kernel(
    grad, x1, x2, add, dx1, dx2, dadd, mask, graph_id, index,
    weight1, bias1, weight2, bias2, dweight1, dbias1, dweight2, dbias2, seed1, seed2, seed3,
    stats, partial, rows, chunk, scale1, threshold1, scale2, threshold2, scale3, threshold3,
    C: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_P: tl.constexpr,
    MASK: tl.constexpr, PAIR: tl.constexpr, DROP1: tl.constexpr, DROP2: tl.constexpr,
    ADD1: tl.constexpr, ADD2: tl.constexpr, DADD: tl.constexpr, RELU: tl.constexpr,
    AFTER: tl.constexpr,
):  # fmt: skip
    """All gradients from the shares of :func:`gradient_sums_kernel`."""
    keyed = (graph_id, index, rows)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    along1, total1 = _merge_slopes(partial, dweight1, dbias1, channel, C, BLOCK_P)
    along2, total2 = along1, total1
    if PAIR:
        more = partial + tl.num_programs(0) * 2 * C
        along2, total2 = _merge_slopes(more, dweight2, dbias2, channel, C, BLOCK_P)
    first = tl.program_id(0) * chunk
    for start in range(first, tl.minimum(first + chunk, rows), BLOCK_R):
        at, _ = _tile(
            mask, start, rows, tl.program_id(1) * BLOCK_C, C, BLOCK_R, BLOCK_C, MASK
        )  # fmt: skip
        slope = _arriving(grad, (seed3, scale3, threshold3), keyed, at, AFTER)
        value1, kept1 = _entering(x1, add, (seed1, scale1, threshold1), keyed, at, DROP1, ADD1)
        value2, kept2 = value1, kept1
        if PAIR:
            value2, kept2 = _entering(x2, add, (seed2, scale2, threshold2), keyed, at, DROP2, ADD2)
        change, normed = _slopes(slope, value1, weight1, bias1, stats, at, C, RELU)
        dz = _back(change, normed, along1, total1, weight1, stats, dx1, kept1, scale1, at, C, DROP1)
        if PAIR:
            change, normed = _slopes(slope, value2, weight2, bias2, stats + 3 * C, at, C, RELU)
            dz2 = _back(
                change, normed, along2, total2, weight2, stats + 3 * C, dx2, kept2, scale2, at,
                C, DROP2,
            )  # fmt: skip
            if ADD2:
                dz += dz2
        if DADD:
            tl.store(dadd + at[2], dz.to(dadd.dtype.element_ty), at[3])
