"""Batch norm in one kernel each way: a program owns a few channels of all rows.

It walks over them twice, in tiles of BLOCK_R rows: for the sums, each row of the tile for itself,
and for the result. ONE: a tile holds all rows, which are read once.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.model.norm_kernels import (
    NUMBERS,
    SEEDS,
    _affine,
    _all_entering,
    _arriving,
    _back,
    _leave,
    _merge_moments,
    _slopes,
)


@triton.jit
def _pool(mean, square, value, counts, share):
    """Means and Σ (z − mean)² of ``counts`` rows each, and of one more that has this ``share``."""
    apart = value - mean
    return mean + apart * share[:, None], square + apart * apart * (counts * share)[:, None]


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=SEEDS)
def whole_kernel(
    x1, x2, add, plus, y, mask, graph_id, index,
    weight1, bias1, mean1, var1, weight2, bias2, mean2, var2, seed1, seed2, seed3, stats,
    rows, momentum, eps, scale1, threshold1, scale2, threshold2, scale3, threshold3,
    C: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, ONE: tl.constexpr,
    TRAINING: tl.constexpr, MASK: tl.constexpr, PAIR: tl.constexpr, DROP1: tl.constexpr,
    DROP2: tl.constexpr, ADD1: tl.constexpr, ADD2: tl.constexpr, RELU: tl.constexpr,
    AFTER: tl.constexpr, PLUS: tl.constexpr,
):  # fmt: skip
    """y, stats and running statistics; grid (channel tiles,)."""
    keyed = (graph_id, index, rows)
    draw1, draw2 = (seed1, scale1, threshold1), (seed2, scale2, threshold2)
    first_channel = tl.program_id(0) * BLOCK_C
    channel = first_channel + tl.arange(0, BLOCK_C)
    end = BLOCK_R if ONE else rows
    if ONE:
        at, real, value1, _, value2, _ = _all_entering(
            x1, x2, add, mask, draw1, draw2, keyed, 0, first_channel,
            C, BLOCK_R, BLOCK_C, MASK, PAIR, DROP1, DROP2, ADD1, ADD2,
        )  # fmt: skip
    counts = tl.zeros([BLOCK_R], tl.float32)
    center1 = tl.zeros([BLOCK_R, BLOCK_C], tl.float32)
    square1, center2, square2 = center1, center1, center1
    if TRAINING:
        for start in range(0, end, BLOCK_R):
            if not ONE:
                _, real, value1, _, value2, _ = _all_entering(
                    x1, x2, add, mask, draw1, draw2, keyed, start, first_channel,
                    C, BLOCK_R, BLOCK_C, MASK, PAIR, DROP1, DROP2, ADD1, ADD2,
                )  # fmt: skip
            more = real.to(tl.float32)
            share = more / tl.maximum(counts + more, 1.0)
            center1, square1 = _pool(center1, square1, value1, counts, share)
            if PAIR:
                center2, square2 = _pool(center2, square2, value2, counts, share)
            counts += more
    center1, rstd1 = _merge_moments(
        (counts, center1, square1), mean1, var1, stats, channel, momentum, eps, True, C, TRAINING
    )
    if PAIR:
        center2, rstd2 = _merge_moments(
            (counts, center2, square2), mean2, var2, stats + 3 * C, channel, momentum, eps, True,
            C, TRAINING,
        )  # fmt: skip
    for start in range(0, end, BLOCK_R):
        if not ONE:
            at, _, value1, _, value2, _ = _all_entering(
                x1, x2, add, mask, draw1, draw2, keyed, start, first_channel,
                C, BLOCK_R, BLOCK_C, MASK, PAIR, DROP1, DROP2, ADD1, ADD2,
            )  # fmt: skip
        out = _affine(value1, center1, rstd1, weight1, bias1, channel, C)
        if PAIR:
            out += _affine(value2, center2, rstd2, weight2, bias2, channel, C)
        _leave(out, plus, y, (seed3, scale3, threshold3), keyed, at, RELU, AFTER, PLUS)


@triton.jit
def _store_slopes(along, total, dweight, dbias, channel, C: tl.constexpr):
    """Σ dy·ẑ and Σ dy: the gradients of weight and bias."""
    along, total = tl.sum(along, 0), tl.sum(total, 0)
    tl.store(dweight + channel, along, channel < C)
    tl.store(dbias + channel, total, channel < C)
    return along, total


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=SEEDS)
def whole_gradient_kernel(
    grad, x1, x2, add, dx1, dx2, dadd, mask, graph_id, index,
    weight1, bias1, weight2, bias2, dweight1, dbias1, dweight2, dbias2, seed1, seed2, seed3, stats,
    rows, scale1, threshold1, scale2, threshold2, scale3, threshold3,
    C: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, ONE: tl.constexpr,
    MASK: tl.constexpr, PAIR: tl.constexpr, DROP1: tl.constexpr, DROP2: tl.constexpr,
    ADD1: tl.constexpr, ADD2: tl.constexpr, DADD: tl.constexpr, RELU: tl.constexpr,
    AFTER: tl.constexpr,
):  # fmt: skip
    """All gradients; grid (channel tiles,). DADD: that of ``add`` is not dx₁ itself."""
    keyed = (graph_id, index, rows)
    draw1, draw2 = (seed1, scale1, threshold1), (seed2, scale2, threshold2)
    last_draw = (seed3, scale3, threshold3)
    first_channel = tl.program_id(0) * BLOCK_C
    channel = first_channel + tl.arange(0, BLOCK_C)
    end = BLOCK_R if ONE else rows
    if ONE:
        at, _, value1, kept1, value2, kept2 = _all_entering(
            x1, x2, add, mask, draw1, draw2, keyed, 0, first_channel,
            C, BLOCK_R, BLOCK_C, MASK, PAIR, DROP1, DROP2, ADD1, ADD2,
        )  # fmt: skip
        slope = _arriving(grad, last_draw, keyed, at, AFTER)
    along1 = tl.zeros([BLOCK_R, BLOCK_C], tl.float32)
    total1, along2, total2 = along1, along1, along1
    for start in range(0, end, BLOCK_R):
        if not ONE:
            at, _, value1, _, value2, _ = _all_entering(
                x1, x2, add, mask, draw1, draw2, keyed, start, first_channel,
                C, BLOCK_R, BLOCK_C, MASK, PAIR, DROP1, DROP2, ADD1, ADD2,
            )  # fmt: skip
            slope = _arriving(grad, last_draw, keyed, at, AFTER)
        change, normed = _slopes(slope, value1, weight1, bias1, stats, at, C, RELU)
        along1 += change * normed
        total1 += change
        if PAIR:
            change, normed = _slopes(slope, value2, weight2, bias2, stats + 3 * C, at, C, RELU)
            along2 += change * normed
            total2 += change
    along1, total1 = _store_slopes(along1, total1, dweight1, dbias1, channel, C)
    if PAIR:
        along2, total2 = _store_slopes(along2, total2, dweight2, dbias2, channel, C)
    for start in range(0, end, BLOCK_R):
        if not ONE:
            at, _, value1, kept1, value2, kept2 = _all_entering(
                x1, x2, add, mask, draw1, draw2, keyed, start, first_channel,
                C, BLOCK_R, BLOCK_C, MASK, PAIR, DROP1, DROP2, ADD1, ADD2,
            )  # fmt: skip
            slope = _arriving(grad, last_draw, keyed, at, AFTER)
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
