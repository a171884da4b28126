"""What the kernels share: distance bytes of a tile of pairs, lookups in tables, decay gradients.

There are two ways from pairs to table entries. The plain one loads bytes and gathers entries; it
works everywhere. The wide one is for tensor-core tiles on Hopper. There a thread with lane number
l holds, for rows r = ⌊l/4⌋ and r + 8 of its warp's 16, the columns

    x = 8i + 2c + e        (c = l mod 4;  i = 0..7 and e = 0, 1 for every 64 columns),

two by two all over the row. But which key is column x is free to choose, since softmax and products
sum over all of them. So ``order`` makes column x the key 16c + 2i + e: over i and e, the 16 columns
of a thread are 16 keys in a row, and their distances 16 bytes in a row of memory. A thread fetches
them at once, and looks entries up in a copy of the tables in shared memory, both in PTX: one
instruction for the address of an entry and one to load it.

Its register 4i + 2·[row r + 8] + e of every 32 is that pair: Triton hands registers to assembly in
this order, but does not promise to. ``availability.known_registers`` says where it was proven, and
a test compiles the kernels and reads their layouts; elsewhere the plain way is taken.
"""

# mypy: ignore-errors
# Triton drops the branch of a constant ``if`` that is not taken, so both are written out:
# ruff: noqa: RET505
from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)

# Tables in shared memory, 1 KiB each: mul, add, and how they change with up to two parameters.
MUL, ADD, MUL_ONE, MUL_TWO, ADD_ONE, ADD_TWO = (tl.constexpr(place) for place in range(6))
TABLES = tl.constexpr(6 * 1024)

PACK = tl.constexpr(32)  # registers of a thread in one group of 64 columns: 2 rows × 16 columns


def _operands(first: str, *rest: str) -> str:
    """Constraints of an assembly text whose every operand is a pack of registers."""
    return ",".join([f"={first}"] * 32 + [kind for kind in rest for _ in range(32)])


def _words_text(row: int, clamp: bool) -> str:
    """16 bytes from address $32 + 2·row as words $0 + 4·row…, wherever they begin.

    The words they lie in are loaded, and neighbours are shifted together. No word is read that
    holds none of the bytes, nor, with ``clamp``, any that begins behind address $64.
    """
    address = f"${32 + 2 * row}"
    lines = [
        f"cvt.u32.u64 s, {address}; shl.b32 s, s, 3; and.b32 s, s, 24;",
        f"and.b64 a, {address}, -4; add.u64 b, {address}, 15; and.b64 b, b, -4;",
    ]
    for k in range(5):
        lines.append(f"add.u64 c, a, {4 * k};" if k < 4 else "mov.u64 c, b;")
        lines += ["min.u64 c, c, $64;"] if clamp else []
        lines.append(f"ld.global.nc.u32 w{k}, [c];")
    lines += [f"shf.r.wrap.b32 ${4 * row + k}, w{k}, w{k + 1}, s;" for k in range(4)]
    return "\n".join(lines)


def _fetch_text(clamp: bool) -> str:
    """Words $0-$3 of row r and $4-$7 of row r + 8, whose addresses are $32 and $34."""
    slow = _words_text(0, clamp) + _words_text(1, clamp)
    head = ".reg .u64 a, b, c; .reg .u32 s, w0, w1, w2, w3, w4; .reg .pred straddle;"
    if clamp:
        return f"{{ {head} {slow} }}"
    return f"""{{ {head}
        or.b64 a, $32, $34;
        and.b64 a, a, 15;
        setp.ne.u64 straddle, a, 0;
        @straddle bra SLOW;
        ld.global.nc.v4.u32 {{$0, $1, $2, $3}}, [$32];
        ld.global.nc.v4.u32 {{$4, $5, $6, $7}}, [$34];
        bra.uni DONE;
        SLOW: {slow}
        DONE:
    }}"""


def _bytes_text(weight: int, then: str) -> str:
    """``then`` for each register, with t = weight · its byte + $64.

    Byte 2i + e of a row's words belongs to column 8i + 2c + e; the bits of a register's number are
    e, row, i.
    """
    lines = []
    for register in range(32):
        e, row, i = register & 1, register >> 1 & 1, register >> 2
        word, place = 32 + 4 * row + i // 2, 2 * (i % 2) + e
        lines.append(f"dp4a.u32.u32 t, ${word}, {weight << 8 * place}, $64;")
        lines.append(then.format(register))
    return "{ .reg .u32 t; " + "\n".join(lines) + " }"


FETCH, FETCH_CLAMPED = (tl.constexpr(_fetch_text(clamp)) for clamp in (False, True))
FETCH_OPERANDS = tl.constexpr(_operands("r", "l", "l"))
BYTES = tl.constexpr(_bytes_text(1, "mov.u32 ${}, t;"))
BYTES_OPERANDS = tl.constexpr(_operands("r", "r", "r"))
FIND_MUL, FIND_ADD, FIND_MUL_ONE, FIND_MUL_TWO, FIND_ADD_ONE, FIND_ADD_TWO = (
    tl.constexpr(_bytes_text(4, f"ld.shared.f32 ${{}}, [t+{1024 * place}];")) for place in range(6)
)
FIND_OPERANDS = tl.constexpr(_operands("f", "r", "r"))
# Static memory. Triton asks the driver for more than 48 KiB only if its own, dynamic part needs it,
# so a kernel's dynamic part must not lie between 48 KiB less this and 48 KiB.
RESERVE = tl.constexpr(f"{{ .shared .align 1024 .b8 tables[{TABLES.value}]; mov.u32 $0, tables; }}")


@triton.jit
def order(SIZE: tl.constexpr, WIDE: tl.constexpr):
    """Which of SIZE keys each column of a tile is."""
    x = tl.arange(0, SIZE)
    if WIDE:
        return (x & -64) + ((x >> 1) & 3) * 16 + ((x >> 3) & 7) * 2 + (x & 1)
    else:
        return x


@triton.jit
def fetch(distance, row_start, cols, last, TAIL: tl.constexpr, WIDE: tl.constexpr):
    """Bytes at ``row_start`` [rows, 1] + ``cols`` [columns], for ``lookup`` and ``bytes_of``.

    In a TAIL they may lie behind ``last``, the offset of the last byte there is: then anything.
    """
    offset = row_start + cols[None, :]
    if WIDE:
        address = (distance + offset).to(tl.int64)
        end = tl.zeros(offset.shape, tl.int64) + ((distance + last).to(tl.int64) & -4)
        return tl.inline_asm_elementwise(
            FETCH_CLAMPED if TAIL else FETCH, FETCH_OPERANDS, [address, end],
            dtype=tl.uint32, is_pure=True, pack=PACK,
        )  # fmt: skip
    elif TAIL:
        return tl.load(distance + offset, offset <= last, other=255).to(tl.uint32)
    else:
        return tl.load(distance + offset).to(tl.uint32)


@triton.jit
def bytes_of(place, WIDE: tl.constexpr):
    """What ``fetch`` gave as one byte for each pair."""
    if WIDE:
        zero = tl.zeros(place.shape, tl.uint32)
        return tl.inline_asm_elementwise(
            BYTES, BYTES_OPERANDS, [place, zero], dtype=tl.uint32, is_pure=True, pack=PACK
        )
    else:
        return place


@triton.jit
def reserve_tables(WIDE: tl.constexpr):
    """Address of room for the tables in shared memory."""
    if WIDE:
        return tl.inline_asm_elementwise(
            RESERVE, "=r,r", [0], dtype=tl.uint32, is_pure=False, pack=1
        )
    else:
        return 0


@triton.jit
def stage(shared, table, factor, PLACE: tl.constexpr, WIDE: tl.constexpr):
    """Copy a table [256], times ``factor``, to its place in shared memory; then set a barrier."""
    if WIDE:
        slot = tl.arange(0, 256)
        tl.inline_asm_elementwise(
            "st.shared.f32 [$1], $2; mov.u32 $0, 0;", "=r,r,f",
            [shared + 1024 * PLACE + 4 * slot.to(tl.uint32), tl.load(table + slot) * factor],
            dtype=tl.uint32, is_pure=False, pack=1,
        )  # fmt: skip


@triton.jit
def lookup(table, factor, shared, place, FIND: tl.constexpr, WIDE: tl.constexpr):
    """Entries of a table, times ``factor``, for what ``fetch`` gave; FIND reads the staged copy."""
    if WIDE:
        base = tl.zeros(place.shape, tl.uint32) + shared
        return tl.inline_asm_elementwise(
            FIND, FIND_OPERANDS, [place, base], dtype=tl.float32, is_pure=True, pack=PACK
        )
    else:
        return tl.load(table + place) * factor


@triton.jit
def tally(table, x, byte):
    """table[b] += Σ x over the pairs of byte b, for all b up to the farthest, for 254 and 255."""
    slot = tl.arange(0, 256)
    byte = byte.to(tl.int32)
    farthest = tl.max(tl.where(byte < 254, byte, 0))
    for b in range(0, farthest + 3):
        value = tl.where(b > farthest, b - farthest + 253, b)
        table += tl.where(slot == value, tl.sum(tl.where(byte == value, x, 0.0)), 0.0)
    return table


@triton.jit
def store_shares(partial, program, programs, head, table, first, second, COUNT: tl.constexpr):
    """This program's share of a decay gradient: a table, or the sums of one or two vectors.

    partial is [heads, slots, programs], so that the sum over programs runs along memory.
    """
    if COUNT == 256:
        slot = head * 256 + tl.arange(0, 256)
        tl.store(partial + slot.to(tl.int64) * programs + program, table)
    elif COUNT > 0:
        place = partial + head * 2 * programs + program
        tl.store(place, tl.sum(first))
        tl.store(place + programs, tl.sum(second))
