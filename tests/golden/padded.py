"""Between padded reference arrays [graphs, rows, …] and our packed rows."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.golden.case import Transform


def packed_rows(sizes: list[int]) -> Transform:
    """[graphs, rows, c] → [Σ size, c]: the first ``size`` rows of each graph."""
    return lambda value: torch.cat([value[g, :n] for g, n in enumerate(sizes)])


def packed_pairs(sizes: list[int], channels_last: bool = False) -> Transform:
    """[graphs, c, rows, rows], or channels last, → [Σ size², c]."""

    def pack(value: Tensor) -> Tensor:
        value = value if channels_last else value.permute(0, 2, 3, 1)
        return torch.cat([value[g, :n, :n].flatten(0, 1) for g, n in enumerate(sizes)])

    return pack


def table_rows(first: int, rows: int) -> Transform:
    """Rows ``first`` … of an embedding; zeros where the reference's table ends before."""

    def cut(value: Tensor) -> Tensor:
        part = value[first : first + rows]
        return torch.cat([part, part.new_zeros(rows - len(part), *part.shape[1:])])

    return cut
