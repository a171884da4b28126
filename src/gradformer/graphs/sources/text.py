"""Tables of numbers in text files, parsed at the speed of the disk, with the bad row named."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import InputError, counted
from gradformer.structure.parallel import compiled

_FAULTS = (
    "",
    "holds something that is not a whole number",
    "does not have {columns}",
    "holds a number of more than 18 digits",
)


def integers(text: bytes, columns: int | None, where: str) -> NDArray[np.int64]:
    """Rows of ``columns`` whole numbers, separated by commas or blanks, as [rows, columns].

    If None, there are as many columns as in the first row, where an empty one between commas counts
    too. Empty lines are passed over; ``where`` names the source in errors.
    """
    if columns is None:
        first = text.lstrip().partition(b"\n")[0]
        columns = max(first.count(b",") + 1, len(first.replace(b",", b" ").split()))
    values = np.empty(len(text) // 2 + 1, np.int64)
    count, fault, line = _parse(np.frombuffer(text, np.uint8), columns, values)
    if fault:
        raise InputError(
            f"{where}, line {line}: " + _FAULTS[fault].format(columns=counted(columns, "column"))
        )
    return values[:count].reshape(-1, columns)


@compiled
def _parse(
    text: NDArray[np.uint8], columns: int, values: NDArray[np.int64]
) -> tuple[int, int, int]:
    """Fill ``values``; return (values, fault, line of the fault)."""
    count, line, in_row = 0, 1, 0
    number, digits, negative = 0, 0, False
    for position in range(len(text) + 1):
        c = text[position] if position < len(text) else 10  # the last line may lack its end
        if 48 <= c <= 57:
            digits += 1
            if digits > 18:
                return count, 3, line
            number = 10 * number + (c - 48)
            continue
        if c == 45 and not digits and not negative:
            negative = True
            continue
        if (negative and not digits) or not (c == 10 or c == 13 or c == 32 or c == 9 or c == 44):
            return count, 1, line
        if digits:
            if in_row == columns:
                return count, 2, line
            values[count] = -number if negative else number
            count, in_row = count + 1, in_row + 1
            number, digits, negative = 0, 0, False
        if c == 10:
            if in_row and in_row != columns:
                return count, 2, line
            line, in_row = line + 1, 0
    return count, 0, 0


def floats(text: bytes, where: str) -> NDArray[np.float32]:
    """Rows of decimal numbers separated by commas, as [rows, columns]."""
    rows: list[list[float]] = []
    for line, row in enumerate(text.decode("utf-8", "replace").splitlines(), 1):
        if not row.strip():
            continue
        try:
            rows.append([float(cell) for cell in row.split(",")])
        except ValueError:
            raise InputError(
                f"{where}, line {line}: holds something that is not a number"
            ) from None
        if len(rows[-1]) != len(rows[0]):
            raise InputError(
                f"{where}, line {line}: does not have {counted(len(rows[0]), 'column')}"
            )
    return np.array(rows, dtype=np.float32).reshape(len(rows), -1 if rows else 0)
