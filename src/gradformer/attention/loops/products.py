"""The matrix products of the attention of one graph and head, eight rows of queries at a time.

A tile [8, width] has a row for each of eight queries and a column for each key, zeros behind the
last. All arrays are flat: a row of ``x`` is its ``d`` channels from ``first + i · step`` on. Of the
eight rows from ``i`` on those behind the ``last`` are the last again, once more.
"""

# The kernels' arguments are untyped.
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np

from gradformer.attention.loops.lanes import LANES, add, add_product, load, multiply, spread, store
from gradformer.structure.parallel import inlined

ROWS = np.uintp(8)
STRETCH = np.uintp(128)  # keys whose sum is taken for itself: in one of thousands digits are lost
_0, _1, _2, _3, _4, _5, _6, _7 = (np.uintp(n) for n in range(8))
_ZERO = np.float32(0.0)


@inlined
def _row(first, step, i, last):
    """Where row i begins."""
    return first + min(i, last) * step


@inlined
def _eight(first, step, i, last):
    """Where eight rows begin."""
    return (
        _row(first, step, i, last),
        _row(first, step, i + _1, last),
        _row(first, step, i + _2, last),
        _row(first, step, i + _3, last),
        _row(first, step, i + _4, last),
        _row(first, step, i + _5, last),
        _row(first, step, i + _6, last),
        _row(first, step, i + _7, last),
    )


@inlined
def with_columns(tile, x, first, step, i, last, columns, d, width):
    """tile[r, j] = Σ_c x_{i+r, c} · columns[c, j]; columns [d, width]."""
    x0, x1, x2, x3, x4, x5, x6, x7 = _eight(first, step, i, last)
    for j in range(_0, width, LANES):
        s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = spread(_ZERO)
        for c in range(d):
            column = load(columns, c * width + j)
            s0 = add_product(s0, spread(x[x0 + c]), column)
            s1 = add_product(s1, spread(x[x1 + c]), column)
            s2 = add_product(s2, spread(x[x2 + c]), column)
            s3 = add_product(s3, spread(x[x3 + c]), column)
            s4 = add_product(s4, spread(x[x4 + c]), column)
            s5 = add_product(s5, spread(x[x5 + c]), column)
            s6 = add_product(s6, spread(x[x6 + c]), column)
            s7 = add_product(s7, spread(x[x7 + c]), column)
        store(tile, j, s0)
        store(tile, width + j, s1)
        store(tile, _2 * width + j, s2)
        store(tile, _3 * width + j, s3)
        store(tile, _4 * width + j, s4)
        store(tile, _5 * width + j, s5)
        store(tile, _6 * width + j, s6)
        store(tile, _7 * width + j, s7)


@inlined
def weighted_sums(out, first, step, i, last, shares, tile, x, x_first, x_step, d, width):
    """out_{i+r} = shares[r] · Σ_j tile[r, j] · x_j, over all rows of x."""
    o0, o1, o2, o3, o4, o5, o6, o7 = _eight(first, step, i, last)
    for c in range(_0, d, LANES):
        s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = spread(_ZERO)
        for begin in range(_0, last + _1, STRETCH):
            p0 = p1 = p2 = p3 = p4 = p5 = p6 = p7 = spread(_ZERO)
            for j in range(begin, min(begin + STRETCH, last + _1)):
                row = load(x, x_first + j * x_step + c)
                p0 = add_product(p0, spread(tile[j]), row)
                p1 = add_product(p1, spread(tile[width + j]), row)
                p2 = add_product(p2, spread(tile[_2 * width + j]), row)
                p3 = add_product(p3, spread(tile[_3 * width + j]), row)
                p4 = add_product(p4, spread(tile[_4 * width + j]), row)
                p5 = add_product(p5, spread(tile[_5 * width + j]), row)
                p6 = add_product(p6, spread(tile[_6 * width + j]), row)
                p7 = add_product(p7, spread(tile[_7 * width + j]), row)
            s0, s1, s2, s3 = add(s0, p0), add(s1, p1), add(s2, p2), add(s3, p3)
            s4, s5, s6, s7 = add(s4, p4), add(s5, p5), add(s6, p6), add(s7, p7)
        # Backwards: of rows that lie in one place the first is the real one.
        store(out, o7 + c, multiply(spread(shares[_7]), s7))
        store(out, o6 + c, multiply(spread(shares[_6]), s6))
        store(out, o5 + c, multiply(spread(shares[_5]), s5))
        store(out, o4 + c, multiply(spread(shares[_4]), s4))
        store(out, o3 + c, multiply(spread(shares[_3]), s3))
        store(out, o2 + c, multiply(spread(shares[_2]), s2))
        store(out, o1 + c, multiply(spread(shares[_1]), s1))
        store(out, o0 + c, multiply(spread(shares[_0]), s0))


@inlined
def add_weighted(out, first, step, tile, x, x_first, x_step, i, last, d, width):
    """out_j += Σ_r tile[r, j] · x_{i+r}, for all rows of out."""
    x0, x1, x2, x3, x4, x5, x6, x7 = _eight(x_first, x_step, i, last)
    for c in range(_0, d, LANES):
        row0, row1, row2, row3 = load(x, x0 + c), load(x, x1 + c), load(x, x2 + c), load(x, x3 + c)
        row4, row5, row6, row7 = load(x, x4 + c), load(x, x5 + c), load(x, x6 + c), load(x, x7 + c)
        for j in range(last + _1):
            place = first + j * step + c
            near = add_product(load(out, place), spread(tile[j]), row0)
            far = multiply(spread(tile[width + j]), row1)
            near = add_product(near, spread(tile[_2 * width + j]), row2)
            far = add_product(far, spread(tile[_3 * width + j]), row3)
            near = add_product(near, spread(tile[_4 * width + j]), row4)
            far = add_product(far, spread(tile[_5 * width + j]), row5)
            near = add_product(near, spread(tile[_6 * width + j]), row6)
            far = add_product(far, spread(tile[_7 * width + j]), row7)
            store(out, place, add(near, far))
