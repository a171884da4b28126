"""The Triton kernel of the last sum of all gradients."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def sum_pieces_kernel(
    pieces, table, grad, units, UNIT: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """grad = its pieces [+ grad], in order; ``table`` [5, units]: see :mod:`.pieces`."""
    number = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    unit, lane = number // UNIT, number % UNIT
    inside = unit < units
    start = tl.load(table + unit, inside, other=0).to(tl.int64) + lane
    row = tl.load(table + units + unit, inside, other=0)
    count = tl.load(table + 2 * units + unit, inside, other=0)
    used = lane < tl.load(table + 3 * units + unit, inside, other=0)
    kept = tl.load(table + 4 * units + unit, inside, other=0) != 0
    total = tl.load(grad + number, kept, other=0.0)
    for first in range(0, tl.max(count), 4):
        for i in tl.static_range(4):  # loads that wait together
            there = used & (first + i < count)
            total += tl.load(pieces + start + (first + i) * row, there, other=0.0)
    tl.store(grad + number, total, inside)
