"""Where each of many things that are laid end to end begins."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def pointer(counts: ArrayLike) -> NDArray[np.int64]:
    """First row of each thing, and the end of the last, [things + 1], from the rows of each.

    >>> pointer([3, 0, 2])
    array([0, 3, 3, 5])
    """
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def pair_pointer(node_ptr: ArrayLike) -> NDArray[np.int64]:
    """First pair of each graph, [graphs + 1]: the running sum of n²."""
    return pointer(np.diff(node_ptr).astype(np.int64) ** 2)
