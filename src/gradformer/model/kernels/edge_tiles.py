"""What the Triton kernels over tiles of edges share.

A fixed number of programs share the tiles of real edges, each a run of them: what is needed for all
tiles, as the map, is read once, and what is summed over edges is one piece a program. Channels come
STEP at a time, so that no lanes idle where their number is a multiple of it. In a tile that real
edges do not fill, the last of them stands in for those behind it, so that reading needs no mask.

Helpers take mean, γ rstd and β of some channels together, as ``learned``. What is absent is None.

``passes`` [edges, blocks of channels] of int32 tells which channels drop(ReLU(γ ẑ + β)) lets
through, four in a byte, as a thread has them. Who makes e' writes it where there is a dropout, so
that it is drawn once.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.attention.kernels.draws import is_kept, mix

STEP = tl.constexpr(16)


@triton.jit
def share_of(piece, pieces, last, ROWS: tl.constexpr):
    """Which tiles of the ``last`` real edges a program takes: first, and the one behind the last.

    Shares differ by one tile at most.
    """
    tiles = tl.cdiv(last, ROWS)
    begin = piece * (tiles // pieces) + tl.minimum(piece, tiles % pieces)
    return begin, begin + tiles // pieces + (piece < tiles % pieces)


@triton.jit
def tile_rows(tile, end, last, ROWS: tl.constexpr):
    """First row of a tile, and how many there are to the last one before tile ``end``."""
    first = tl.cast(tile, tl.int64) * ROWS
    stop = tl.maximum(tl.minimum(tl.cast(end, tl.int64) * ROWS, last), 1)
    return first, (stop - first).to(tl.int32)


@triton.jit
def block_channels(block: tl.constexpr):
    """The channels of a block of STEP."""
    return tl.arange(0, STEP) + block * STEP


@triton.jit
def zero_sums(ROWS: tl.constexpr, BLOCKS: tl.constexpr):
    """Sums of so many blocks of channels."""
    sums = ()
    for _ in tl.static_range(BLOCKS):
        sums += (tl.zeros([ROWS, STEP], tl.float32),)
    return sums


@triton.jit
def load_rows(x, row, channel, X_ROW: tl.constexpr, C: tl.constexpr):
    """Some channels of some rows of x [·, C], as float32; rows in as many dimensions as given."""
    at = x + tl.expand_dims(row, -1) * X_ROW + channel[None, :]
    if (C + STEP - 1) // STEP * STEP == C:
        value = tl.load(at)
    else:
        value = tl.load(at, (channel < C)[None, :], other=0.0)
    return value.to(tl.float32)


@triton.jit
def store_rows(x, value, row, real, channel, C: tl.constexpr):
    """Some channels into the rows of x [·, C] that are real, [rows, 1]."""
    at = x + row[:, None] * C + channel[None, :]
    tl.store(at, value.to(x.dtype.element_ty), real & (channel < C)[None, :])


@triton.jit
def load_row(x, channel, C: tl.constexpr):
    """Some channels of x [C], as float32 [1, channels]."""
    if (C + STEP - 1) // STEP * STEP == C:
        value = tl.load(x + channel)
    else:
        value = tl.load(x + channel, channel < C, other=0.0)
    return value.to(tl.float32)[None, :]


@triton.jit
def sigmoid(x):
    """σ(x) = 1 / (1 + 2^(−x log₂ e)); on a GPU a square of inverse roots takes half of the time."""
    root = tl.rsqrt(1.0 + tl.exp2(x * -1.4426950408889634))
    return root * root


@triton.jit
def learned_of(gamma, beta, stats, channel, C: tl.constexpr):
    factor = load_row(gamma, channel, C) * load_row(stats + C, channel, C)
    return load_row(stats, channel, C), factor, load_row(beta, channel, C)


@triton.jit
def edge_keys(site, graph_id, index, row):
    """What keys the draws of some rows, as ``keys_of_rows`` has it; ``site`` keys those of all."""
    key = mix(site + tl.load(graph_id + row).to(tl.uint32))
    return tl.expand_dims(mix(key + tl.load(index + row).to(tl.uint32)), -1)


@triton.jit
def updated(given, value, channel, learned, keys, scale, threshold):
    """e' = e + drop(ReLU(γ ẑ + β)) of e and u, rows drawn by ``keys``; and what goes through."""
    mean, factor, beta = learned
    value = (value - mean) * factor + beta
    passes = ~(value <= 0.0)  # NaN stays NaN
    if keys is not None:
        passes &= is_kept(keys, channel, threshold)
        value *= scale
    return given + tl.where(passes, value, 0.0), passes


@triton.jit
def words_at(passes, row, block, C: tl.constexpr):
    """Where the words of some rows lie that tell of a block of channels."""
    return passes + row * ((C + STEP - 1) // STEP) + block


@triton.jit
def store_passed(passed, words):
    """[rows, STEP] into a word of each row, byte by byte: no thread asks another for its bits."""
    bits = tl.where(passed, 1 << (tl.arange(0, STEP) % 4)[None, :], 0)
    bits = tl.sum(tl.reshape(bits, [bits.shape[0], STEP // 4, 4]), 2)
    at = words.to(tl.pointer_type(tl.int8))[:, None] + tl.arange(0, 4)[None, :]
    tl.store(tl.multiple_of(at, [1, 1]), bits.to(tl.int8))


@triton.jit
def passes_through(apart, channel, learned, word):
    """Whether e' lets some channels through; ``apart`` is u − mean, ``word`` what was written."""
    if word is not None:
        passed = (word & (1 << (channel % STEP // 4 * 8 + channel % 4))) != 0
    else:
        passed = apart * learned[1] + learned[2] > 0.0
    return passed


@triton.jit
def rounded_as(value, like):
    """As float32, but rounded as ``like`` is: one product of tf32 is exact for short floats."""
    return value.to(like.dtype.element_ty).to(tl.float32)
