"""The gated convolution in five Triton kernels; the plain form is ``local.GatedGCN``.

Forward one over edge rows makes u, the map of the edge states inside it, and one over nodes makes
the sums. Backward one makes du and all that is summed by target, one what is summed by source, and
one the gradients of the map. Two edge tensors are kept: the edge states and u.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gradformer.attention.fused import precision
from gradformer.graphs.batch import Edges
from gradformer.model.fused_linear import FLOAT32
from gradformer.model.fused_messages import edge_rows, tile
from gradformer.model.once import Gradients, once
from gradformer.model.parts import linear
from gradformer.model.pieces import Claim, claim

PIECES = 132  # at most, that gradients of the map are summed in: a program on each core
ROWS = 64  # of a tile
MOST = 64  # channels up to which a program can hold the map


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, terms: Tensor, e: Tensor, weight: Tensor | None, bias: Tensor | None,
        r: Tensor | None, edges: Edges, room: Claim | None,
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
        ctx.save_for_backward(terms, kept, weight, r, u, mean, inverse)
        ctx.edges, ctx.room = edges, room
        ctx.set_materialize_grads(False)
        return u, h, e

    @staticmethod
    @once("gated convolution")
    def backward(
        ctx: Any, u_grad: Tensor | None, dh: Tensor | None, e_grad: Tensor | None
    ) -> Gradients:
        from gradformer.model.gated_kernels import (
            map_gradient_kernel,
            source_gradient_kernel,
            target_gradient_kernel,
        )

        (terms, e, weight, r, u, mean, inverse), edges = ctx.saved_tensors, ctx.edges
        dh = torch.zeros_like(mean) if dh is None else dh.contiguous()
        u_grad = None if u_grad is None else u_grad.contiguous()
        count, (nodes, channels) = len(u), mean.shape
        du, d_terms = torch.empty_like(u), torch.empty_like(terms)
        dr = None if r is None else torch.empty_like(r)
        if mean.numel():
            position, size = u if r is None else r, tile(channels, count, nodes)
            target_gradient_kernel[(nodes,)](
                dh, u if u_grad is None else u_grad, terms, position, u, mean, inverse,
                d_terms, du, u if dr is None else dr,
                edges.source, edges.target_ptr, nodes, count,
                POSITION=r is not None, U_GRAD=u_grad is not None, **size,
            )  # fmt: skip
            source_gradient_kernel[(nodes,)](
                dh, position, u, du, inverse, d_terms,
                edges.target, edges.source_ptr, edges.by_source, POSITION=r is not None, **size,
            )  # fmt: skip
        none = (None, None)
        if weight is None:
            return d_terms, du, None, None, dr, *none
        width, e_grad = e.shape[1], None if e_grad is None else e_grad.contiguous()
        de, pieces = e.new_empty(e.shape), _pieces(count)
        if ctx.room is None:
            dw = mean.new_empty(pieces, channels * (width + 1))
            db = dw[:, channels * width :]
        else:
            dw, db = ctx.room.open(u.device)
        if count:
            map_gradient_kernel[(pieces,)](
                du, du if e_grad is None else e_grad, e, weight, de, dw, db, edges.target_ptr,
                nodes, count, _chunk(count), dw.stride(0), db.stride(0),
                E_ROW=edge_rows(e)[1], E_GRAD=e_grad is not None,
                num_warps=8, **_edge_tile(width, channels, terms.dtype),
            )  # fmt: skip
        if ctx.room is not None:
            return d_terms, de, None, None, dr, *none
        weights, biases = dw.sum(0).to(weight.dtype).split([channels * width, channels])
        return d_terms, de, weights.view_as(weight), biases, dr, *none


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
    terms: Tensor, e: Tensor, layer: nn.Linear, r: Tensor | None, edges: Edges
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
        u [edges, c], zero in padded rows, h [nodes, c], and e: what is done with it later sends its
        gradient through the kernel, which adds it to its own.
    """
    if max(layer.weight.shape) > MOST:
        mapped, e = linear(e, layer, pass_on=True)
        u, h, _ = _Gated.apply(terms, mapped, None, None, r, edges, None)
        return u, h, e
    room = claim(_pieces(len(e)), layer.weight, layer.bias) if len(e) else None
    found: tuple[Tensor, Tensor, Tensor] = _Gated.apply(
        terms, e, layer.weight, layer.bias, r, edges, room
    )
    return found
