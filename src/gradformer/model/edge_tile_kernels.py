"""What the Triton kernels over tiles of edges share.

A fixed number of programs share the tiles of real edges, each a run of them: what is needed for all
tiles, as the map, is read once, and what is summed over edges is one piece a program. Channels come
STEP at a time, so that no lanes idle where their number is a multiple of it. In a tile that real
edges do not fill, the last of them stands in for those behind it, so that reading needs no mask.

Helpers take some of their arguments together: ``learned`` (mean, γ rstd, β of some channels) and a
``draw`` (the keys of the rows, factor, threshold).
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.attention.draw_kernels import _keep, _mix
from gradformer.attention.product_kernels import factors

STEP = tl.constexpr(16)


@triton.jit
def _share(piece, pieces, last, ROWS: tl.constexpr):
    """Which tiles of the ``last`` real edges a program takes: first, and the one behind the last.

    Shares differ by one tile at most.
    """
    tiles = tl.cdiv(last, ROWS)
    begin = piece * (tiles // pieces) + tl.minimum(piece, tiles % pieces)
    return begin, begin + tiles // pieces + (piece < tiles % pieces)


@triton.jit
def _channels(block: tl.constexpr):
    """The channels of a block of STEP."""
    return tl.arange(0, STEP) + block * STEP


@triton.jit
def _rows(x, row, channel, X_ROW: tl.constexpr, C: tl.constexpr):
    """Some channels of some rows of x [·, C], as float32; rows in as many dimensions as given."""
    at = x + tl.expand_dims(row, -1) * X_ROW + channel[None, :]
    if (C + STEP - 1) // STEP * STEP == C:
        value = tl.load(at)
    else:
        value = tl.load(at, (channel < C)[None, :], other=0.0)
    return value.to(tl.float32)


@triton.jit
def _row(x, channel, C: tl.constexpr):
    """Some channels of x [C], as float32 [1, channels]."""
    if (C + STEP - 1) // STEP * STEP == C:
        value = tl.load(x + channel)
    else:
        value = tl.load(x + channel, channel < C, other=0.0)
    return value.to(tl.float32)[None, :]


@triton.jit
def _sigmoid(x):
    """σ(x) = 1 / (1 + 2^(−x log₂ e)); on a GPU a square of inverse roots takes half of the time."""
    root = tl.rsqrt(1.0 + tl.exp2(x * -1.4426950408889634))
    return root * root


@triton.jit
def _learned(gamma, beta, stats, channel, C: tl.constexpr):
    factor = _row(gamma, channel, C) * _row(stats + C, channel, C)
    return _row(stats, channel, C), factor, _row(beta, channel, C)


@triton.jit
def _keys(site, graph_id, index, row):
    """What keys the draws of some rows, as ``_row_keys`` has it; ``site`` keys those of all."""
    key = _mix(site + tl.load(graph_id + row).to(tl.uint32))
    return tl.expand_dims(_mix(key + tl.load(index + row).to(tl.uint32)), -1)


@triton.jit
def _dropped(value, channel, draw, DROP: tl.constexpr):
    """The value times a factor where the draw keeps it, otherwise 0."""
    if DROP:
        keys, scale, threshold = draw
        value = tl.where(_keep(keys, channel[None, :], threshold), value * scale, 0.0)
    return value


@triton.jit
def _updated(given, value, channel, learned, draw, DROP: tl.constexpr):
    """e' = e + drop(ReLU(γ ẑ + β)) of e and u."""
    mean, factor, beta = learned
    value = (value - mean) * factor + beta
    value = tl.where(value <= 0.0, 0.0, value)  # NaN stays NaN
    return given + _dropped(value, channel, draw, DROP)


@triton.jit
def _rounded(value, like):
    """As float32, but rounded as ``like`` is: one product of tf32 is exact for short floats."""
    return value.to(like.dtype.element_ty).to(tl.float32)


# --- maps of rows ---------------------------------------------------------------------------------


@triton.jit
def _map_blocks(
    matrix, like, IN: tl.constexpr, OUT: tl.constexpr, IN_STEP: tl.constexpr,
    OUT_STEP: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Blocks [STEP inputs, STEP outputs] of M_io = matrix[i·IN_STEP + o·OUT_STEP], those of the
    same inputs together, as factors of products.

    They are read as if no two numbers lay side by side: the compiler then stores inputs side by
    side, as the instruction that reads factors needs them.
    """
    blocks = ()
    for j in tl.static_range((IN + STEP - 1) // STEP):
        for k in tl.static_range((OUT + STEP - 1) // STEP):
            into, onto = _channels(j)[:, None], _channels(k)[None, :]
            at = tl.max_contiguous(matrix + into * IN_STEP + onto * OUT_STEP, [1, 1])
            block = tl.load(at, (into < IN) & (onto < OUT), other=0.0)
            blocks += (factors(_rounded(block, like), EXACT),)
    return blocks


@triton.jit
def _add_products(values, factor, blocks, which: tl.constexpr, first: tl.constexpr):
    """Values + products of a factor with one of the two of each block, from the ``first`` on."""
    found = ()
    for k in tl.static_range(len(values)):
        found += (tl.dot(factor, blocks[first + k][which], values[k], input_precision="tf32"),)
    return found


@triton.jit
def _add_mapped_block(values, x, blocks, like, j: tl.constexpr, EXACT: tl.constexpr):
    """Values [rows, STEP] of all outputs + those of the map of x [rows, STEP], its block ``j``."""
    OUT: tl.constexpr = len(values)
    near, rest = factors(_rounded(x, like), EXACT)
    if EXACT:  # output by output, so that no product waits for the one before
        values = _add_products(values, rest, blocks, 0, j * OUT)
        values = _add_products(values, near, blocks, 1, j * OUT)
    return _add_products(values, near, blocks, 0, j * OUT)


@triton.jit
def _add_mapped(
    values, x, row, blocks, like, IN: tl.constexpr, X_ROW: tl.constexpr, EXACT: tl.constexpr
):
    """Values [rows, STEP] of all outputs + those of the map of rows of x [·, IN]."""
    for j in tl.static_range((IN + STEP - 1) // STEP):
        given = _rows(x, row, _channels(j), X_ROW, IN)
        values = _add_mapped_block(values, given, blocks, like, j, EXACT)
    return values
