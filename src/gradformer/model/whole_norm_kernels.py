"""Batch norm in one kernel each way: a program owns a few channels of all rows."""

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
def _whole_half(
    value, weight, bias, running_mean, running_var, stats, count, at, momentum, eps,
    C: tl.constexpr, TRAINING: tl.constexpr,
):  # fmt: skip
    """One norm of a tile that holds all rows."""
    mean, square = tile_moments(value, count, at)
    mean, rstd = settled(
        mean, square, count, running_mean, running_var, stats, at[1], momentum, eps, True,
        C, TRAINING,
    )  # fmt: skip
    return affine(value, mean, rstd, weight, bias, at[1], C)


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
    at, real, value1, _, value2, _ = all_entering(
        x1, x2, add, mask, (seed1, scale1, threshold1), (seed2, scale2, threshold2), keyed,
        0, tl.program_id(0) * BLOCK_C,
        C, BLOCK_R, BLOCK_C, MASK, PAIR, DROP1, DROP2, ADD1, ADD2,
    )  # fmt: skip
    count = tl.sum(real.to(tl.float32))
    out = _whole_half(
        value1, weight1, bias1, mean1, var1, stats, count, at, momentum, eps, C, TRAINING
    )
    if PAIR:
        out += _whole_half(
            value2, weight2, bias2, mean2, var2, stats + 3 * C, count, at, momentum, eps,
            C, TRAINING,
        )  # fmt: skip
    store_result(out, plus, y, (seed3, scale3, threshold3), keyed, at, RELU, AFTER, PLUS)


@triton.jit
def _whole_half_back(
    slope, value, kept, factor, dx, weight, bias, dweight, dbias, stats, at,
    C: tl.constexpr, DROP: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    """Gradients of one norm of a tile that holds all rows; returns dz."""
    slope, normed = slopes_at(slope, value, weight, bias, stats, at, C, RELU)
    along, total = tl.sum(slope * normed, 0), tl.sum(slope, 0)
    tl.store(dweight + at[1], along, at[1] < C)
    tl.store(dbias + at[1], total, at[1] < C)
    return store_dx(slope, normed, along, total, weight, stats, dx, kept, factor, at, C, DROP)


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
    at, _, value1, kept1, value2, kept2 = all_entering(
        x1, x2, add, mask, (seed1, scale1, threshold1), (seed2, scale2, threshold2), keyed,
        0, tl.program_id(0) * BLOCK_C,
        C, BLOCK_R, BLOCK_C, MASK, PAIR, DROP1, DROP2, ADD1, ADD2,
    )  # fmt: skip
    slope = arriving_slope(grad, (seed3, scale3, threshold3), keyed, at, AFTER)
    dz = _whole_half_back(
        slope, value1, kept1, scale1, dx1, weight1, bias1, dweight1, dbias1, stats, at,
        C, DROP1, RELU,
    )  # fmt: skip
    if PAIR:
        dz2 = _whole_half_back(
            slope, value2, kept2, scale2, dx2, weight2, bias2, dweight2, dbias2, stats + 3 * C, at,
            C, DROP2, RELU,
        )  # fmt: skip
        if ADD2:
            dz += dz2
    if DADD:
        tl.store(dadd + at[2], dz.to(dadd.dtype.element_ty), at[3])
