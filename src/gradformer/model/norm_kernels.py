r"""Triton kernels of the batch norm, with what stands before and after it, on [rows, channels].

.. math::
    z = \text{drop}(x) + \text{add}, \qquad \hat z = (z - \text{mean}) \cdot \text{rstd}, \qquad
    y = \text{plus} + \text{drop}(\text{ReLU}(\hat z \cdot \text{weight} + \text{bias})),

or the sum of two norms, y = BN₁(drop(x₁) + add) + BN₂(drop(x₂) + add). Only x and add are kept for
the way back: z is made again, and so are the draws.

*Whole*: a program owns a few channels of all rows, so that statistics and result are one launch.
*Chunked*, for more rows: in the first of two kernels each program of a grid (chunks, channel tiles)
stores its share of the sums; in the second each merges all shares of its channels, in the same
order everywhere, and treats its own chunk. There are no atomics: bits are the same every time.

``stats`` [norms, 3, C] holds mean, rstd and 1/rows; the last is 0 where the statistics are not
those of this batch, which takes their gradients out. Sums are float32.

Helpers take some of their arguments together: a tile ``at`` (rows, channels, places, which of them
exist, which are real), a ``draw`` (seed, factor, threshold), and ``keyed`` (what keys the draws of
each row: graph_id, index, rows).
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.attention.draw_kernels import _keep, _row_keys

# All batches and sites share one compiled kernel.
NUMBERS = ["rows", "chunk", "threshold1", "threshold2", "threshold3"]
SEEDS = ["seed1", "seed2", "seed3"]


# --- what both forms share ------------------------------------------------------------------------


@triton.jit
def _tile(mask, start, rows, first_channel, C: tl.constexpr,
          BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, MASK: tl.constexpr):  # fmt: skip
    """The tile of BLOCK_R rows from ``start`` and BLOCK_C channels, and its number of real rows."""
    row = start + tl.arange(0, BLOCK_R)
    channel = first_channel + tl.arange(0, BLOCK_C)
    real = row < rows
    inside = real[:, None] & (channel < C)[None, :]
    place = row[:, None] * C + channel[None, :]
    if MASK:
        real = tl.load(mask + row, real, other=0) != 0
    at = (row, channel, place, inside, inside & real[:, None])
    return at, tl.sum(real.to(tl.float32))


@triton.jit
def _dropped(value, draw, keyed, at):
    """The value times a factor where the draw keeps it, otherwise 0."""
    seed, scale, threshold = draw
    graph_id, index, rows = keyed
    row, channel, _, _, _ = at
    graph = tl.load(graph_id + row, row < rows, other=0)
    inner = tl.load(index + row, row < rows, other=0)
    keys = _row_keys(seed, graph, row * 0, inner)
    return tl.where(_keep(keys[:, None], channel[None, :], threshold), value * scale, 0.0)


@triton.jit
def _entering(x, add, draw, keyed, at, DROP: tl.constexpr, ADD: tl.constexpr):
    """z, 0 where it is not real."""
    _, _, place, _, there = at
    value = tl.load(x + place, there, other=0.0).to(tl.float32)
    if DROP:
        value = _dropped(value, draw, keyed, at)
    if ADD:
        value += tl.load(add + place, there, other=0.0).to(tl.float32)
    return value


@triton.jit
def _moments(value, count, at):
    """Mean, and Σ (z − mean)², of the rows of a tile."""
    mean = tl.sum(value, 0) / tl.maximum(count, 1.0)
    centred = tl.where(at[4], value - mean[None, :], 0.0)
    return mean, tl.sum(centred * centred, 0)


@triton.jit
def _settle(
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
        if writes:
            unbiased = square / tl.maximum(count - 1.0, 1.0)
            share = tl.where(several, momentum, 0.0)
            tl.store(running_mean + channel, center + share * (mean - center), wide)
            tl.store(running_var + channel, variance + share * (unbiased - variance), wide)
        center = tl.where(several, mean, center)
        variance = tl.where(several, square / tl.maximum(count, 1.0), variance)
        inverse = tl.where(several, 1.0 / tl.maximum(count, 1.0), 0.0)
    rstd = tl.rsqrt(variance + eps)
    if writes:
        tl.store(stats + channel, center, wide)
        tl.store(stats + C + channel, rstd, wide)
        tl.store(stats + 2 * C + channel, tl.zeros_like(rstd) + inverse, wide)
    return center, rstd


@triton.jit
def _affine(value, mean, rstd, weight, bias, channel, C: tl.constexpr):
    """ẑ·weight + bias."""
    scale = tl.load(weight + channel, channel < C, other=0.0)
    shift = tl.load(bias + channel, channel < C, other=0.0)
    return (value - mean[None, :]) * rstd[None, :] * scale[None, :] + shift[None, :]


@triton.jit
def _leave(
    out, plus, y, draw, keyed, at, RELU: tl.constexpr, AFTER: tl.constexpr, PLUS: tl.constexpr
):
    """Store y: what follows the norm, 0 in padded rows, then ``plus``."""
    _, _, place, inside, there = at
    if RELU:
        out = tl.where(out <= 0.0, 0.0, out)  # NaN stays NaN
    if AFTER:
        out = _dropped(out, draw, keyed, at)
    out = tl.where(there, out, 0.0)
    if PLUS:
        out += tl.load(plus + place, inside, other=0.0).to(tl.float32)
    tl.store(y + place, out.to(y.dtype.element_ty), inside)


@triton.jit
def _arriving(grad, draw, keyed, at, AFTER: tl.constexpr):
    """The gradient behind the ReLU."""
    slope = tl.load(grad + at[2], at[4], other=0.0).to(tl.float32)
    if AFTER:
        slope = _dropped(slope, draw, keyed, at)
    return slope


@triton.jit
def _slopes(slope, value, weight, bias, stats, at, C: tl.constexpr, RELU: tl.constexpr):
    """The gradient before the ReLU, and ẑ, which is 0 where it is not real."""
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
def _back(
    slope, normed, along, total, weight, stats, dx, draw, keyed, at,
    C: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """dz = rstd·weight·(dy − mean(dy) − ẑ·mean(dy·ẑ)); stores dx."""
    _, channel, place, inside, there = at
    wide = channel < C
    rstd = tl.load(stats + C + channel, wide, other=0.0)
    inverse = tl.load(stats + 2 * C + channel, wide, other=0.0)
    scale = tl.load(weight + channel, wide, other=0.0)
    slope -= (total * inverse)[None, :] + normed * (along * inverse)[None, :]
    dz = tl.where(there, slope * (rstd * scale)[None, :], 0.0)
    dropped = dz
    if DROP:
        dropped = _dropped(dz, draw, keyed, at)
    tl.store(dx + place, dropped.to(dx.dtype.element_ty), inside)
    return dz


# --- all rows in one program ----------------------------------------------------------------------


@triton.jit
def _whole_half(
    x, add, weight, bias, running_mean, running_var, stats, count, draw, keyed, at, momentum, eps,
    C: tl.constexpr, DROP: tl.constexpr, ADD: tl.constexpr, TRAINING: tl.constexpr,
):  # fmt: skip
    """One norm of a tile that holds all rows."""
    value = _entering(x, add, draw, keyed, at, DROP, ADD)
    mean, square = _moments(value, count, at)
    mean, rstd = _settle(
        mean, square, count, running_mean, running_var, stats, at[1], momentum, eps, True,
        C, TRAINING,
    )  # fmt: skip
    return _affine(value, mean, rstd, weight, bias, at[1], C)


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=SEEDS)
def whole_kernel(
    x1, x2, add, plus, y, mask, graph_id, index,
    weight1, bias1, mean1, var1, weight2, bias2, mean2, var2, seed1, seed2, seed3, stats,
    rows, momentum, eps, scale1, threshold1, scale2, threshold2, scale3, threshold3,
    C: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, TRAINING: tl.constexpr,
    MASK: tl.constexpr, PAIR: tl.constexpr, DROP1: tl.constexpr, DROP2: tl.constexpr,
    ADD1: tl.constexpr, ADD2: tl.constexpr, RELU: tl.constexpr, AFTER: tl.constexpr,
    PLUS: tl.constexpr,
):  # fmt: skip
    """y, stats and running statistics; grid (channel tiles,)."""
    keyed = (graph_id, index, rows)
    at, count = _tile(mask, 0, rows, tl.program_id(0) * BLOCK_C, C, BLOCK_R, BLOCK_C, MASK)
    out = _whole_half(
        x1, add, weight1, bias1, mean1, var1, stats, count, (seed1, scale1, threshold1), keyed, at,
        momentum, eps, C, DROP1, ADD1, TRAINING,
    )  # fmt: skip
    if PAIR:
        out += _whole_half(
            x2, add, weight2, bias2, mean2, var2, stats + 3 * C, count,
            (seed2, scale2, threshold2), keyed, at, momentum, eps, C, DROP2, ADD2, TRAINING,
        )  # fmt: skip
    _leave(out, plus, y, (seed3, scale3, threshold3), keyed, at, RELU, AFTER, PLUS)


@triton.jit
def _whole_half_back(
    slope, x, add, dx, weight, bias, dweight, dbias, stats, draw, keyed, at,
    C: tl.constexpr, DROP: tl.constexpr, ADD: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    """Gradients of one norm of a tile that holds all rows; returns dz."""
    value = _entering(x, add, draw, keyed, at, DROP, ADD)
    slope, normed = _slopes(slope, value, weight, bias, stats, at, C, RELU)
    along, total = tl.sum(slope * normed, 0), tl.sum(slope, 0)
    tl.store(dweight + at[1], along, at[1] < C)
    tl.store(dbias + at[1], total, at[1] < C)
    return _back(slope, normed, along, total, weight, stats, dx, draw, keyed, at, C, DROP)


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=SEEDS)
def whole_gradient_kernel(
    grad, x1, x2, add, dx1, dx2, dadd, mask, graph_id, index,
    weight1, bias1, weight2, bias2, dweight1, dbias1, dweight2, dbias2, seed1, seed2, seed3, stats,
    rows, scale1, threshold1, scale2, threshold2, scale3, threshold3,
    C: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, MASK: tl.constexpr,
    PAIR: tl.constexpr, DROP1: tl.constexpr, DROP2: tl.constexpr, ADD1: tl.constexpr,
    ADD2: tl.constexpr, DADD: tl.constexpr, RELU: tl.constexpr, AFTER: tl.constexpr,
):  # fmt: skip
    """All gradients; grid (channel tiles,). DADD: that of ``add`` is not dx₁ itself."""
    keyed = (graph_id, index, rows)
    at, _ = _tile(mask, 0, rows, tl.program_id(0) * BLOCK_C, C, BLOCK_R, BLOCK_C, MASK)
    slope = _arriving(grad, (seed3, scale3, threshold3), keyed, at, AFTER)
    dz = _whole_half_back(
        slope, x1, add, dx1, weight1, bias1, dweight1, dbias1, stats,
        (seed1, scale1, threshold1), keyed, at, C, DROP1, ADD1, RELU,
    )  # fmt: skip
    if PAIR:
        dz2 = _whole_half_back(
            slope, x2, add, dx2, weight2, bias2, dweight2, dbias2, stats + 3 * C,
            (seed2, scale2, threshold2), keyed, at, C, DROP2, ADD2, RELU,
        )  # fmt: skip
        if ADD2:
            dz += dz2
    if DADD:
        tl.store(dadd + at[2], dz.to(dadd.dtype.element_ty), at[3])


# --- rows in chunks -------------------------------------------------------------------------------


@triton.jit
def _chunk_moments(
    x, add, mask, partial, draw, keyed, chunk,
    C: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, MASK: tl.constexpr,
    DROP: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    """partial [3, C]: mean, Σ(z − mean)² and count of the chunk's real rows."""
    rows = keyed[2]
    first_channel = tl.program_id(1) * BLOCK_C
    first = tl.program_id(0) * chunk
    count = 0.0
    mean = tl.zeros([BLOCK_C], tl.float32)
    square = tl.zeros([BLOCK_C], tl.float32)
    for start in range(first, tl.minimum(first + chunk, rows), BLOCK_R):
        at, more = _tile(mask, start, rows, first_channel, C, BLOCK_R, BLOCK_C, MASK)
        value = _entering(x, add, draw, keyed, at, DROP, ADD)
        tile_mean, tile_square = _moments(value, more, at)
        apart = tile_mean - mean
        share = more / tl.maximum(count + more, 1.0)
        mean += apart * share
        square += tile_square + apart * apart * (count * share)
        count += more
    channel = first_channel + tl.arange(0, BLOCK_C)
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
    """partial [norms, chunks, 3, C]."""
    keyed = (graph_id, index, rows)
    partial += tl.program_id(0) * 3 * C
    _chunk_moments(
        x1, add, mask, partial, (seed1, scale1, threshold1), keyed, chunk,
        C, BLOCK_R, BLOCK_C, MASK, DROP1, ADD1,
    )  # fmt: skip
    if PAIR:
        partial += tl.num_programs(0) * 3 * C
        _chunk_moments(
            x2, add, mask, partial, (seed2, scale2, threshold2), keyed, chunk,
            C, BLOCK_R, BLOCK_C, MASK, DROP2, ADD2,
        )  # fmt: skip


@triton.jit
def _merge_moments(
    partial, running_mean, running_var, stats, channel, momentum, eps,
    C: tl.constexpr, BLOCK_P: tl.constexpr, TRAINING: tl.constexpr,
):  # fmt: skip
    """Mean and rstd of all chunks."""
    mean = tl.zeros_like(channel).to(tl.float32)
    square = mean
    count = mean
    if TRAINING:
        program = tl.arange(0, BLOCK_P)
        listed = (program < tl.num_programs(0))[:, None] & (channel < C)[None, :]
        at = program[:, None] * 3 * C + channel[None, :]
        counts = tl.load(partial + 2 * C + at, listed, other=0.0)
        means = tl.load(partial + at, listed, other=0.0)
        squares = tl.load(partial + C + at, listed, other=0.0)
        count = tl.sum(counts, 0)
        mean = tl.sum(counts * means, 0) / tl.maximum(count, 1.0)
        apart = means - mean[None, :]
        square = tl.sum(squares + counts * apart * apart, 0)
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
        value = _entering(x1, add, (seed1, scale1, threshold1), keyed, at, DROP1, ADD1)
        out = _affine(value, center1, rstd1, weight1, bias1, channel, C)
        if PAIR:
            value = _entering(x2, add, (seed2, scale2, threshold2), keyed, at, DROP2, ADD2)
            out += _affine(value, center2, rstd2, weight2, bias2, channel, C)
        _leave(out, plus, y, (seed3, scale3, threshold3), keyed, at, RELU, AFTER, PLUS)


@triton.jit
def _chunk_slopes(
    grad, x, add, weight, bias, stats, mask, partial, draw, last_draw, keyed, chunk,
    C: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, MASK: tl.constexpr,
    DROP: tl.constexpr, ADD: tl.constexpr, RELU: tl.constexpr, AFTER: tl.constexpr,
):  # fmt: skip
    """partial [2, C]: Σ dy·ẑ and Σ dy of the chunk."""
    rows = keyed[2]
    first_channel = tl.program_id(1) * BLOCK_C
    first = tl.program_id(0) * chunk
    along = tl.zeros([BLOCK_C], tl.float32)
    total = tl.zeros([BLOCK_C], tl.float32)
    for start in range(first, tl.minimum(first + chunk, rows), BLOCK_R):
        at, _ = _tile(mask, start, rows, first_channel, C, BLOCK_R, BLOCK_C, MASK)
        slope = _arriving(grad, last_draw, keyed, at, AFTER)
        value = _entering(x, add, draw, keyed, at, DROP, ADD)
        slope, normed = _slopes(slope, value, weight, bias, stats, at, C, RELU)
        along += tl.sum(slope * normed, 0)
        total += tl.sum(slope, 0)
    channel = first_channel + tl.arange(0, BLOCK_C)
    tl.store(partial + channel, along, channel < C)
    tl.store(partial + C + channel, total, channel < C)


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=SEEDS)
def gradient_sums_kernel(
    grad, x1, x2, add, mask, graph_id, index, weight1, bias1, weight2, bias2,
    seed1, seed2, seed3, stats, partial,
    rows, chunk, scale1, threshold1, scale2, threshold2, scale3, threshold3,
    C: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, MASK: tl.constexpr,
    PAIR: tl.constexpr, DROP1: tl.constexpr, DROP2: tl.constexpr, ADD1: tl.constexpr,
    ADD2: tl.constexpr, RELU: tl.constexpr, AFTER: tl.constexpr,
):  # fmt: skip
    """partial [norms, chunks, 2, C]."""
    keyed, last_draw = (graph_id, index, rows), (seed3, scale3, threshold3)
    partial += tl.program_id(0) * 2 * C
    _chunk_slopes(
        grad, x1, add, weight1, bias1, stats, mask, partial, (seed1, scale1, threshold1),
        last_draw, keyed, chunk, C, BLOCK_R, BLOCK_C, MASK, DROP1, ADD1, RELU, AFTER,
    )  # fmt: skip
    if PAIR:
        partial += tl.num_programs(0) * 2 * C
        _chunk_slopes(
            grad, x2, add, weight2, bias2, stats + 3 * C, mask, partial,
            (seed2, scale2, threshold2), last_draw, keyed, chunk,
            C, BLOCK_R, BLOCK_C, MASK, DROP2, ADD2, RELU, AFTER,
        )  # fmt: skip


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


@triton.jit
def _half_back(
    slope, x, add, dx, weight, bias, along, total, stats, draw, keyed, at,
    C: tl.constexpr, DROP: tl.constexpr, ADD: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    """Input gradient of one norm; returns dz."""
    value = _entering(x, add, draw, keyed, at, DROP, ADD)
    slope, normed = _slopes(slope, value, weight, bias, stats, at, C, RELU)
    return _back(slope, normed, along, total, weight, stats, dx, draw, keyed, at, C, DROP)


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
        dz = _half_back(
            slope, x1, add, dx1, weight1, bias1, along1, total1, stats,
            (seed1, scale1, threshold1), keyed, at, C, DROP1, ADD1, RELU,
        )  # fmt: skip
        if PAIR:
            dz2 = _half_back(
                slope, x2, add, dx2, weight2, bias2, along2, total2, stats + 3 * C,
                (seed2, scale2, threshold2), keyed, at, C, DROP2, ADD2, RELU,
            )  # fmt: skip
            if ADD2:
                dz += dz2
        if DADD:
            tl.store(dadd + at[2], dz.to(dadd.dtype.element_ty), at[3])
