"""What the kernels share: bytes of a tile of pairs, lookups in tables, decay gradients, padding.

Of what is absent (tables, bias, a seed of dropout) kernels are given None.

There are two ways from pairs to table entries. The plain one loads bytes and gathers entries; it
works everywhere. The wide one is for tensor-core tiles on Hopper. There a thread with lane number
l holds, for rows r = ⌊l/4⌋ and r + 8 of its warp's 16, the columns

    x = 8i + 2c + e        (c = l mod 4;  i = 0..7 and e = 0, 1 for every 64 columns),

two by two all over the row. But which key is column x is free to choose, since softmax and products
sum over all of them. So ``order`` makes column x the key 16c + 2i + e: over i and e, the 16 columns
of a thread are 16 keys in a row, and their distances 16 bytes in a row of memory. A thread fetches
them at once, and looks entries up in a copy of the tables in shared memory, both in PTX: one
instruction for the address of an entry and one to load it. WIDE is the number of columns that are
ordered so, 64 or, where a smaller tile wastes less, 32: then i = 0..3, and 8 bytes are fetched.

Its register 4i + 2·[row r + 8] + e of every 32 (16) is that pair: Triton hands registers to
assembly in this order, but does not promise to. ``availability.known_registers`` says where it was
proven, and a test compiles the kernels and reads their layouts; elsewhere the plain way is taken,
and WIDE is 0.
"""

# mypy: ignore-errors
# Triton drops the branch of a constant ``if`` that is not taken, so both are written out:
# ruff: noqa: RET505
from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)

# Tables in shared memory, 1 KiB each: mul, add, and how both change with up to two parameters.
MUL, ADD, MUL_JACOBIAN, ADD_JACOBIAN = (tl.constexpr(place) for place in (0, 1, 2, 4))
TABLES = tl.constexpr(6 * 1024)

# --- assembly; its operands are packs of registers, one for each pair of a thread, from $0 on -----


def _operands(wide: int, first: str, *rest: str) -> str:
    """Constraints of the result and the other operands."""
    pack = wide // 2
    return ",".join([f"={first}"] * pack + [kind for kind in rest for _ in range(pack)])


def _words_text(wide: int, row: int, clamp: bool) -> str:
    """The bytes of row r or (``row`` = 1) r + 8 as words of the result, wherever they begin.

    The words they lie in are loaded, and neighbours are shifted together. No word is read that
    holds none of the bytes, nor, with ``clamp``, any that begins behind the last operand.
    """
    pack, words = wide // 2, wide // 16
    address = f"${pack + 2 * row}"
    lines = [
        f"cvt.u32.u64 s, {address}; shl.b32 s, s, 3; and.b32 s, s, 24;",
        f"and.b64 a, {address}, -4; add.u64 b, {address}, {4 * words - 1}; and.b64 b, b, -4;",
    ]
    for k in range(words + 1):
        lines.append(f"add.u64 c, a, {4 * k};" if k < words else "mov.u64 c, b;")
        lines += [f"min.u64 c, c, ${2 * pack};"] if clamp else []
        lines.append(f"ld.global.nc.u32 w{k}, [c];")
    lines += [f"shf.r.wrap.b32 ${words * row + k}, w{k}, w{k + 1}, s;" for k in range(words)]
    return "\n".join(lines)


def _fetch_text(wide: int, clamp: bool) -> str:
    """The words of row r, then those of row r + 8."""
    pack, words = wide // 2, wide // 16
    slow = _words_text(wide, 0, clamp) + _words_text(wide, 1, clamp)
    head = ".reg .u64 a, b, c; .reg .u32 s, w0, w1, w2, w3, w4; .reg .pred straddle;"
    if clamp:
        return f"{{ {head} {slow} }}"
    one, two = (", ".join(f"${words * row + k}" for k in range(words)) for row in range(2))
    return f"""{{ {head}
        or.b64 a, ${pack}, ${pack + 2};
        and.b64 a, a, {4 * words - 1};
        setp.ne.u64 straddle, a, 0;
        @straddle bra SLOW;
        ld.global.nc.v{words}.u32 {{{one}}}, [${pack}];
        ld.global.nc.v{words}.u32 {{{two}}}, [${pack + 2}];
        bra.uni DONE;
        SLOW: {slow}
        DONE:
    }}"""


def _bytes_text(wide: int, weight: int, then: str) -> str:
    """``then`` for each register, with t = weight · its byte + the last operand.

    Byte 2i + e of a row's words belongs to column 8i + 2c + e; the bits of a register's number are
    e, row, i.
    """
    pack, words = wide // 2, wide // 16
    lines = []
    for register in range(pack):
        e, row, i = register & 1, register >> 1 & 1, register >> 2
        word, place = pack + words * row + i // 2, 2 * (i % 2) + e
        lines.append(f"dp4a.u32.u32 t, ${word}, {weight << 8 * place}, ${2 * pack};")
        lines.append(then.format(register))
    return "{ .reg .u32 t; " + "\n".join(lines) + " }"


def _find_texts(wide: int) -> list[str]:
    """Entries of the table in each place."""
    loads = [f"ld.shared.f32 ${{}}, [t+{1024 * place}];" for place in range(TABLES.value // 1024)]
    return [_bytes_text(wide, 4, load) for load in loads]


WIDTHS = (32, 64)
FETCH, FETCH_CLAMPED = (
    tl.constexpr({wide: _fetch_text(wide, clamp) for wide in WIDTHS}) for clamp in (False, True)
)
FETCH_OPERANDS = tl.constexpr({wide: _operands(wide, "r", "l", "l") for wide in WIDTHS})
BYTES = tl.constexpr({wide: _bytes_text(wide, 1, "mov.u32 ${}, t;") for wide in WIDTHS})
BYTES_OPERANDS = tl.constexpr({wide: _operands(wide, "r", "r", "r") for wide in WIDTHS})
FIND = tl.constexpr({wide: _find_texts(wide) for wide in WIDTHS})
FIND_OPERANDS = tl.constexpr({wide: _operands(wide, "f", "r", "r") for wide in WIDTHS})
# Static memory. Triton asks the driver for more than 48 KiB only if its own, dynamic part needs it,
# so a kernel's dynamic part must not lie between 48 KiB less this and 48 KiB.
RESERVE = tl.constexpr(f"{{ .shared .align 1024 .b8 tables[{TABLES.value}]; mov.u32 $0, tables; }}")


@triton.jit
def order(x, WIDE: tl.constexpr):
    """Which key each column x of a tile is."""
    if WIDE:
        i = (x & (WIDE - 1)) >> 3
        return (x & -WIDE) + ((x >> 1) & 3) * (WIDE // 4) + i * 2 + (x & 1)
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
            FETCH_CLAMPED[WIDE] if TAIL else FETCH[WIDE], FETCH_OPERANDS[WIDE], [address, end],
            dtype=tl.uint32, is_pure=True, pack=WIDE // 2,
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
            BYTES[WIDE], BYTES_OPERANDS[WIDE], [place, zero],
            dtype=tl.uint32, is_pure=True, pack=WIDE // 2,
        )  # fmt: skip
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
def lookup(table, factor, shared, place, PLACE: tl.constexpr, WIDE: tl.constexpr):
    """Entries of a table, times ``factor``, for what ``fetch`` gave; PLACE has its staged copy."""
    if WIDE:
        base = tl.zeros(place.shape, tl.uint32) + shared
        return tl.inline_asm_elementwise(
            FIND[WIDE][PLACE], FIND_OPERANDS[WIDE], [place, base],
            dtype=tl.float32, is_pure=True, pack=WIDE // 2,
        )  # fmt: skip
    else:
        return tl.load(table + place) * factor


@triton.jit
def stage_decay(mul, add, scale, WIDE: tl.constexpr):
    """Address of tables in shared memory, with those of :func:`decayed` staged."""
    shared = reserve_tables(WIDE)
    if mul is not None:
        stage(shared, mul, scale * LOG2E, MUL, WIDE)
    if add is not None:
        stage(shared, add, LOG2E, ADD, WIDE)
    return shared


@triton.jit
def decayed(raw, mul, add, scale, shared, place, WIDE: tl.constexpr):
    """raw · scale · mul[byte] + add[byte] in base 2, and the factor of raw."""
    factor = scale * LOG2E
    if mul is not None:
        factor = lookup(mul, scale * LOG2E, shared, place, MUL, WIDE)
    a = raw * factor
    if add is not None:
        a = a + lookup(add, LOG2E, shared, place, ADD, WIDE)
    return a, factor


# --- gradients of a decay: a table, or one number for each of one or two parameters ---------------


@triton.jit
def no_shares(SIZE: tl.constexpr):
    """Sums before the first pair: a table [256], and two vectors [SIZE] whose sums are numbers."""
    vector = tl.zeros([SIZE], tl.float32)
    return tl.zeros([256], tl.float32), vector, vector


@triton.jit
def tally(table, x, byte):
    """table[b] += Σ x over the pairs of byte b, for all b up to the farthest, for 254 and 255.

    Pairs with x = 0 add nothing. To leave them out ties ``byte`` to the registers of x: otherwise
    the compiler may make the bytes again in another layout, where ``bytes_of`` is wrong.
    """
    slot = tl.arange(0, 256)
    byte = byte.to(tl.int32)
    farthest = tl.max(tl.where((byte < 254) & (x != 0.0), byte, 0))
    for b in range(0, farthest + 3):
        value = tl.where(b > farthest, b - farthest + 253, b)
        table += tl.where(slot == value, tl.sum(tl.where(byte == value, x, 0.0)), 0.0)
    return table


@triton.jit
def store_shares(partial, program, programs, head, sums, factor, COUNT: tl.constexpr):
    """This program's share of a decay gradient: its ``sums``, times ``factor``.

    partial is [heads, slots, programs], so that the sum over programs runs along memory.
    """
    table, first, second = sums
    if COUNT == 256:
        slot = head * 256 + tl.arange(0, 256)
        tl.store(partial + slot.to(tl.int64) * programs + program, table * factor)
    elif COUNT > 0:
        place = partial + head * 2 * programs + program
        tl.store(place, tl.sum(first * factor))
        tl.store(place + programs, tl.sum(second * factor))


# --- where a program works, and padding -----------------------------------------------------------


@triton.jit
def whereabouts(node_ptr, heads, tiles):
    """Head, number among the head's programs, graph, its first node, and the tile of its ``tiles``.

    Behind the last graph is padding.
    """
    program = tl.program_id(0) // heads
    graph = program // tiles
    first = tl.load(node_ptr + graph).to(tl.int64)
    return tl.program_id(0) % heads, program, graph, first, program % tiles


@triton.jit
def zero_padding(x, row, start, nodes, D: tl.constexpr, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr):
    """Rows ``start``.. of x [nodes, D], whose rows lie ``row`` apart, become zero."""
    channel = tl.arange(0, BLOCK_D)
    for begin in range(start, nodes, BLOCK):
        rows = begin + tl.arange(0, BLOCK)
        inside = (rows < nodes)[:, None] & (channel < D)[None, :]
        at = rows.to(tl.int64)[:, None] * row + channel[None, :]
        tl.store(x + at, tl.zeros([BLOCK, BLOCK_D], x.dtype.element_ty), inside)
