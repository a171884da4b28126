"""Triton kernels of the gated convolution over nodes and their edges.

Node terms are the columns A | D | B | E of one tensor [nodes, 4 C]. Every row of an output is
written by exactly one program, sums are float32 and run in a fixed order, without atomics. Edges
from ``ptr[nodes]`` on are padding: they enter no sum.
Numbers of nodes and edges are not specialised, so that all batches share one compiled kernel.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.model.edge_norm_kernels import norm_of, slope_of
from gradformer.model.message_kernels import write_rest

GATE_EPS = tl.constexpr(1e-6)
NUMBERS = ["nodes", "edges", "threshold"]  # all batches share one compiled kernel


@triton.jit
def node_kernel(
    terms, r, u, h, mean, inverse, source, ptr,
    C: tl.constexpr, BLOCK_C: tl.constexpr, CHUNK: tl.constexpr, POSITION: tl.constexpr,
):  # fmt: skip
    """g = σ(u) r, inverse_t = 1 / (Σ g + 1e-6), mean_t = inverse_t Σ g B_s, h = A + mean;
    grid (nodes,)."""
    node = tl.program_id(0)
    channel = tl.arange(0, BLOCK_C)
    wide = channel < C
    numerator = tl.zeros([CHUNK, BLOCK_C], tl.float32)
    denominator = tl.zeros([CHUNK, BLOCK_C], tl.float32)
    end = tl.load(ptr + node + 1)
    for start in range(tl.load(ptr + node), end, CHUNK):
        edge = (start + tl.arange(0, CHUNK)).to(tl.int64)
        real = edge < end
        inside = real[:, None] & wide[None, :]
        other = tl.load(source + edge, real, other=0).to(tl.int64)
        value = tl.load(u + edge[:, None] * C + channel, inside, other=0.0).to(tl.float32)
        gate = tl.where(inside, tl.sigmoid(value), 0.0)
        if POSITION:
            gate *= tl.load(r + edge, real, other=0.0).to(tl.float32)[:, None]
        b = terms + other[:, None] * (4 * C) + 2 * C + channel
        numerator += gate * tl.load(b, inside, other=0.0).to(tl.float32)
        denominator += gate
    share = 1.0 / (tl.sum(denominator, 0) + GATE_EPS)
    found = tl.sum(numerator, 0) * share
    here = node.to(tl.int64) * C + channel
    tl.store(mean + here, found, wide)
    tl.store(inverse + here, share, wide)
    a = terms + node.to(tl.int64) * (4 * C) + channel
    found += tl.load(a, wide, other=0.0).to(tl.float32)
    tl.store(h + here, found.to(h.dtype.element_ty), wide)


# --- backward -------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=["seed"])
def target_gradient_kernel(
    dh, out_grad, terms, r, u, mean, inverse, d_terms, du, dr, source, ptr, nodes, edges,
    gamma, beta, stats, dgamma, dbeta, graph_id, index, seed, scale, threshold,
    C: tl.constexpr, BLOCK_C: tl.constexpr, CHUNK: tl.constexpr,
    POSITION: tl.constexpr, OUT_GRAD: tl.constexpr, NORM: tl.constexpr, DROP: tl.constexpr,
    PADDING: tl.constexpr,
):  # fmt: skip
    """By target: dg = dh_t inverse_t (B_s − mean_t), dr = Σ_c dg σ(u), du = dg r σ'(u) (+ what
    arrives at u, directly or with NORM through e'), dA = dh, dD = Σ du; grid (nodes,). With PADDING
    padded rows of du are written too, as 0."""
    node = tl.program_id(0)
    channel = tl.arange(0, BLOCK_C)
    wide = channel < C
    here = node.to(tl.int64) * C + channel
    grad = tl.load(dh + here, wide, other=0.0).to(tl.float32)
    own_mean = tl.load(mean + here, wide, other=0.0)
    share = grad * tl.load(inverse + here, wide, other=0.0)
    if NORM:
        learned = norm_of((gamma, beta, stats), channel, C)
        draw = (graph_id, index, seed, scale, threshold, edges)
        one = tl.load(stats + 2 * C + channel, wide, other=0.0)  # 1 / rows
        along = tl.load(dgamma + channel, wide, other=0.0) * one
        total = tl.load(dbeta + channel, wide, other=0.0) * one
    d_d = tl.zeros([CHUNK, BLOCK_C], tl.float32)
    end = tl.load(ptr + node + 1)
    for start in range(tl.load(ptr + node), end, CHUNK):
        edge = (start + tl.arange(0, CHUNK)).to(tl.int64)
        real = edge < end
        inside = real[:, None] & wide[None, :]
        other = tl.load(source + edge, real, other=0).to(tl.int64)
        b = terms + other[:, None] * (4 * C) + 2 * C + channel
        b = tl.load(b, inside, other=0.0).to(tl.float32)
        at = edge[:, None] * C + channel
        value = tl.load(u + at, inside, other=0.0).to(tl.float32)
        gate = tl.sigmoid(value)
        change = tl.where(inside, share[None, :] * (b - own_mean[None, :]) * gate, 0.0)
        if POSITION:
            tl.store(dr + edge, tl.sum(change, 1).to(dr.dtype.element_ty), real)
            change *= tl.load(r + edge, real, other=0.0).to(tl.float32)[:, None]
        change *= 1.0 - gate
        if OUT_GRAD and NORM:
            normed, slope = slope_of(
                out_grad, value, at, edge, channel, inside, learned, draw, DROP
            )
            slope -= total[None, :] + normed * along[None, :]
            change += tl.where(inside, slope * (learned[1] * learned[2])[None, :], 0.0)
        elif OUT_GRAD:
            change += tl.load(out_grad + at, inside, other=0.0).to(tl.float32)
        tl.store(du + at, change.to(du.dtype.element_ty), inside)
        d_d += change
    own = d_terms + node.to(tl.int64) * (4 * C) + channel
    tl.store(own, grad.to(d_terms.dtype.element_ty), wide)
    tl.store(own + C, tl.sum(d_d, 0).to(d_terms.dtype.element_ty), wide)
    first = tl.load(ptr + nodes)
    if PADDING:
        write_rest(du, du, first, edges, C, BLOCK_C, CHUNK, False)
    if POSITION:
        write_rest(dr, dr, first, edges, 1, 1, CHUNK, False)


@triton.jit
def source_gradient_kernel(
    dh, r, u, du, inverse, d_terms, target, ptr, order,
    C: tl.constexpr, BLOCK_C: tl.constexpr, CHUNK: tl.constexpr, POSITION: tl.constexpr,
):  # fmt: skip
    """By source: dB = Σ σ(u) r dh_t inverse_t and dE = Σ du; grid (nodes,)."""
    node = tl.program_id(0)
    channel = tl.arange(0, BLOCK_C)
    wide = channel < C
    d_b = tl.zeros([CHUNK, BLOCK_C], tl.float32)
    d_e = tl.zeros([CHUNK, BLOCK_C], tl.float32)
    end = tl.load(ptr + node + 1)
    for start in range(tl.load(ptr + node), end, CHUNK):
        place = start + tl.arange(0, CHUNK)
        real = place < end
        edge = tl.load(order + place, real, other=0).to(tl.int64)
        inside = real[:, None] & wide[None, :]
        at = edge[:, None] * C + channel
        gate = tl.sigmoid(tl.load(u + at, inside, other=0.0).to(tl.float32))
        if POSITION:
            gate *= tl.load(r + edge, real, other=0.0).to(tl.float32)[:, None]
        there = tl.load(target + edge, real, other=0).to(tl.int64)[:, None] * C + channel
        share = tl.load(dh + there, inside, other=0.0).to(tl.float32)
        d_b += gate * share * tl.load(inverse + there, inside, other=0.0)
        d_e += tl.load(du + at, inside, other=0.0).to(tl.float32)
    own = d_terms + node.to(tl.int64) * (4 * C) + channel
    tl.store(own + 2 * C, tl.sum(d_b, 0).to(d_terms.dtype.element_ty), wide)
    tl.store(own + 3 * C, tl.sum(d_e, 0).to(d_terms.dtype.element_ty), wide)
