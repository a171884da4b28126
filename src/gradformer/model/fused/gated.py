"""The gated convolution in Triton kernels; the plain form is ``model.gated.GatedGCN``.

Forward a kernel over edge rows makes u, the map of the edge states inside it, and one over nodes
makes the sums. Backward one makes du and all that is summed by target, one what is summed by
source, and one the gradients of the map and of the edge states. For many edges, where the norm of u
takes several kernels, its moments are made with the sums, the new edge states by the next layer's
kernel, and du straight from what arrives at them, so that the gradient between norm and convolution
is never stored. Two edge tensors are kept, the edge states and u; in every other layer only u: its
edge states are made again from those of the layer before. Where there is a dropout, bits tell which
channels it let through.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from gradformer.attention.kernels.once import Gradients, once
from gradformer.attention.kernels.tiles import block_of, precision
from gradformer.graphs.batch import Edges
from gradformer.model.fused import norm as fused_norm
from gradformer.model.fused.edge_norm import (
    Origin,
    Unmade,
    made,
    slopes_of,
    stats_of,
)
from gradformer.model.fused.messages import edge_rows
from gradformer.model.fused.norm import Norms
from gradformer.model.fused.pieces import Claim, claim, open_map, sum_map
from gradformer.model.maps import linear_and_input

PAIRS = 60  # of programs, at most, that make gradients of the map and of the edge states
GROUPS = 4  # warps of such a program, each with a piece of the map's
ROWS = 32  # of a tile of edges
PROGRAMS = 512  # at most, that share the tiles
MAP_ROWS = 64  # of a tile of edges whose states are mapped: a group of four warps multiplies
MAP_PROGRAMS = 528  # at most, that map them: four on each core
MOST = 64  # channels up to which a program can hold the map


class _Gated(torch.autograd.Function):
    """(terms, e, map, r, edge norm) → e' where there is an edge norm, otherwise u; h; e; origin.

    e' is left unmade: its origin says of what it is to be made. Where ``origin`` is given, e is
    such a tensor, and made here.
    """

    @staticmethod
    def forward(
        ctx: Any, terms: Tensor, e: Tensor, weight: Tensor | None, bias: Tensor | None,
        r: Tensor | None, gamma: Tensor | None, beta: Tensor | None, edges: Edges,
        room: Claim | None, update: Norms | None, origin: Origin | None,
    ) -> tuple[Tensor, Tensor, Tensor, Origin | None]:  # fmt: skip
        from gradformer.model.kernels.edge_map import map_kernel
        from gradformer.model.kernels.edge_states import edge_kernel
        from gradformer.model.kernels.gated import node_kernel

        terms = terms.contiguous()
        r, matrix = (None if t is None else t.contiguous() for t in (r, weight))
        given, e_row = edge_rows(e if origin is None else origin.e)
        nodes, (count, width), channels = len(terms), e.shape, terms.shape[1] // 4
        u = terms.new_empty(count, channels)
        h = terms.new_empty(nodes, channels)
        mean, inverse = (torch.empty_like(h, dtype=torch.float32) for _ in range(2))
        moments = None  # of each node's edges
        if update is not None and update.norms[0].training:
            moments = mean.new_empty(nodes, 2, channels)
        new, norm = (None, (*[None] * 8, 1.0, 0)) if origin is None else (e, origin.norm)
        places = (edges.source, edges.target, edges.target_ptr, nodes, count)
        if u.numel() and weight is None:
            edge_kernel[(min(-(-count // ROWS), PROGRAMS),)](
                given.contiguous(), terms, u, *places,
                C=channels, ROWS=ROWS, BLOCK_C=block_of(channels), num_warps=2,
            )  # fmt: skip
        elif u.numel():
            map_kernel[(min(-(-count // MAP_ROWS), MAP_PROGRAMS),)](
                given, matrix, bias, terms, u, *places, new, *norm,
                IN=width, C=channels, E_ROW=e_row, PADDING=update is None, ROWS=MAP_ROWS,
                EXACT=_exact(terms.dtype), BLOCK_IN=block_of(width), BLOCK_C=block_of(channels),
                num_stages=1, num_warps=MAP_ROWS // 16, maxnreg=128,
            )  # fmt: skip
        if h.numel():
            blocks, parts = _parts(channels)
            node_kernel[(nodes * parts,)](
                terms, r, u, h, mean, inverse, moments, edges.source, edges.target_ptr,
                C=channels, CHUNK=8, BLOCKS=blocks, num_warps=1,
            )  # fmt: skip
        states = given if origin is None else e
        kept = [None if weight is None else states, *[None] * 4]
        ctx.remake, ctx.before = False, None
        if origin is not None:
            ctx.remake = origin.kept
            ctx.before = (origin.update, origin.passes, origin.slopes)
            kept = [origin.e if origin.kept else states, origin.u, origin.stats, *origin.learned]
        ctx.save_for_backward(terms, weight, bias, r, u, mean, inverse, gamma, beta, *kept)
        ctx.edges, ctx.room, ctx.update = edges, room, update
        ctx.set_materialize_grads(False)
        if update is None or gamma is None or beta is None:
            return u, h, e, None
        ctx.stats = stats_of(update, moments, edges)
        made = torch.empty_like(u, dtype=torch.promote_types(u.dtype, e.dtype))
        ctx.passes = None
        if update.after is not None:
            ctx.passes = u.new_empty(count, -(-channels // 16), dtype=torch.int32)
        found = Origin(
            update, states.detach(), u, ctx.stats, (gamma, beta), not ctx.remake, ctx.passes
        )
        ctx.slopes = found.slopes
        return made, h, e, found

    @staticmethod
    @once("gated convolution")
    def backward(
        ctx: Any, out_grad: Tensor | None, dh: Tensor | None, e_grad: Tensor | None, _: None
    ) -> Gradients:
        from gradformer.model.kernels.edge_gradients import target_gradient_kernel
        from gradformer.model.kernels.gated import source_gradient_kernel

        saved = ctx.saved_tensors
        terms, weight, _, r, u, mean, inverse, gamma, beta, *_ = saved
        edges, update = ctx.edges, ctx.update
        dh = torch.zeros_like(mean) if dh is None else dh.contiguous()
        out_grad, e_grad = (None if g is None else g.contiguous() for g in (out_grad, e_grad))
        count, (nodes, channels) = len(u), mean.shape
        du, d_terms, share = (torch.empty_like(t) for t in (u, terms, inverse))
        dr = None if r is None else torch.empty_like(r)
        norm: tuple[Any, ...] = (*[None] * 4, 1.0)
        slopes: list[Tensor | None] = [None, None]
        if update is not None and out_grad is not None:
            known = ctx.slopes.take(out_grad)
            norm, slopes = slopes_of(
                update, gamma, beta, out_grad, u, ctx.stats, edges, ctx.passes, known
            )
            e_grad = out_grad
        if mean.numel():
            blocks = -(-channels // 16)
            parts = blocks if r is None else 1  # of a row, whose sum is dr
            target_gradient_kernel[(nodes * parts,)](
                dh, mean, inverse, terms, u, r, out_grad, d_terms, du, dr, share,
                edges.source, edges.target_ptr, nodes, count, *norm,
                C=channels, BLOCK_C=block_of(channels), CHUNK=16, PADDING=weight is None,
                PARTS=parts, num_warps=1, maxnreg=72 if r is None else 255,  # 28 fit on a core
            )  # fmt: skip
            together, parts = _parts(channels)
            source_gradient_kernel[(nodes * parts,)](
                share, r, u, du, d_terms, edges.target, edges.source_ptr, edges.by_source,
                C=channels, CHUNK=8, BLOCKS=together, num_warps=1, maxnreg=80,  # 24 fit on a core
            )  # fmt: skip
        return d_terms, *_map_gradients(ctx, saved, du, e_grad), dr, *slopes, None, None, None, None


def _map_gradients(
    ctx: Any, saved: tuple[Any, ...], du: Tensor, e_grad: Tensor | None
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of e and of the map; None for a map's that are left in pieces, or without a map.

    ``saved``: the saved tensors, which may be asked for once only.
    """
    from gradformer.model.kernels.map_gradients import map_gradient_kernel

    weight, bias, (e, before, stats, *learned) = *saved[1:3], saved[9:]
    if weight is None:
        return du, None, None
    passes, scale, slopes = None, 1.0, None
    if ctx.before is not None:
        update, passes, slopes = ctx.before
        scale = update.numbers[4]
    (count, width), channels, ptr = e.shape, du.shape[1], ctx.edges.target_ptr
    kind = e.dtype if before is None else torch.promote_types(e.dtype, before.dtype)  # that of e'
    de = e.new_empty(e.shape, dtype=kind) if ctx.needs_input_grad[1] else None
    pairs, partial = _pairs(count), None
    if de is not None and slopes is not None:
        partial = stats.new_empty(pairs, 2, width)
    dw, db = open_map(ctx.room, GROUPS * pairs, weight, bias)
    assert db is not None
    if count:
        map_gradient_kernel[(pairs if de is None else 2 * pairs,)](
            du, e, dw, db, dw.stride(0), db.stride(0), e_grad, weight.contiguous(), de, partial,
            ptr, len(ptr) - 1, count, before, *learned, stats, passes, scale,
            IN=width, C=channels, E_ROW=edge_rows(e)[1], GROUPS=GROUPS, BLOCK_IN=block_of(width),
            EXACT=_exact(du.dtype), REMAKE=ctx.remake,
            num_warps=GROUPS, num_stages=1,  # 3 or 2 fit on a core:
            maxnreg=168 if max(width, channels) <= 48 and not ctx.remake else 255,
        )  # fmt: skip
        if de is not None and slopes is not None:
            slopes.leave(de, partial)
    return de, *sum_map(ctx.room, dw, weight, bias)


def _pairs(edges: int) -> int:
    """Pairs of programs that share the edges: each has some tiles to walk over."""
    return min(-(-edges // (2 * 16 * GROUPS)), PAIRS)


def _parts(channels: int) -> tuple[int, int]:
    """Blocks of 16 channels that a program takes of each row, up to 4; and in how many parts."""
    blocks = -(-channels // 16)
    together = next(n for n in (4, 3, 2, 1) if blocks % n == 0)
    return together, blocks // together


def _exact(dtype: torch.dtype) -> bool:
    """How products are made: one of tf32 is exact for short floats."""
    return dtype == torch.float32 and precision() == "ieee"


def gated(
    terms: Tensor, e: Tensor | Unmade, layer: nn.Linear, r: Tensor | None, edges: Edges
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Edge states and node sums of the gated convolution.

    .. math::
        u_{st} = D_t + E_s + C e_{st}, \qquad
        h_t = A_t + \frac{\sum_s \sigma(u_{st})\, r_{st}\, B_s}{\sum_s \sigma(u_{st})\, r_{st}
              + 10^{-6}}

    Args:
        terms: the columns A | D | B | E, [nodes, 4 c].
        e: [edges, width], or one row expanded.
        layer: the map C.
        r: [edges, 1], or None for 1.

    Returns:
        u [edges, c]; h [nodes, c]; and e: what is done with it later sends its gradient through the
        kernel, which adds it to its own.
    """
    if max(layer.weight.shape) > MOST:
        mapped, e = linear_and_input(made(e), layer)
        u, h, *_ = _Gated.apply(terms, mapped, None, None, r, None, None, edges, None, None, None)
        return u, h, e
    u, h, e, _ = _apply(terms, e, layer, r, edges, None)
    return u, h, e


def updated(
    terms: Tensor, e: Tensor | Unmade, layer: nn.Linear, r: Tensor | None, edges: Edges,
    update: Norms,
) -> tuple[Unmade, Tensor]:  # fmt: skip
    """e' = e + drop(ReLU(norm(u))), yet to be made, and h [nodes, c].

    Where :func:`updates` says so; ``update`` is the norm of u with what follows it.
    """
    update = replace(update, room=claim(1, update.norms[0].weight, update.norms[0].bias))
    new, h, _, origin = _apply(terms, e, layer, r, edges, update)
    assert origin is not None
    return Unmade(new, origin, edges), h


def _apply(
    terms: Tensor, e: Tensor | Unmade, layer: nn.Linear, r: Tensor | None, edges: Edges,
    update: Norms | None,
) -> tuple[Tensor, Tensor, Tensor, Origin | None]:  # fmt: skip
    states, origin = (e.states, e.origin) if isinstance(e, Unmade) else (e, None)
    room = claim(GROUPS * _pairs(len(states)), layer.weight, layer.bias) if len(states) else None
    learned = (None, None) if update is None else (update.norms[0].weight, update.norms[0].bias)
    return _Gated.apply(
        terms, states, layer.weight, layer.bias, r, *learned, edges, room, update, origin
    )


def updates(layer: nn.Linear, edges: int) -> bool:
    """Whether :func:`updated` is for it: where the norm of u takes several kernels anyway."""
    return max(layer.weight.shape) <= MOST and edges > fused_norm.MOST_WHOLE_ROWS
