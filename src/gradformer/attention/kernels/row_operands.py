"""What the row kernels share: nodes as factors, products of all pairs, sums over the other nodes.

The row kernels take float32 heads of up to 16 channels, and programs of one warp. A program owns 32
nodes and walks over the others, eight at a time. The pairs of both are a matrix [32, 8] in pieces,
see :mod:`.lanes`: from products over weights to factors of the next products they stay in the
registers where they are. Operands are tuples, eight channels an item. Others behind the last node
are read as copies of it, and get no weight.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.attention.kernels.lanes import (
    SIZE,
    add_product,
    read,
    read_bytes,
    read_sides,
    write,
)
from gradformer.attention.kernels.products import factors

OWN = tl.constexpr(32)


@triton.jit
def own_rows(x, row, node, c, s, n, D: tl.constexpr, INTERPRET: tl.constexpr):
    """Own nodes as rows of left factors: x [n, D] at ``node``, rows ``row`` apart, 0 outside."""
    found = ()
    for block in tl.static_range(0, D, 8):
        channel = block + c + 4 * s
        inside = (node < n) & (channel < D)
        value = read(x, tl.where(inside, node * row + channel, 0), INTERPRET)
        found += (tl.where(inside, value, 0.0),)
    return found


@triton.jit
def other_nodes(x, row, node, first, D: tl.constexpr, INTERPRET: tl.constexpr):
    """Other nodes as right factors: x [n, D] at ``node`` and, of each eight, channel ``first``.

    Channels behind the last are copies of it: own nodes are 0 there, and sums are not kept.
    """
    found = ()
    for block in tl.static_range(0, D, 8):
        channel = tl.minimum(block + first, D - 1)
        found += (read_sides(x, node * row + channel, INTERPRET),)
    return found


@triton.jit
def split(x, factor, EXACT: tl.constexpr):
    """factor · x as :func:`factors`, block by block."""
    found = ()
    for block in tl.static_range(len(x)):
        found += (factors(x[block] * factor, EXACT),)
    return found


@triton.jit
def inner(x, y, channel, D: tl.constexpr):
    """x · y over the blocks, whose channels ``channel`` the lane holds."""
    total = tl.where(channel < D, x[0] * y[0], 0.0)
    for block in tl.static_range(1, len(x)):
        total += tl.where(8 * block + channel < D, x[block] * y[block], 0.0)
    return total


@triton.jit
def products(own, others, EXACT: tl.constexpr, INTERPRET: tl.constexpr):
    """Products of all pairs."""
    sums = tl.full([SIZE], 0.0, tl.float32)
    for block in tl.static_range(len(own)):
        sums = add_product(sums, own[block], others[block], EXACT, INTERPRET)
    return sums


@triton.jit
def no_sums(D: tl.constexpr):
    sums = ()
    for _ in tl.static_range(0, D, 8):
        sums += (tl.zeros([SIZE], tl.float32),)
    return sums


@triton.jit
def add_weighted(sums, weight, others, EXACT: tl.constexpr, INTERPRET: tl.constexpr):
    """sums + weight of each pair · the others' rows."""
    weight = factors(weight, EXACT)
    more = ()
    for block in tl.static_range(len(sums)):
        more += (add_product(sums[block], weight, others[block], EXACT, INTERPRET),)
    return more


@triton.jit
def store(x, row, node, c, s, n, sums, factor, D: tl.constexpr, INTERPRET: tl.constexpr):
    """x [n, D] at ``node`` = factor · sums."""
    for block in tl.static_range(len(sums)):
        channel = 8 * block + 2 * c + s
        inside = (node < n) & (channel < D)
        write(x, node * row + channel, sums[block] * factor, inside, INTERPRET)


@triton.jit
def bytes_of_pairs(distance, own, other, n, ALONG: tl.constexpr, INTERPRET: tl.constexpr):
    """Bytes of pairs; ALONG reads where the other is a row. Outside, those of the last own node."""
    own = tl.minimum(own, n - 1)
    return read_bytes(distance, other * n + own if ALONG else own * n + other, INTERPRET)
