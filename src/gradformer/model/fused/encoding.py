r"""What enters the first layer, in one kernel each way.

.. math::
    y_r = \Bigl[\sum_c T_c[x_{rc}]\Bigr] \,\Vert\, \bigl[W p_r + b\bigr]
    \qquad\text{(or the two added), 0 in padded rows}

The plain form is :func:`gradformer.model.encoders.encode_nodes` and ``CategoryEncoder``. The
gradient of a table is a product with one-hot rows, made inside the kernel: a fixed order, no
atomics. Sign flips of eigenvectors take one kernel more.
"""

# The kernels' arguments are untyped.
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from gradformer.attention.kernels.draws import is_kept, keys_of_rows
from gradformer.attention.kernels.once import Gradients, once
from gradformer.attention.kernels.tiles import block_of, precision
from gradformer.attention.layout import Rows
from gradformer.model.fused.pieces import Claim, claim

FORWARD_ROWS, ROWS = 16, 32  # of a tile
VOCABULARY = 32  # entries of a table that one program sums up
LEAST_PIECE, MOST_PIECES = 256, 64  # rows that one program sums over; pieces at most


@triton.jit
def _gradient(g, real, row, column, rows, first, width, WIDTH: tl.constexpr):
    """Columns ``first`` … ``first + width − 1`` of the gradient; 0 in padded rows."""
    there = row < rows
    if real is not None:
        there = tl.load(real + row, there, other=0) != 0
    inside = there[:, None] & (column < width)[None, :]
    place = row.to(tl.int64)[:, None] * WIDTH + first + column[None, :]
    return tl.load(g + place, inside, other=0.0).to(tl.float32)


@triton.jit
def forward_kernel(
    x, tables, raw, weight, bias, real, y, rows,
    SIZES: tl.constexpr, N: tl.constexpr, K: tl.constexpr, M: tl.constexpr, FIRST: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK_W: tl.constexpr, BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Tables have N columns from 0 on, the linear map M from FIRST on; K is 0 without one."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK_W)
    there = row < rows
    if real is not None:
        there = tl.load(real + row, there, other=0) != 0
    acc = tl.zeros([ROWS, BLOCK_W], tl.float32)
    for c in tl.static_range(len(SIZES)):
        entry = tl.load(x + row * len(SIZES) + c, there, other=0).to(tl.int64)
        known = there & (entry >= 0) & (entry < SIZES[c])
        inside = known[:, None] & (column < N)[None, :]
        acc += tl.load(tables[c] + entry[:, None] * N + column[None, :], inside, other=0.0)
    if K > 0:
        step = tl.arange(0, BLOCK_K)
        inside = there[:, None] & (step < K)[None, :]
        given = tl.load(raw + row[:, None] * K + step[None, :], inside, other=0.0).to(tl.float32)
        own = column - FIRST
        mapped = (own >= 0) & (own < M)
        inside = (step < K)[:, None] & mapped[None, :]
        w = tl.load(weight + own[None, :] * K + step[:, None], inside, other=0.0)
        acc = tl.dot(given, w, acc, input_precision=PRECISION)
        acc += tl.load(bias + own, mapped, other=0.0)[None, :]
    place = row.to(tl.int64)[:, None] * WIDTH + column[None, :]
    acc = tl.where(there[:, None], acc, 0.0).to(y.dtype.element_ty)
    tl.store(y + place, acc, (row < rows)[:, None] & (column < WIDTH)[None, :])


@triton.jit
def _table_piece(
    g, x, real, out, c, first_row, last_row, entry, SIZE, COLUMNS: tl.constexpr, N: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr,
    VOCABULARY: tl.constexpr,
):  # fmt: skip
    """Σ of the gradient over the rows of each of VOCABULARY entries of a table."""
    entry += tl.arange(0, VOCABULARY)
    column = tl.arange(0, BLOCK_N)
    acc = tl.zeros([VOCABULARY, BLOCK_N], tl.float32)
    for start in range(first_row, last_row, ROWS):
        row = start + tl.arange(0, ROWS)
        tile = _gradient(g, real, row, column, last_row, 0, N, WIDTH)
        found = tl.load(x + row * COLUMNS + c, row < last_row, other=-1)
        member = (entry[:, None] == found[None, :]).to(tl.float32)
        acc = tl.dot(member, tile, acc, input_precision=PRECISION)
    inside = (entry < SIZE)[:, None] & (column < N)[None, :]
    tl.store(out + entry[:, None] * N + column[None, :], acc, inside)


@triton.jit
def _weight_piece(
    g, raw, real, out, bias_out, first_row, last_row,
    K: tl.constexpr, M: tl.constexpr, FIRST: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """dW [M, K] and db [M] of a piece of the rows."""
    column, step = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_K)
    acc = tl.zeros([BLOCK_M, BLOCK_K], tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    for start in range(first_row, last_row, ROWS):
        row = start + tl.arange(0, ROWS)
        tile = _gradient(g, real, row, column, last_row, FIRST, M, WIDTH)
        inside = (row < last_row)[:, None] & (step < K)[None, :]
        given = tl.load(raw + row[:, None] * K + step[None, :], inside, other=0.0).to(tl.float32)
        acc = tl.dot(tl.trans(tile), given, acc, input_precision=PRECISION)
        total += tl.sum(tile, 0)
    inside = (column < M)[:, None] & (step < K)[None, :]
    tl.store(out + column[:, None] * K + step[None, :], acc, inside)
    tl.store(bias_out + column, total, column < M)


@triton.jit
def _raw_tile(
    g, weight, real, out, first_row, rows, K: tl.constexpr, M: tl.constexpr, FIRST: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """dp = g W of ROWS rows."""
    column, step = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_K)
    row = first_row + tl.arange(0, ROWS)
    tile = _gradient(g, real, row, column, rows, FIRST, M, WIDTH)
    inside = (column < M)[:, None] & (step < K)[None, :]
    w = tl.load(weight + column[:, None] * K + step[None, :], inside, other=0.0)
    acc = tl.dot(tile, w, input_precision=PRECISION).to(out.dtype.element_ty)
    inside = (row < rows)[:, None] & (step < K)[None, :]
    tl.store(out + row[:, None] * K + step[None, :], acc, inside)


@triton.jit
def backward_kernel(
    g, x, raw, weight, real, outs, d_raw, rows, piece, pieces, STRIDES: tl.constexpr,
    SIZES: tl.constexpr, N: tl.constexpr, K: tl.constexpr, M: tl.constexpr, FIRST: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr, ROWS: tl.constexpr, VOCABULARY: tl.constexpr,
):  # fmt: skip
    """outs: the gradients of the tables, of W and of b, each of all pieces of the rows; and dp.

    Grid: for each table, tiles of its entries × pieces; then pieces (dW, db); then tiles of dp.
    """
    program = tl.program_id(0)
    number = program % pieces
    begin = number * piece
    end = tl.minimum(begin + piece, rows)
    tile = program // pieces
    before = 0
    for c in tl.static_range(len(SIZES)):
        tiles = (SIZES[c] + VOCABULARY - 1) // VOCABULARY
        if (tile >= before) & (tile < before + tiles):
            _table_piece(
                g, x, real, outs[c] + number * STRIDES[c], c, begin, end,
                (tile - before) * VOCABULARY, SIZES[c], len(SIZES), N, WIDTH, BLOCK_N,
                PRECISION, ROWS, VOCABULARY,
            )  # fmt: skip
        before += tiles
    if K > 0:
        if tile == before:
            _weight_piece(
                g, raw, real, outs[len(SIZES)] + number * STRIDES[len(SIZES)],
                outs[len(SIZES) + 1] + number * STRIDES[len(SIZES) + 1], begin, end,
                K, M, FIRST, WIDTH, BLOCK_M, BLOCK_K, PRECISION, ROWS,
            )  # fmt: skip
        elif tile > before:
            first = (program - (before + 1) * pieces) * ROWS
            _raw_tile(
                g, weight, real, d_raw, first, rows, K, M, FIRST, WIDTH, BLOCK_M, BLOCK_K,
                PRECISION, ROWS,
            )  # fmt: skip


class _Embed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, mask: Tensor | None, raw: Tensor | None, weight: Tensor | None,
        bias: Tensor | None, first: int, dtype: torch.dtype, piece: int, room: Claim | None,
        *tables: Tensor,
    ) -> Tensor:  # fmt: skip
        x = x.contiguous()
        raw = None if raw is None else raw.contiguous()
        rows, n = len(x), tables[0].shape[1]
        m, k = (0, 0) if weight is None else weight.shape
        width = max(n, first + m)
        y = torch.empty(rows, width, dtype=dtype, device=x.device)
        ctx.real = None if mask is None else mask.contiguous().view(torch.uint8)
        ctx.options = {
            "SIZES": tuple(len(table) for table in tables), "N": n, "K": k, "M": m, "FIRST": first,
            "WIDTH": width, "BLOCK_K": block_of(max(k, 1)), "PRECISION": precision(),
        }  # fmt: skip
        forward_kernel[(-(-rows // FORWARD_ROWS),)](
            x, tables, raw, weight, bias, ctx.real, y, rows,
            BLOCK_W=block_of(width), ROWS=FORWARD_ROWS, **ctx.options,
        )  # fmt: skip
        ctx.save_for_backward(x, raw, weight)
        ctx.piece, ctx.room = piece, room
        return y

    @staticmethod
    @once("encoder")
    def backward(ctx: Any, grad: Tensor) -> Gradients:  # type: ignore[override]
        x, raw, weight = ctx.saved_tensors
        options, grad, rows = ctx.options, grad.contiguous(), len(x)
        sizes, n, k, m = (options[name] for name in ("SIZES", "N", "K", "M"))
        pieces = -(-rows // ctx.piece)
        shapes = [(size, n) for size in sizes] + ([(m, k), (m,)] if m else [])
        parts = [math.prod(shape) for shape in shapes]
        sums = None
        if ctx.room is None:
            sums = torch.empty(pieces, sum(parts), dtype=torch.float32, device=x.device)
        outs = ctx.room.open(x.device) if sums is None else sums.split(parts, dim=1)
        d_raw = torch.empty_like(raw) if ctx.needs_input_grad[2] else None
        programs = (sum(-(-size // VOCABULARY) for size in sizes) + (m > 0)) * pieces
        programs += 0 if d_raw is None else -(-rows // ROWS)
        # Without d_raw no program writes it: grad stands in, so that there are not two kernels.
        backward_kernel[(programs,)](
            grad, x, raw, weight, ctx.real, tuple(outs), grad if d_raw is None else d_raw,
            rows, ctx.piece, pieces, STRIDES=tuple(out.stride(0) for out in outs),
            BLOCK_N=block_of(n), BLOCK_M=block_of(max(m, 1)), ROWS=ROWS, VOCABULARY=VOCABULARY,
            **options,
        )  # fmt: skip
        found: list[Tensor | None] = [None for _ in range(len(sizes) + 2)]
        if sums is not None:
            for place, (part, shape) in enumerate(zip(sums.sum(0).split(parts), shapes)):
                found[place] = part.view(shape)
        *tables, d_weight, d_bias = found
        return None, None, d_raw, d_weight, d_bias, None, None, None, None, *tables


def embed(
    x: Tensor,
    tables: Sequence[Tensor],
    mask: Tensor | None,
    raw: Tensor | None = None,
    linear: nn.Linear | None = None,
    concat: bool = True,
    exact: bool = False,
) -> Tensor:
    """Sums of embeddings of x [rows, columns], beside (or plus) a linear map of raw [rows, k].

    ``mask`` [rows] bool tells real rows, None if all are; ``tables`` are [size, width] each. A
    category outside its table adds nothing: they are checked where data come in.
    """
    first = tables[0].shape[1] if concat and linear is not None else 0
    weight, bias = (None, None) if linear is None else (linear.weight, linear.bias)
    kind = x.device.type
    cast = torch.is_autocast_enabled(kind) and not exact
    dtype = torch.get_autocast_dtype(kind) if cast else tables[0].dtype
    piece = max(LEAST_PIECE, -(-len(x) // (MOST_PIECES * ROWS)) * ROWS)
    room = claim(-(-len(x) // piece), *tables, weight, bias)
    return _Embed.apply(x, mask, raw, weight, bias, first, dtype, piece, room, *tables)


@triton.jit
def flip_kernel(
    x, y, graph_id, seed, rows, C: tl.constexpr, BLOCK_C: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    """y = ±x, one sign for each graph and column."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK_C)
    graph = tl.load(graph_id + row, row < rows, other=0)
    zero = tl.zeros([ROWS], tl.int32)
    keys = keys_of_rows(seed, graph, zero, zero)
    inside = (row < rows)[:, None] & (column < C)[None, :]
    place = row.to(tl.int64)[:, None] * C + column[None, :]
    value = tl.load(x + place, inside, other=0.0)
    tl.store(y + place, tl.where(is_kept(keys[:, None], column[None, :], 0), value, -value), inside)


def fused_flip(vectors: Tensor, rows: Rows, seed: Tensor) -> Tensor:
    """See :class:`gradformer.model.encoders.SignFlip`; ``vectors`` are data without a gradient."""
    vectors = vectors.contiguous()
    y = torch.empty_like(vectors)
    size, columns = vectors.shape
    flip_kernel[(-(-size // ROWS),)](
        vectors, y, rows.graph_id, seed, size, C=columns, BLOCK_C=block_of(columns, 1), ROWS=ROWS
    )
    return y
