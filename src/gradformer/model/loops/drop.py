"""Dropout and stochastic depth as one loop for a CPU.

The plain versions are :func:`~gradformer.attention.draws.drop` and
:func:`~gradformer.attention.draws.drop_rows`: the results are the same, bit for bit. They make each
number of the hash of all entries before the next, and the pass over a tensor that each of them
takes is most of what dropout costs.
"""

# The kernel's arguments are untyped.
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from gradformer.attention.draws import STRIDE, threshold
from gradformer.attention.loops.attention import index, leading, mix
from gradformer.attention.loops.running import in_slices
from gradformer.structure.parallel import vectorised

if TYPE_CHECKING:
    from gradformer.model.parts import Draw

_STRIDE = np.uint32(STRIDE % (1 << 32))
_0, _1, _2 = (np.uintp(n) for n in range(3))
_ONE, _ZERO = np.float32(1.0), np.float32(0.0)


@vectorised
def drop_kernel(first, last, seed, graph_id, row, whole_graphs, least, kept_share, x, y):
    """y [rows, c] of x; graph_id and row [rows], seed (trial seed, step, site) [3]."""
    site = mix(mix(mix(np.uint32(seed[_0])) + np.uint32(seed[_1])) + np.uint32(seed[_2]))
    for i in range(index(first), index(last)):
        graph = mix(site + np.uint32(graph_id[i]))
        key = mix(graph if whole_graphs else graph + np.uint32(row[i]))
        for j in range(index(x.shape[1])):
            column = np.uint32(0) if whole_graphs else np.uint32(j) * _STRIDE
            keep = _ONE if np.int32(leading(key + column)) >= least else _ZERO
            y[i, j] = x[i, j] * keep / kept_share


def looped_drop(x: Tensor, draw: Draw) -> Tensor:
    """``draw(x)`` of x float32 [rows, c], without its derivative."""
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    least, kept_share = np.int32(threshold(draw.p)), np.float32(1.0 - draw.p)
    drawn = draw.seed, draw.rows.graph_id, draw.rows.index, draw.whole_graphs
    cost = np.full(len(x), x.shape[1])
    in_slices(drop_kernel, cost, *drawn, least, kept_share, x, y)
    return y
