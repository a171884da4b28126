"""Matrices in the registers of one warp, as the tensor cores' own instruction takes them.

A tensor of 256 numbers, for a program of one warp, is eight registers of each lane: entry 32r + l
is register r of lane l. Here it is a piece of matrices. Write l = 4g + c and r = 4t + 2h + s:

    left factor [32, 8]   row 16t + 8h + g, column c + 4s
    product     [32, 8]   row 16t + 8h + g, column 2c + s
    right factor [8, 8]   row c + 4s, column g; the same for all t and h

Which column of a left factor meets which row of the right one is free to choose if both agree. So
a product can be a left factor as it is: its column 2c + s meets row 2c + s of the right factor,
which lies where row c + 4s would. Nothing moves between lanes.

Triton leaves these tensors in that layout as long as no load or store asks for another: so here all
memory is accessed in assembly. A test compiles the kernels and reads their layouts.
"""

# mypy: ignore-errors
# Triton drops the branch of a constant ``if`` that is not taken, so both are written out:
# ruff: noqa: RET505
from __future__ import annotations

import triton
import triton.language as tl

SIZE = tl.constexpr(256)


def _product_text(exact: bool) -> str:
    """$0-7 = $8-15 + left factor $16-23 · right factor $24-25, an instruction for each tile.

    If exact, with their rests $32-39 and $40-41, but without the product of these.
    """
    lines = []
    products = ((32, 24), (16, 40), (16, 24)) if exact else ((16, 24),)
    for number, (left, right) in enumerate(products):
        for tile in (0, 4):
            found, sums, factor = (
                ", ".join(f"${first + tile + k}" for k in order)
                for first, order in (
                    (0, (0, 1, 2, 3)),
                    (0 if number else 8, (0, 1, 2, 3)),
                    (left, (0, 2, 1, 3)),
                )
            )
            lines.append(
                "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                f"{{{found}}}, {{{factor}}}, {{${right}, ${right + 1}}}, {{{sums}}};"
            )
    return "\n".join(lines)


def _sides_text() -> str:
    """$0-7 = numbers at base $8 and places $16, $17 of the two sides."""
    lines = [f"mad.wide.u32 a, ${16 + s}, 4, $8; ld.global.nc.f32 ${s}, [a];" for s in (0, 1)]
    lines += [f"mov.f32 ${r}, ${r % 2};" for r in range(2, 8)]
    return "{ .reg .u64 a; " + " ".join(lines) + " }"


def _operands(*kinds: str) -> str:
    """Constraints of an assembly text whose operands are eight registers each."""
    return ",".join(["=&f"] * 8 + [kind for kind in kinds for _ in range(8)])


PRODUCT, EXACT_PRODUCT = (tl.constexpr(_product_text(exact)) for exact in (False, True))
PRODUCT_OPERANDS, EXACT_OPERANDS = (tl.constexpr(_operands(*x)) for x in ("frr", "frrrr"))
SIDES, SIDES_OPERANDS = (tl.constexpr(x) for x in (_sides_text(), _operands("l", "r")))
READ = tl.constexpr("{ .reg .u64 a; mad.wide.u32 a, $2, 4, $1; ld.global.nc.f32 $0, [a]; }")
READ_BYTE = tl.constexpr(
    "{ .reg .u64 a; cvt.u64.u32 a, $2; add.u64 a, a, $1; ld.global.nc.u8 $0, [a]; }"
)
WRITE = tl.constexpr(
    "{ .reg .u64 a; .reg .pred p; mad.wide.u32 a, $2, 4, $1; setp.ne.u32 p, $4, 0; "
    "@p st.global.f32 [a], $3; mov.u32 $0, 0; }"
)
NEXT_LANE, SECOND_LANE = (
    tl.constexpr(f"shfl.sync.bfly.b32 $0, $1, {step}, 31, -1;") for step in (1, 2)
)


# --- places ---------------------------------------------------------------------------------------


@triton.jit
def places():
    """Row 16t + 8h + g, and g, c and s, of each entry."""
    entry = tl.arange(0, SIZE)
    g, c, register = entry % 32 // 4, entry % 4, entry // 32
    return register // 2 * 8 + g, g, c, register % 2


# --- memory ---------------------------------------------------------------------------------------


@triton.jit
def _base(x):
    return tl.zeros([SIZE], tl.int64) + x.to(tl.int64)


@triton.jit
def read(x, at, INTERPRET: tl.constexpr):
    """Numbers x[at], where ``at`` is not negative."""
    if INTERPRET:
        return tl.load(x + at)
    else:
        return tl.inline_asm_elementwise(
            READ, "=f,l,r", [_base(x), at], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
def read_sides(x, at, INTERPRET: tl.constexpr):
    """Numbers x[at], where ``at`` depends on lane and side only."""
    if INTERPRET:
        return tl.load(x + at)
    else:
        return tl.inline_asm_elementwise(
            SIDES, SIDES_OPERANDS, [_base(x), at], dtype=tl.float32, is_pure=True, pack=8
        )


@triton.jit
def read_bytes(x, at, INTERPRET: tl.constexpr):
    if INTERPRET:
        return tl.load(x + at).to(tl.int32)
    else:
        return tl.inline_asm_elementwise(
            READ_BYTE, "=r,l,r", [_base(x), at], dtype=tl.int32, is_pure=True, pack=1
        )


@triton.jit
def write(x, at, value, inside, INTERPRET: tl.constexpr):
    """x[at] = value where ``inside``."""
    if INTERPRET:
        tl.store(x + at, value, inside)
    else:
        tl.inline_asm_elementwise(
            WRITE, "=r,l,r,f,r", [_base(x), at, value, inside.to(tl.int32)],
            dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip


# --- arithmetic -----------------------------------------------------------------------------------


@triton.jit
def exp2(x, INTERPRET: tl.constexpr):
    if INTERPRET:
        return tl.exp2(x)
    else:
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
def _partner(x, TEXT: tl.constexpr):
    return tl.inline_asm_elementwise(TEXT, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def over_rows(x, PEAK: tl.constexpr, INTERPRET: tl.constexpr):
    """Maximum or sum over each row, whose entries lie in the two sides of four lanes."""
    if INTERPRET:
        apart = tl.permute(tl.reshape(x, [4, 2, 8, 4]), (0, 2, 1, 3))
        rows = tl.reshape(apart, [4, 8, 8])
        found = tl.max(rows, 2, keep_dims=True) if PEAK else tl.sum(rows, 2, keep_dims=True)
        apart = tl.reshape(tl.broadcast_to(found, [4, 8, 8]), [4, 8, 2, 4])
        return tl.reshape(tl.permute(apart, (0, 2, 1, 3)), [SIZE])
    else:
        y = tl.inline_asm_elementwise(
            "mov.f32 $0, $3; mov.f32 $1, $2;", "=f,=f,f,f", [x],
            dtype=tl.float32, is_pure=True, pack=2,
        )  # fmt: skip
        x = tl.maximum(x, y) if PEAK else x + y
        y = _partner(x, NEXT_LANE)
        x = tl.maximum(x, y) if PEAK else x + y
        y = _partner(x, SECOND_LANE)
        return tl.maximum(x, y) if PEAK else x + y


@triton.jit
def _bits(factors):
    return factors[0].to(tl.int32, bitcast=True), factors[1].to(tl.int32, bitcast=True)


@triton.jit
def add_product(sums, a, b, EXACT: tl.constexpr, INTERPRET: tl.constexpr):
    """sums + a b, both in factors; the product of the two rests is beyond float32."""
    if INTERPRET:
        left = tl.permute(tl.reshape(a[0], [2, 2, 2, 8, 4]), (0, 1, 3, 2, 4))  # t, h, g, s, c
        right = tl.permute(tl.reshape(b[0], [2, 2, 2, 8, 4]), (2, 4, 3, 1, 0))  # s, c, g, h, t
        right, _ = tl.split(right)
        right, _ = tl.split(right)
        found = tl.dot(tl.reshape(left, [32, 8]), tl.reshape(right, [8, 8]))
        found = tl.permute(tl.reshape(found, [2, 2, 8, 4, 2]), (0, 1, 4, 2, 3))  # t, h, s, g, c
        return sums + tl.reshape(found, [SIZE])
    else:
        near, rest = _bits(a)
        b_near, b_rest = _bits(b)
        if EXACT:
            return tl.inline_asm_elementwise(
                EXACT_PRODUCT, EXACT_OPERANDS, [sums, near, b_near, rest, b_rest],
                dtype=tl.float32, is_pure=True, pack=8,
            )  # fmt: skip
        else:
            return tl.inline_asm_elementwise(
                PRODUCT, PRODUCT_OPERANDS, [sums, near, b_near],
                dtype=tl.float32, is_pure=True, pack=8,
            )  # fmt: skip
