"""Random numbers that are the same on every machine and with every library version.

A *stream* is named by a 64-bit key; its i-th output is SplitMix64's, found directly from i, so that
streams need no state and can be read in any order and from any thread. Arrays broadcast.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Bits = NDArray[np.uint64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31, _S32 = (np.uint64(shift) for shift in (27, 30, 31, 32))
_ONE = np.uint64(1)


def draw(key: Bits, index: Bits) -> Bits:
    """The ``index``-th 64 random bits of the stream ``key``; also the way to name a sub-stream.

    Plain arithmetic on ``uint64`` arrays, so that numba can compile it for scalars as it stands.
    """
    z: Bits = key + (index + _ONE) * _GOLDEN
    z = (z ^ (z >> _S30)) * _FIRST
    z = (z ^ (z >> _S27)) * _SECOND
    z = z ^ (z >> _S31)
    return z


def below(bits: Bits, limit: Bits) -> Bits:
    """Turn random bits into integers uniform on 0..limit-1 (limit < 2³², bias under limit/2³²)."""
    return ((bits >> _S32) * limit) >> _S32


def unsigned(values: ArrayLike) -> Bits:
    """``values`` as an array of unsigned 64-bit integers (negative ones wrap round)."""
    return np.asarray(values).astype(np.uint64)


def stream(*parts: int) -> Bits:
    """The key of the stream that the integers ``parts`` name, shape [1]."""
    key = np.zeros(1, np.uint64)
    for part in parts:
        key = draw(key, unsigned([part]))
    return key


def permutation(size: int, *parts: int) -> NDArray[np.int64]:
    """A random order of 0..size-1, drawn from the stream that ``parts`` name.

    >>> permutation(5, 0).tolist()
    [2, 0, 3, 1, 4]
    """
    bits = draw(stream(*parts), np.arange(size, dtype=np.uint64))
    return np.argsort(bits, kind="stable").astype(np.int64)
