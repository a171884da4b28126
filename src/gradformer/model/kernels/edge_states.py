"""Triton kernels of edge states: u of the gated convolution, and e' = e + drop(ReLU(norm(u))).

Where u is made together with the map of the edge states: :mod:`.edge_map`.

``stats`` [3, C] holds mean, rstd and 1/rows, as in :mod:`.norm_tiles`. What it is made of is left
by ``gated.node_kernel``, one piece a node.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.attention.kernels.draws import site_key
from gradformer.model.kernels.edge_tiles import (
    STEP,
    block_channels,
    edge_keys,
    learned_of,
    load_rows,
    share_of,
    store_passed,
    store_rows,
    updated,
    words_at,
)
from gradformer.model.kernels.messages import write_rest
from gradformer.model.kernels.norm_tiles import settled

NUMBERS = ["nodes", "edges", "threshold"]  # all batches share one compiled kernel


# --- u --------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=NUMBERS)
def edge_kernel(
    e, terms, u, source, target, ptr, nodes, edges,
    C: tl.constexpr, ROWS: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """u_st = D_t + E_s + e_st of mapped edge states e [edges, C]; padded rows of u are 0."""
    last = tl.load(ptr + nodes)
    begin, end = share_of(tl.program_id(0), tl.num_programs(0), last, ROWS)
    for tile in range(begin, end):
        first = tl.cast(tile, tl.int64) * ROWS
        left = (last - first).to(tl.int32)
        real = (tl.arange(0, ROWS) < left)[:, None]
        row = tl.minimum(tl.arange(0, ROWS), left - 1)
        onto, other = tl.load(target + first + row), tl.load(source + first + row)
        found = ()
        for k in tl.static_range((C + STEP - 1) // STEP):
            channel = block_channels(k)
            value = load_rows(terms + C, onto, channel, 4 * C, C)
            value += load_rows(terms + 3 * C, other, channel, 4 * C, C)
            found += (value + load_rows(e + first * C, row, channel, C, C),)
        for k in tl.static_range(len(found)):  # after all loads, which need not wait for it
            store_rows(u + first * C, found[k], row, real, block_channels(k), C)
    write_rest(u, None, last, edges, C, BLOCK_C, ROWS)


# --- its norm, and what follows -------------------------------------------------------------------


@triton.jit(do_not_specialize=NUMBERS)
def moments_kernel(
    moments, running_mean, running_var, stats, ptr, nodes, momentum, eps,
    C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """stats, and running statistics, from moments [nodes, 2, C]: mean, and Σ (u − mean)², of each
    node's edges; grid (channels / BLOCK_C,).

    Deviations are from the first mean, near enough to that of all that no digits are lost.
    """
    channel = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    wide = channel < C
    count = tl.load(ptr + nodes).to(tl.float32)
    mean = tl.zeros([BLOCK_C], tl.float32)
    square = tl.zeros([BLOCK_C], tl.float32)
    if moments is not None:
        center = tl.load(moments + channel, wide, other=0.0)
        center = tl.where(count > 0.0, center, 0.0)
        sums = tl.zeros([BLOCK_N, BLOCK_C], tl.float32)
        squares = tl.zeros([BLOCK_N, BLOCK_C], tl.float32)
        for start in range(0, tl.where(count > 0.0, nodes, 0), BLOCK_N):
            node = start + tl.arange(0, BLOCK_N)
            end = tl.load(ptr + tl.minimum(node + 1, nodes))
            rows = (end - tl.load(ptr + tl.minimum(node, nodes))).to(tl.float32)[:, None]
            inside = wide[None, :] & (node < nodes)[:, None]
            at = moments + node[:, None] * (2 * C) + channel[None, :]
            apart = tl.load(at, inside, other=0.0) - center[None, :]
            sums += rows * apart
            squares += tl.load(at + C, inside, other=0.0) + rows * apart * apart
        total, share = tl.sum(sums, 0), 1.0 / tl.maximum(count, 1.0)
        mean = center + total * share
        square = tl.sum(squares, 0) - total * total * share
    settled(
        mean, square, count, running_mean, running_var, stats, channel, momentum, eps,
        True, C, moments is not None,
    )  # fmt: skip


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=["seed"])
def update_kernel(
    e, new, ptr, nodes, edges, u, gamma, beta, stats, passes, graph_id, index, seed, scale,
    threshold, C: tl.constexpr, E_ROW: tl.constexpr, ROWS: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """e', 0 in padded rows, and with a dropout ``passes``; grid (tiles of ROWS edges,)."""
    last = tl.load(ptr + nodes)
    first = tl.program_id(0).to(tl.int64) * ROWS
    if first < last:
        left = (last - first).to(tl.int32)
        real = (tl.arange(0, ROWS) < left)[:, None]
        row = tl.minimum(tl.arange(0, ROWS), left - 1)
        made = ()
        keys = None
        if seed is not None:
            keys = edge_keys(site_key(seed), graph_id + first, index + first, row)
        for k in tl.static_range((C + STEP - 1) // STEP):
            channel = block_channels(k)
            given = load_rows(e + first * E_ROW, row, channel, E_ROW, C)
            value = load_rows(u + first * C, row, channel, C, C)
            learned = learned_of(gamma, beta, stats, channel, C)
            value, passed = updated(given, value, channel[None, :], learned, keys, scale, threshold)
            made += (value,)
            if passes is not None:
                store_passed(passed, words_at(passes, first + row, k, C))
        for k in tl.static_range(len(made)):
            store_rows(new + first * C, made[k], row, real, block_channels(k), C)
    write_rest(new, None, last, edges, C, BLOCK_C, 32)
