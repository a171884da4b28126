"""Triton kernels of the map C of edge states inside the gated convolution, and of its gradients.

Products are made on tensor cores, of tf32: where float32 is asked for, each factor is the sum of
two such numbers, and of the four products that of the two small rests, beyond the precision of
float32, is left out. Channels that are summed over come 16 at a time, so that none are filled up
where their number is a multiple of it, and so that few registers are in use: several programs share
a core, and the loads of one hide behind the products of another.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.model.edge_norm_kernels import norm_of, updated_rows

STEP = tl.constexpr(16)
NUMBERS = ["nodes", "edges", "pieces", "threshold"]  # batches share a compiled kernel


# --- products -------------------------------------------------------------------------------------


@triton.jit
def _halves(x):
    """x as a number of tf32, the nearest, and a rest."""
    bits = (x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000
    near = bits.to(tl.float32, bitcast=True)
    return near, x - near


@triton.jit
def _add_product(acc, a, b, EXACT: tl.constexpr):
    """acc + a b."""
    if EXACT:
        a, a_rest = _halves(a)
        b, b_rest = _halves(b)
        acc = tl.dot(a_rest, b, acc, input_precision="tf32")
        acc = tl.dot(a, b_rest, acc, input_precision="tf32")
    return tl.dot(a, b, acc, input_precision="tf32")


@triton.jit
def _rounded(value, like):
    """As float32, but rounded as ``like`` is: one product of tf32 is exact for short floats."""
    return value.to(like.dtype.element_ty).to(tl.float32)


@triton.jit
def _channels(x, row, real, first, like, C: tl.constexpr, X_ROW: tl.constexpr):
    """STEP channels of some rows of x, from ``first`` on."""
    channel = first + tl.arange(0, STEP)
    inside = real[:, None] & (channel < C)[None, :]
    return _rounded(tl.load(x + row[:, None] * X_ROW + channel, inside, other=0.0), like)


@triton.jit
def _add_mapped(
    acc, x, row, real, weight, like,
    IN: tl.constexpr, OUT: tl.constexpr, X_ROW: tl.constexpr, IN_STEP: tl.constexpr,
    OUT_STEP: tl.constexpr, BLOCK_OUT: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """acc [rows, OUT] + x M, where M_io = weight[i·IN_STEP + o·OUT_STEP]."""
    out = tl.arange(0, BLOCK_OUT)[None, :]
    for first in tl.static_range(0, IN, STEP):
        given = _channels(x, row, real, first, like, IN, X_ROW)
        into = (first + tl.arange(0, STEP))[:, None]
        at = weight + into * IN_STEP + out * OUT_STEP
        matrix = _rounded(tl.load(at, (into < IN) & (out < OUT), other=0.0), like)
        acc = _add_product(acc, given, matrix, EXACT)
    return acc


# --- forward --------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["nodes", "edges"])
def edge_kernel(
    e, weight, bias, terms, u, moments, source, target, ptr, nodes, edges,
    IN: tl.constexpr, C: tl.constexpr, E_ROW: tl.constexpr, MAP: tl.constexpr,
    PADDING: tl.constexpr, MOMENTS: tl.constexpr,
    BLOCK_C: tl.constexpr, ROWS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """u_st = D_t + E_s + W e_st + b; grid (tiles of ROWS edges,). Without MAP, ``e`` is mapped.

    With PADDING padded rows are written too, as 0. With MOMENTS also moments [tiles, 2, C]: mean,
    and Σ (u − mean)², of the tile's real rows.
    """
    first = tl.program_id(0).to(tl.int64) * ROWS
    row = tl.arange(0, ROWS)
    last = tl.load(ptr + nodes)
    real = first + row < last
    channel = tl.arange(0, BLOCK_C)
    wide = channel < C
    inside = real[:, None] & wide[None, :]
    at_target = tl.load(target + first + row, real, other=0)[:, None] * (4 * C) + channel
    at_source = tl.load(source + first + row, real, other=0)[:, None] * (4 * C) + channel
    value = tl.load(terms + C + at_target, inside, other=0.0).to(tl.float32)
    value += tl.load(terms + 3 * C + at_source, inside, other=0.0).to(tl.float32)
    if MAP:
        value += tl.load(bias + channel, wide, other=0.0).to(tl.float32)[None, :]
        value = _add_mapped(
            value, e + first * E_ROW, row, real, weight, terms,
            IN, C, E_ROW, 1, IN, BLOCK_C, EXACT,
        )  # fmt: skip
    else:
        value += tl.load(e + first * E_ROW + row[:, None] * E_ROW + channel, inside, other=0.0)
    value = tl.where(inside, value, 0.0)
    if MOMENTS:
        count = tl.minimum(tl.maximum(last - first, 1), ROWS).to(tl.float32)
        mean = tl.sum(value, 0) / count
        apart = tl.where(inside, value - mean[None, :], 0.0)
        moments += tl.program_id(0) * 2 * C + channel
        tl.store(moments, mean, wide)
        tl.store(moments + C, tl.sum(apart * apart, 0), wide)
    if PADDING:
        inside = (first + row < edges)[:, None] & wide[None, :]
    tl.store(u + first * C + row[:, None] * C + channel, value.to(u.dtype.element_ty), inside)


# --- backward -------------------------------------------------------------------------------------


@triton.jit
def _input_rows(
    program, du, e_grad, weight, de, last, edges,
    IN: tl.constexpr, C: tl.constexpr, BLOCK_IN: tl.constexpr, ROWS: tl.constexpr,
    E_GRAD: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """ROWS rows of de = du W (+ what arrives at e), 0 where they are padding."""
    first = program.to(tl.int64) * ROWS
    row = tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK_IN)
    narrow = (column < IN)[None, :]
    at = first * IN + row[:, None] * IN + column
    value = tl.zeros([ROWS, BLOCK_IN], tl.float32)
    if first < last:
        real = first + row < last
        if E_GRAD:
            value += tl.load(e_grad + at, real[:, None] & narrow, other=0.0).to(tl.float32)
        value = _add_mapped(
            value, du + first * C, row, real, weight, du, C, IN, C, IN, 1, BLOCK_IN, EXACT
        )
    tl.store(de + at, value.to(de.dtype.element_ty), (first + row < edges)[:, None] & narrow)


@triton.jit
def _weight_piece(
    piece, pieces, du, e, dw, db, last, dw_row, db_row, before, norm, draw,
    IN: tl.constexpr, C: tl.constexpr, E_ROW: tl.constexpr, BLOCK_IN: tl.constexpr,
    ROWS: tl.constexpr, EXACT: tl.constexpr, REMAKE: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """dW = Σ du eᵀ and db = Σ du over one of ``pieces`` shares of the real edges."""
    BLOCKS: tl.constexpr = (C + STEP - 1) // STEP
    column = tl.arange(0, BLOCK_IN)
    narrow = (column < IN)[None, :]
    row = tl.arange(0, ROWS)
    sums, totals = (), ()
    for _ in tl.static_range(BLOCKS):
        sums += (tl.zeros([STEP, BLOCK_IN], tl.float32),)
        totals += (tl.zeros([ROWS, STEP], tl.float32),)
    if REMAKE:
        learned = norm_of(norm, column, IN)
    chunk = tl.cdiv(tl.cdiv(last, pieces), ROWS) * ROWS
    begin = piece.to(tl.int64) * chunk
    for first in range(begin, tl.minimum(begin + chunk, last), ROWS):
        real = first + row < last
        inside = real[:, None] & narrow
        if REMAKE:
            given = updated_rows(
                e, before, first + row, column, inside, learned, draw, IN, E_ROW, DROP
            )
        else:
            given = tl.load(e + first * E_ROW + row[:, None] * E_ROW + column, inside, other=0.0)
        given = _rounded(given, du)
        more_sums, more_totals = (), ()
        for k in tl.static_range(BLOCKS):
            change = _channels(du + first * C, row, real, k * STEP, du, C, C)
            more_sums += (_add_product(sums[k], tl.trans(change), given, EXACT),)
            more_totals += (totals[k] + change,)
        sums, totals = more_sums, more_totals
    dw += piece.to(tl.int64) * dw_row
    db += piece.to(tl.int64) * db_row
    for k in tl.static_range(BLOCKS):
        channel = k * STEP + tl.arange(0, STEP)
        at = channel[:, None] * IN + column
        tl.store(dw + at, sums[k], (channel < C)[:, None] & narrow)
        tl.store(db + channel, tl.sum(totals[k], 0), channel < C)


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=["seed"])
def map_gradient_kernel(
    du, e_grad, e, weight, de, dw, db, ptr, nodes, edges, pieces, dw_row, db_row,
    before, gamma, beta, stats, graph_id, index, seed, scale, threshold,
    IN: tl.constexpr, C: tl.constexpr, E_ROW: tl.constexpr, BLOCK_IN: tl.constexpr,
    ROWS: tl.constexpr, EXACT: tl.constexpr, E_GRAD: tl.constexpr,
    REMAKE: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """Pieces of dW and db, whose rows are ``dw_row`` and ``db_row`` numbers apart, and de.

    Grid (pieces + tiles of ROWS edges,): the programs of the pieces take longest and begin.
    With REMAKE the edge states were not kept: they are made again of those ``e`` of the layer
    before, and of its u, ``before``.
    """
    program = tl.program_id(0)
    last = tl.load(ptr + nodes)
    if program < pieces:
        _weight_piece(
            program, pieces, du, e, dw, db, last, dw_row, db_row,
            before, (gamma, beta, stats), (graph_id, index, seed, scale, threshold, edges),
            IN, C, E_ROW, BLOCK_IN, ROWS, EXACT, REMAKE, DROP,
        )  # fmt: skip
    else:
        _input_rows(
            program - pieces, du, e_grad, weight, de, last, edges,
            IN, C, BLOCK_IN, ROWS, E_GRAD, EXACT,
        )  # fmt: skip
