"""Sums over pairs by their distance, for a program of one warp: a column of sums for each lane.

A table [32, 32] in shared memory has a row for each distance below 30, for the bytes 254 and 255,
and a column for each lane, which adds its own pairs to its own column: no lane waits for another,
lanes never meet in a bank, and the order of additions is always the same. At the end lane l sums
row l, each lane beginning at another column. Pairs that are farther are few: a loop runs over their
distances.

Tensors are laid out as in :mod:`.lanes`: so rows 0 to 29 are entries 0 to 29 of a table [256], in
register 0, and row 30 and 31 its entries 254 and 255, in register 7.
"""

# mypy: ignore-errors
# Triton drops the branch of a constant ``if`` that is not taken, so both are written out:
# ruff: noqa: RET505
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.attention.kernels.lanes import SIZE
from gradformer.attention.kernels.pairs import tally

NEAR = tl.constexpr(30)
RESERVE = tl.constexpr("{ .shared .align 128 .b8 sums[4096]; mov.u32 $0, sums; }")


def _clear_text() -> str:
    """All 32 rows of the column at $8 become zero."""
    lines = [f"st.shared.f32 [$8+{128 * row}], 0f00000000;" for row in range(32)]
    return " ".join(lines + [f"mov.u32 ${r}, 0;" for r in range(8)])


def _add_text() -> str:
    """Row $16-23 of the column at $8 gains $24-31, one after another: rows may be equal."""
    lines = []
    for r in range(8):
        lines.append(f"mad.lo.u32 a, ${16 + r}, 128, $8; ld.shared.f32 v, [a];")
        lines.append(f"add.f32 v, v, ${24 + r}; st.shared.f32 [a], v; mov.u32 ${r}, 0;")
    return "{ .reg .u32 a; .reg .f32 v; " + " ".join(lines) + " }"


def _total_text() -> str:
    """$0-7 = the sum of lane l's row of the table, whose column l begins at $8, in its register."""
    lines = ["bar.warp.sync -1; mov.u32 l, %laneid; mad.lo.u32 a, l, 124, $8;"]
    lines += ["shl.b32 o, l, 2; mov.f32 s, 0f00000000;"]
    for _ in range(32):
        lines.append("add.u32 b, a, o; ld.shared.f32 v, [b]; add.f32 s, s, v;")
        lines.append("add.u32 o, o, 4; and.b32 o, o, 127;")
    lines.append(f"setp.lt.u32 p, l, {NEAR.value}; selp.f32 $0, s, 0f00000000, p;")
    lines += [f"mov.f32 ${r}, 0f00000000;" for r in range(1, 7)]
    lines.append("selp.f32 $7, 0f00000000, s, p;")
    return "{ .reg .u32 l, a, b, o; .reg .f32 s, v; .reg .pred p; " + " ".join(lines) + " }"


def _operands(result: str, *kinds: str) -> str:
    return ",".join([f"=&{result}"] * 8 + [kind for kind in kinds for _ in range(8)])


CLEAR, ADD, TOTAL = (tl.constexpr(text()) for text in (_clear_text, _add_text, _total_text))
CLEAR_OPERANDS, ADD_OPERANDS, TOTAL_OPERANDS = (
    tl.constexpr(_operands(*kinds)) for kinds in ("rr", "rrrf", "fr")
)


@triton.jit
def lane_columns(INTERPRET: tl.constexpr):
    """Addresses of each lane's column of sums, all zero."""
    if INTERPRET:
        return 0
    else:
        base = tl.inline_asm_elementwise(
            RESERVE, "=r,r", [0], dtype=tl.uint32, is_pure=False, pack=1
        )
        column = base + 4 * (tl.arange(0, SIZE) % 32).to(tl.uint32)
        tl.inline_asm_elementwise(
            CLEAR, CLEAR_OPERANDS, [column], dtype=tl.uint32, is_pure=False, pack=8
        )
        return column


@triton.jit
def add_by_distance(table, column, x, byte, INTERPRET: tl.constexpr):
    """Sums with x of each pair: in its lane's column, or in ``table`` [256] if it is far."""
    if INTERPRET:
        return tally(table, x, byte)
    else:
        near = (byte < NEAR) | (byte >= 254)
        row = tl.where(byte < NEAR, byte, byte - 224)
        tl.inline_asm_elementwise(
            ADD, ADD_OPERANDS,
            [column, tl.where(near, row, 0).to(tl.uint32), tl.where(near, x, 0.0)],
            dtype=tl.uint32, is_pure=False, pack=8,
        )  # fmt: skip
        slot, farthest = tl.arange(0, SIZE), tl.max(tl.where(byte < 254, byte, 0))
        for b in range(NEAR, farthest + 1):
            table += tl.where(slot == b, tl.sum(tl.where(byte == b, x, 0.0)), 0.0)
        return table


@triton.jit
def with_columns(table, column, INTERPRET: tl.constexpr):
    """``table`` with the sums of all lanes' columns."""
    if INTERPRET:
        return table
    else:
        return table + tl.inline_asm_elementwise(
            TOTAL, TOTAL_OPERANDS, [column], dtype=tl.float32, is_pure=False, pack=8
        )
