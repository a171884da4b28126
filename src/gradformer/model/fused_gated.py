"""The gated convolution in Triton kernels; the plain form is ``local.GatedGCN``.

Forward a kernel over edge rows makes u, the map of the edge states inside it, and one over nodes
makes the sums. Backward one makes du and all that is summed by target, one what is summed by
source, and one the gradients of the map. For many edges, where the norm of u takes several kernels,
du is made straight from what arrives at the new edge states, so that the gradient between norm and
convolution is never stored. Two edge tensors are kept: the edge states and u.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from gradformer.attention.fused import precision
from gradformer.graphs.batch import Edges
from gradformer.model import fused_norm
from gradformer.model.fused_linear import FLOAT32
from gradformer.model.fused_messages import edge_rows, tile
from gradformer.model.fused_norm import Norms, normalise
from gradformer.model.once import Gradients, once
from gradformer.model.parts import linear
from gradformer.model.pieces import Claim, claim

PIECES = 132  # at most, that gradients of the map are summed in: a program on each core
ROWS = 64  # of a tile
MOST = 64  # channels up to which a program can hold the map


class _Gated(torch.autograd.Function):
    """(terms, e, map, r, edge norm) → e' where there is an edge norm, otherwise u; h; e."""

    @staticmethod
    def forward(
        ctx: Any, terms: Tensor, e: Tensor, weight: Tensor | None, bias: Tensor | None,
        r: Tensor | None, gamma: Tensor | None, beta: Tensor | None, edges: Edges,
        room: Claim | None, update: Norms | None,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        from gradformer.model.gated_kernels import edge_kernel, node_kernel

        terms, (given, e_row) = terms.contiguous(), edge_rows(e)
        r = None if r is None else r.contiguous()
        nodes, channels = len(terms), terms.shape[1] // 4
        u = terms.new_empty(len(e), channels)
        h = terms.new_empty(nodes, channels)
        mean, inverse = (torch.empty_like(h, dtype=torch.float32) for _ in range(2))
        if u.numel():
            options = _edge_tile(e.shape[1], channels, terms.dtype)
            edge_kernel[(-(-len(e) // ROWS),)](
                given, e if weight is None else weight, e if bias is None else bias, terms, u,
                edges.source, edges.target, edges.target_ptr, nodes, len(e),
                E_ROW=e_row, MAP=weight is not None, num_warps=4, **options,
            )  # fmt: skip
        if h.numel():
            node_kernel[(nodes,)](
                terms, u if r is None else r, u, h, mean, inverse, edges.source, edges.target_ptr,
                POSITION=r is not None, **tile(channels, len(e), nodes),
            )  # fmt: skip
        kept = None if weight is None else given
        ctx.save_for_backward(terms, kept, weight, r, u, mean, inverse, gamma, beta)
        ctx.edges, ctx.room, ctx.update = edges, room, update
        ctx.set_materialize_grads(False)
        if update is None:
            return u, h, e
        new, ctx.stats = normalise(update, u, None, None, e.contiguous())
        return new, h, e

    @staticmethod
    @once("gated convolution")
    def backward(
        ctx: Any, out_grad: Tensor | None, dh: Tensor | None, e_grad: Tensor | None
    ) -> Gradients:
        from gradformer.model.gated_kernels import source_gradient_kernel, target_gradient_kernel

        terms, _, _, r, u, mean, inverse, _, _ = ctx.saved_tensors
        edges, update = ctx.edges, ctx.update
        dh = torch.zeros_like(mean) if dh is None else dh.contiguous()
        out_grad, e_grad = (None if g is None else g.contiguous() for g in (out_grad, e_grad))
        count, (nodes, channels) = len(u), mean.shape
        du, d_terms = torch.empty_like(u), torch.empty_like(terms)
        dr = None if r is None else torch.empty_like(r)
        norm, slopes, inside = [*[u] * 8, 1.0, 0], [None, None], {"NORM": False, "DROP": False}
        if update is not None and out_grad is not None:
            norm, slopes = _norm_slopes(ctx, out_grad)
            inside = {"NORM": True, "DROP": update.after is not None}
            e_grad = out_grad
        if mean.numel():
            position, size = u if r is None else r, tile(channels, count, nodes)
            target_gradient_kernel[(nodes,)](
                dh, u if out_grad is None else out_grad, terms, position, u, mean, inverse,
                d_terms, du, u if dr is None else dr,
                edges.source, edges.target_ptr, nodes, count, *norm,
                POSITION=r is not None, OUT_GRAD=out_grad is not None, **inside, **size,
            )  # fmt: skip
            source_gradient_kernel[(nodes,)](
                dh, position, u, du, inverse, d_terms,
                edges.target, edges.source_ptr, edges.by_source, POSITION=r is not None, **size,
            )  # fmt: skip
        return d_terms, *_map_gradients(ctx, du, e_grad), dr, *slopes, None, None, None


def _map_gradients(
    ctx: Any, du: Tensor, e_grad: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Gradients of e and of the map; None for a map's that are left in pieces, or without a map."""
    from gradformer.model.gated_kernels import map_gradient_kernel

    _, e, weight, *_ = ctx.saved_tensors
    if weight is None:
        return du, None, None
    (count, width), channels = e.shape, du.shape[1]
    de, pieces = e.new_empty(e.shape), _pieces(count)
    if ctx.room is None:
        dw = torch.empty(pieces, channels * (width + 1), dtype=torch.float32, device=e.device)
        db = dw[:, channels * width :]
    else:
        dw, db = ctx.room.open(e.device)
    if count:
        map_gradient_kernel[(pieces,)](
            du, du if e_grad is None else e_grad, e, weight, de, dw, db, ctx.edges.target_ptr,
            len(ctx.edges.target_ptr) - 1, count, _chunk(count), dw.stride(0), db.stride(0),
            E_ROW=edge_rows(e)[1], E_GRAD=e_grad is not None, num_warps=8,
            **_edge_tile(width, channels, du.dtype),
        )  # fmt: skip
    if ctx.room is not None:
        return de, None, None
    weights, biases = dw.sum(0).to(weight.dtype).split([channels * width, channels])
    return de, weights.view_as(weight), biases


def _norm_slopes(ctx: Any, grad: Tensor) -> tuple[list[Any], list[Any]]:
    """What the kernels take of the edge norm; gradients of γ and β, None if left in pieces."""
    from gradformer.model.gated_kernels import slope_kernel, slope_sums_kernel

    *_, u, _, _, gamma, beta = ctx.saved_tensors
    update, ptr = ctx.update, ctx.edges.target_ptr
    (count, channels), block = u.shape, max(16, 1 << (u.shape[1] - 1).bit_length())
    chunk = -(-count // (2 * PIECES * ROWS)) * ROWS
    chunks = -(-count // chunk)
    partial = ctx.stats.new_empty(chunks, 2, channels)
    made = [torch.empty_like(gamma), torch.empty_like(beta)]
    rooms = made if update.room is None else update.room.open(u.device)
    learned = [gamma, beta, ctx.stats]
    draw = [update.rows.graph_id, update.rows.index, update.seeds(u)[2], *update.numbers[4:]]
    slope_kernel[(chunks,)](
        grad, u, *learned, partial, ptr, len(ptr) - 1, count, chunk, *draw,
        C=channels, BLOCK_C=block, ROWS=ROWS, DROP=update.after is not None, num_warps=8,
    )  # fmt: skip
    slope_sums_kernel[(-(-channels // 8),)](
        partial, *rooms, chunks,
        C=channels, BLOCK_P=1 << (chunks - 1).bit_length(), BLOCK_C=8, num_warps=4,
    )  # fmt: skip
    return [*learned, *rooms, *draw], made if update.room is None else [None, None]


def _chunk(edges: int) -> int:
    """Edge rows that one program of the map's gradient walks over."""
    return -(-edges // (PIECES * ROWS)) * ROWS


def _pieces(edges: int) -> int:
    return -(-edges // _chunk(edges)) if edges else 0


def _edge_tile(width: int, channels: int, dtype: torch.dtype) -> dict[str, Any]:
    """Tile of edges and all channels, and how products are made: one of tf32 is exact for short
    floats."""
    blocks = [max(16, 1 << (size - 1).bit_length()) for size in (width, channels)]
    exact = dtype == torch.float32 and precision() == "ieee"
    return {
        "IN": width,
        "C": channels,
        "BLOCK_IN": blocks[0],
        "BLOCK_C": blocks[1],
        "ROWS": ROWS,
        "PRECISION": FLOAT32 if exact else "tf32",
        "num_stages": 2,
    }


def gated(
    terms: Tensor, e: Tensor, layer: nn.Linear, r: Tensor | None, edges: Edges,
    update: Norms | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
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
        update: the norm of u with what follows it, where :func:`updates` says that it can be here.

    Returns:
        u [edges, c], zero in padded rows, or with ``update`` e' = e + drop(ReLU(norm(u)));
        h [nodes, c]; and e: what is done with it later sends its gradient through the kernel, which
        adds it to its own.
    """
    if max(layer.weight.shape) > MOST:
        mapped, e = linear(e, layer, pass_on=True)
        u, h, _ = _Gated.apply(terms, mapped, None, None, r, None, None, edges, None, None)
        return u, h, e
    room = claim(_pieces(len(e)), layer.weight, layer.bias) if len(e) else None
    learned: tuple[Tensor | None, Tensor | None] = (None, None)
    if update is not None:
        learned = update.norms[0].weight, update.norms[0].bias
        update = replace(update, room=claim(1, *learned))
    found: tuple[Tensor, Tensor, Tensor] = _Gated.apply(
        terms, e, layer.weight, layer.bias, r, *learned, edges, room, update
    )
    return found


def updates(layer: nn.Linear, edges: int) -> bool:
    """Whether the norm of u belongs into :func:`gated`: where it takes several kernels anyway."""
    return max(layer.weight.shape) <= MOST and edges > fused_norm.MOST_WHOLE_ROWS
