"""Triton kernels of the batch norm and of dropout on packed rows [rows, channels].

A norm takes two kernels each way. In the first, each program of a grid (chunks, channel tiles)
walks over one contiguous chunk of rows and stores its share of the sums; in the second, each
program merges all shares of its channels, in the same order everywhere, and treats its own chunk.
So there are no atomics and the bits are the same every time. Sums are float32.

Notation: z = x + add, x̂ = (z − mean)·rstd, y = [ReLU](x̂·weight + bias). ``stats`` [3, channels]
holds mean, rstd and 1/rows; the last is 0 where the statistics are not those of this batch, which
takes their gradients out.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.attention.draw_kernels import _keep, _row_keys


@triton.jit
def _tile(mask, start, rows, channels, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
          HAS_MASK: tl.constexpr):  # fmt: skip
    """BLOCK_R rows from ``start``, this program's channels: places, which exist, real rows."""
    row = start + tl.arange(0, BLOCK_R)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    real = row < rows
    inside = real[:, None] & (channel < channels)[None, :]
    place = row.to(tl.int64)[:, None] * channels + channel[None, :]
    if HAS_MASK:
        real = tl.load(mask + row, real, other=0) != 0
    return place, inside, real


@triton.jit
def statistics_kernel(
    x, add, z, mask, partial, rows, chunk, channels,
    BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, HAS_ADD: tl.constexpr, HAS_MASK: tl.constexpr,
):  # fmt: skip
    """partial [chunks, 2·channels + 1]: mean, Σ(z − mean)² and count of the chunk's real rows.

    Writes z where there is something to add.
    """
    first = tl.program_id(0) * chunk
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    count = 0.0
    mean = tl.zeros([BLOCK_C], tl.float32)
    square = tl.zeros([BLOCK_C], tl.float32)
    for start in range(first, tl.minimum(first + chunk, rows), BLOCK_R):
        place, inside, real = _tile(mask, start, rows, channels, BLOCK_R, BLOCK_C, HAS_MASK)
        there = inside & real[:, None]
        value = tl.load(x + place, there, other=0.0).to(tl.float32)
        if HAS_ADD:
            value += tl.load(add + place, there, other=0.0).to(tl.float32)
            rounded = value.to(z.dtype.element_ty)
            tl.store(z + place, rounded, there)
            value = rounded.to(tl.float32)
        more = tl.sum(real.to(tl.float32))
        tile_mean = tl.sum(value, 0) / tl.maximum(more, 1.0)
        centred = tl.where(there, value - tile_mean[None, :], 0.0)
        apart = tile_mean - mean
        share = more / tl.maximum(count + more, 1.0)
        mean += apart * share
        square += tl.sum(centred * centred, 0) + apart * apart * (count * share)
        count += more
    partial += tl.program_id(0) * (2 * channels + 1)
    tl.store(partial + channel, mean, channel < channels)
    tl.store(partial + channels + channel, square, channel < channels)
    if tl.program_id(1) == 0:
        tl.store(partial + 2 * channels, count)


@triton.jit
def normalise_kernel(
    x, add, z, y, mask, weight, bias, running_mean, running_var, partial, stats,
    rows, chunk, channels, momentum, eps,
    BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_P: tl.constexpr, TRAINING: tl.constexpr,
    HAS_ADD: tl.constexpr, HAS_MASK: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    """y and stats; in training also the running statistics.

    In training ``x`` is z already and ``partial`` comes from :func:`statistics_kernel`; otherwise
    the running statistics serve, and z is written here where there is something to add.
    """
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    wide = channel < channels
    mean = tl.load(running_mean + channel, wide, other=0.0)
    variance = tl.load(running_var + channel, wide, other=1.0)
    inverse = 0.0
    if TRAINING:
        program = tl.arange(0, BLOCK_P)
        listed = program < tl.num_programs(0)
        width = 2 * channels + 1
        counts = tl.load(partial + program * width + 2 * channels, listed, other=0.0)
        at = program[:, None] * width + channel[None, :]
        means = tl.load(partial + at, listed[:, None] & wide[None, :], other=0.0)
        squares = tl.load(partial + channels + at, listed[:, None] & wide[None, :], other=0.0)
        count = tl.sum(counts)
        batch_mean = tl.sum(counts[:, None] * means, 0) / tl.maximum(count, 1.0)
        apart = means - batch_mean[None, :]
        square = tl.sum(squares + counts[:, None] * apart * apart, 0)
        if count > 1.0:
            # Nobody else reads the running statistics now: all take this branch.
            if tl.program_id(0) == 0:
                unbiased = square / (count - 1.0)
                tl.store(running_mean + channel, mean + momentum * (batch_mean - mean), wide)
                tl.store(running_var + channel, variance + momentum * (unbiased - variance), wide)
            mean = batch_mean
            variance = square / count
            inverse = 1.0 / count
    rstd = tl.rsqrt(variance + eps)
    if tl.program_id(0) == 0:
        tl.store(stats + channel, mean, wide)
        tl.store(stats + channels + channel, rstd, wide)
        tl.store(stats + 2 * channels + channel, tl.zeros([BLOCK_C], tl.float32) + inverse, wide)
    scale = tl.load(weight + channel, wide, other=0.0)
    shift = tl.load(bias + channel, wide, other=0.0)
    first = tl.program_id(0) * chunk
    for start in range(first, tl.minimum(first + chunk, rows), BLOCK_R):
        place, inside, real = _tile(mask, start, rows, channels, BLOCK_R, BLOCK_C, HAS_MASK)
        there = inside & real[:, None]
        value = tl.load(x + place, there, other=0.0).to(tl.float32)
        if HAS_ADD:
            value += tl.load(add + place, there, other=0.0).to(tl.float32)
            rounded = value.to(z.dtype.element_ty)
            tl.store(z + place, rounded, there)
            value = rounded.to(tl.float32)
        out = (value - mean[None, :]) * rstd[None, :] * scale[None, :] + shift[None, :]
        if RELU:
            out = tl.maximum(out, 0.0)
        out = tl.where(there, out, 0.0)
        tl.store(y + place, out.to(y.dtype.element_ty), inside)


@triton.jit
def _normed(grad, z, place, there, mean, rstd, scale, shift, RELU: tl.constexpr):
    """Gradient before the ReLU, and x̂; both 0 where not ``there``."""
    value = tl.load(z + place, there, other=0.0).to(tl.float32)
    slope = tl.load(grad + place, there, other=0.0).to(tl.float32)
    normed = tl.where(there, (value - mean[None, :]) * rstd[None, :], 0.0)
    if RELU:
        slope = tl.where(normed * scale[None, :] + shift[None, :] > 0.0, slope, 0.0)
    return slope, normed


@triton.jit
def gradient_sums_kernel(
    grad, z, mask, weight, bias, stats, partial, rows, chunk, channels,
    BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, HAS_MASK: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    """partial [chunks, 2·channels]: Σ dy·x̂ and Σ dy of the chunk."""
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    wide = channel < channels
    mean = tl.load(stats + channel, wide, other=0.0)
    rstd = tl.load(stats + channels + channel, wide, other=0.0)
    scale = tl.load(weight + channel, wide, other=0.0)
    shift = tl.load(bias + channel, wide, other=0.0)
    along = tl.zeros([BLOCK_C], tl.float32)
    total = tl.zeros([BLOCK_C], tl.float32)
    first = tl.program_id(0) * chunk
    for start in range(first, tl.minimum(first + chunk, rows), BLOCK_R):
        place, inside, real = _tile(mask, start, rows, channels, BLOCK_R, BLOCK_C, HAS_MASK)
        there = inside & real[:, None]
        slope, normed = _normed(grad, z, place, there, mean, rstd, scale, shift, RELU)
        along += tl.sum(slope * normed, 0)
        total += tl.sum(slope, 0)
    partial += tl.program_id(0) * 2 * channels
    tl.store(partial + channel, along, wide)
    tl.store(partial + channels + channel, total, wide)


@triton.jit
def input_gradient_kernel(
    grad, z, mask, weight, bias, stats, partial, dz, dparameters, rows, chunk, channels,
    BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_P: tl.constexpr,
    HAS_MASK: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    """dz = rstd·weight·(dy − mean(dy) − x̂·mean(dy·x̂)); dparameters [2, channels]: Σ dy·x̂, Σ dy."""
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    wide = channel < channels
    mean = tl.load(stats + channel, wide, other=0.0)
    rstd = tl.load(stats + channels + channel, wide, other=0.0)
    inverse = tl.load(stats + 2 * channels + channel, wide, other=0.0)
    scale = tl.load(weight + channel, wide, other=0.0)
    shift = tl.load(bias + channel, wide, other=0.0)
    program = tl.arange(0, BLOCK_P)
    listed = (program < tl.num_programs(0))[:, None] & wide[None, :]
    at = program[:, None] * 2 * channels + channel[None, :]
    along = tl.sum(tl.load(partial + at, listed, other=0.0), 0)
    total = tl.sum(tl.load(partial + channels + at, listed, other=0.0), 0)
    if tl.program_id(0) == 0:
        tl.store(dparameters + channel, along, wide)
        tl.store(dparameters + channels + channel, total, wide)
    first = tl.program_id(0) * chunk
    for start in range(first, tl.minimum(first + chunk, rows), BLOCK_R):
        place, inside, real = _tile(mask, start, rows, channels, BLOCK_R, BLOCK_C, HAS_MASK)
        there = inside & real[:, None]
        slope, normed = _normed(grad, z, place, there, mean, rstd, scale, shift, RELU)
        slope -= (total * inverse)[None, :] + normed * (along * inverse)[None, :]
        out = tl.where(there, slope * (rstd * scale)[None, :], 0.0)
        tl.store(dz + place, out.to(dz.dtype.element_ty), inside)


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
        kept = _keep(_row_keys(seed, graph, row * 0, row * 0), row * 0, threshold)[:, None]
    else:
        inner = tl.load(index + row, row < rows, other=0)
        keys = _row_keys(seed, graph, row * 0, inner)
        kept = _keep(keys[:, None], channel[None, :], threshold)
    place = row.to(tl.int64)[:, None] * channels + channel[None, :]
    value = tl.load(x + place, inside, other=0.0).to(tl.float32)
    out = tl.where(kept, value * scale, 0.0)
    tl.store(y + place, out.to(y.dtype.element_ty), inside)


@triton.jit
def sum_pieces_kernel(
    pieces, table, grad, units, UNIT: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """grad = its pieces [+ grad], in order; ``table`` [5, units]: see :mod:`.pieces`."""
    number = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    unit, lane = number // UNIT, number % UNIT
    inside = unit < units
    start = tl.load(table + unit, inside, other=0).to(tl.int64) + lane
    row = tl.load(table + units + unit, inside, other=0)
    count = tl.load(table + 2 * units + unit, inside, other=0)
    used = lane < tl.load(table + 3 * units + unit, inside, other=0)
    kept = tl.load(table + 4 * units + unit, inside, other=0) != 0
    total = tl.load(grad + number, kept, other=0.0)
    for first in range(0, tl.max(count), 4):
        for i in tl.static_range(4):  # loads that wait together
            there = used & (first + i < count)
            total += tl.load(pieces + start + (first + i) * row, there, other=0.0)
    tl.store(grad + number, total, inside)
