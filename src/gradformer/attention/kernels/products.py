"""Products of tiles on tensor cores, as exact as float32 where float32 is asked for.

Tensor cores multiply float32 as tf32, with 11 bits. For PRECISION "tf32x3" each factor is the sum
of two such numbers, and of the four products that of the two small rests, beyond the precision of
float32, is left out.

A matrix of pairs that comes out of one product is the left factor of the next, summed over its
columns. Of every eight columns a thread gets 2c and 2c + 1 from a product and gives c and c + 4 to
one of tf32 (c = 0..3). Which column is which is free to choose, as long as the rows of the right
factor follow. So :func:`regroup` renames the columns such that a thread gives what it has, and
:func:`regrouped` says which rows go with them. Short floats need no new names, and float32 without
tensor cores ("ieee") gets none.
"""

# mypy: ignore-errors
# Triton drops the branch of a constant ``if`` that is not taken, so both are written out:
# ruff: noqa: RET505
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def nearest(x):
    """The number of tf32 that is nearest to x."""
    bits = (x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def factors(x, EXACT: tl.constexpr):
    """x as :func:`add_factors` takes it; x itself if one product of tf32 is enough."""
    near, rest = x, x
    if EXACT:
        near = nearest(x)
        rest = x - near
    return near, rest


@triton.jit
def add_factors(acc, a, b, EXACT: tl.constexpr):
    """acc + a b, of their factors: what several products share is halved once."""
    if EXACT:
        acc = tl.dot(a[1], b[0], acc, input_precision="tf32")
        acc = tl.dot(a[0], b[1], acc, input_precision="tf32")
    return tl.dot(a[0], b[0], acc, input_precision="tf32")


@triton.jit
def add_product(acc, a, b, PRECISION: tl.constexpr):
    """acc + a b."""
    if PRECISION == "tf32x3":
        return add_factors(acc, factors(a, True), factors(b, True), True)
    else:
        return tl.dot(a, b, acc, input_precision=PRECISION)


@triton.jit
def product(a, b, PRECISION: tl.constexpr):
    """a b."""
    return add_product(tl.zeros([a.shape[0], b.shape[1]], tl.float32), a, b, PRECISION)


@triton.jit
def regroup(x, PRECISION: tl.constexpr):
    """Pairs [rows, columns] with columns 2c + e of every eight renamed 4e + c."""
    if PRECISION == "tf32x3":
        apart = tl.reshape(x, [x.shape[0], x.shape[1] // 8, 4, 2])
        return tl.reshape(tl.trans(apart, 0, 1, 3, 2), [x.shape[0], x.shape[1]])
    else:
        return x


@triton.jit
def regrouped(SIZE: tl.constexpr, PRECISION: tl.constexpr):
    """Which of SIZE columns each column of a regrouped matrix was."""
    x = tl.arange(0, SIZE)
    if PRECISION == "tf32x3":
        return (x & -8) + (x & 3) * 2 + ((x >> 2) & 1)
    else:
        return x


@triton.jit
def regrouped_rows(rows, x, at, inside, PRECISION: tl.constexpr):
    """``rows``, already loaded in the order of columns, in that of regrouped ones: x[at]."""
    if PRECISION == "tf32x3":
        return tl.load(x + at, inside, other=0.0)
    else:
        return rows
