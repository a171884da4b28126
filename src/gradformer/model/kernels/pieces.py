"""The Triton kernel of the last sum of all gradients."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def sum_pieces_kernel(
    pieces, table, grad, units, UNIT: tl.constexpr, UNITS: tl.constexpr, DEPTH: tl.constexpr
):
    """grad = its pieces [+ grad], in order; ``table`` [5, units]: see ``fused.pieces``.

    A unit is read whole, so that loads are long; what is behind its numbers in use is left out.
    """
    unit = tl.program_id(0) * UNITS + tl.arange(0, UNITS)
    lane = tl.arange(0, UNIT)[None, :]
    inside = unit < units
    start = tl.load(table + unit, inside, other=0)
    row = tl.load(table + units + unit, inside, other=0)
    count = tl.load(table + 2 * units + unit, inside, other=0)
    used = tl.load(table + 3 * units + unit, inside, other=0)
    kept = tl.load(table + 4 * units + unit, inside, other=0) != 0
    number = unit[:, None] * UNIT + lane
    before = tl.load(grad + number, kept[:, None], other=0.0)
    total = before
    for first in range(0, tl.max(count), DEPTH):
        found = ()
        for i in tl.static_range(DEPTH):  # loads that wait together
            at = (start + (first + i) * row).to(tl.int64)[:, None] * UNIT + lane
            found += (tl.load(pieces + at, (first + i < count)[:, None], other=0.0),)
        for i in tl.static_range(DEPTH):
            total += found[i]
    tl.store(grad + number, tl.where(lane < used[:, None], total, before), inside[:, None])
