"""Message passing in fused kernels: one launch forward and one or two backward for a module.

The plain forms beside them, which the tests compare with, are in :mod:`gradformer.model.local` and
:mod:`gradformer.model.segments`. Nothing is read back from the device, tile sizes follow from the
shapes, and sums run in a fixed order: the kernels can be captured and give the same bits twice.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from gradformer.errors import ConfigError
from gradformer.graphs.batch import Edges

Gradients = tuple[Tensor | None, ...]


# --- launching ------------------------------------------------------------------------------------


def _tile(channels: int, rows: int, segments: int) -> dict[str, int]:
    """Tile of edges and channels: short chunks where nodes have few edges on average."""
    block = 1 << (channels - 1).bit_length()
    chunk = 8 if rows < 12 * segments else 16
    warps = min(max(chunk * block // 256, 1), 8)
    return {"C": channels, "BLOCK_C": block, "CHUNK": chunk, "num_warps": warps}


def _edge_rows(e: Tensor) -> tuple[Tensor, int]:
    """``e`` [edges, c] as the kernels read it, and how far apart its rows are: 0 if all are one."""
    if e.stride(0) == 0 and e.stride(1) == 1:
        return e, 0
    return e.contiguous(), e.shape[1]


class _Refuse(torch.autograd.Function):
    """Hands gradients on, tied to what they depend on, so that a second derivative is an error."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor | None) -> Any:
        return tuple(None if t is None else t.view_as(t) for t in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise ConfigError(
            "fused message passing has no second derivative; use the reference engine for it: "
            "with gradformer.use_engine('reference'): …"
        )


def _once(backward: Callable[..., Gradients]) -> Callable[..., Gradients]:
    """A backward pass of kernels: the first derivative only."""

    @wraps(backward)
    def run(ctx: Any, *grads: Tensor | None) -> Gradients:
        results = backward(ctx, *grads)
        if not torch.is_grad_enabled():
            return results
        refused: Gradients = _Refuse.apply(len(results), *results, *grads, *ctx.saved_tensors)
        return refused

    return run


# --- sums and gathers ---------------------------------------------------------------------------


def segment_sum(values: Tensor, ptr: Tensor, order: Tensor | None) -> Tensor:
    """Sums of values[order[ptr[n] : ptr[n+1]]] for every n: [rows, …] → [len(ptr) − 1, …].

    ``order`` is any list of rows; None is all of them as they are.
    """
    from gradformer.model.message_kernels import sum_kernel

    values = values.contiguous()
    segments, channels = ptr.numel() - 1, values[:1].numel()
    out = values.new_empty(segments, *values.shape[1:])
    if not len(values):
        return out.zero_()
    if out.numel():
        sum_kernel[(segments,)](
            values, out, ptr, ptr, ptr, ptr if order is None else order,
            ORDERED=order is not None, GATHER=False, OWN=False, EPS=False,
            **_tile(channels, len(values if order is None else order), segments),
        )  # fmt: skip
    return out


def gather_real(x: Tensor, index: Tensor, ptr: Tensor) -> Tensor:
    """x[index] [rows, …], zero in rows from ``ptr[-1]`` on."""
    from gradformer.model.message_kernels import gather_kernel

    x = x.contiguous()
    rows, nodes = index.numel(), ptr.numel() - 1
    out = x.new_empty(rows, *x.shape[1:])
    if out.numel():
        tile = _tile(x[:1].numel(), rows, rows)
        gather_kernel[(-(-rows // tile["CHUNK"]),)](x, out, index, ptr, nodes, rows, **tile)
    return out


# --- GIN ------------------------------------------------------------------------------------------


def _neighbours(
    x: Tensor, eps: Tensor | None, ptr: Tensor, index: Tensor, order: Tensor | None
) -> Tensor:
    """(1 + ε) x_n + Σ x[index[k]] over the edges k of node n."""
    from gradformer.model.message_kernels import sum_kernel

    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        sum_kernel[(len(x),)](
            x, y, ptr if eps is None else eps, ptr, index, ptr if order is None else order,
            ORDERED=order is not None, GATHER=True, OWN=True, EPS=eps is not None,
            **_tile(x.shape[1], len(index), len(x)),
        )  # fmt: skip
    return y


def _eps_gradient(grad: Tensor, x: Tensor, eps: Tensor | None, needed: bool) -> Tensor | None:
    if eps is None or not needed:
        return None
    return (grad.float() * x.float()).sum().to(eps.dtype).view_as(eps)


class _Gin(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: Tensor | None, edges: Edges) -> Tensor:
        ctx.save_for_backward(x, eps)
        ctx.edges = edges
        return _neighbours(x, eps, edges.target_ptr, edges.source, None)

    @staticmethod
    @_once
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        (x, eps), edges = ctx.saved_tensors, ctx.edges
        dx = _neighbours(grad, eps, edges.source_ptr, edges.target, edges.by_source)
        return dx, _eps_gradient(grad, x, eps, ctx.needs_input_grad[1]), None


def gin(x: Tensor, eps: Tensor | None, edges: Edges) -> Tensor:
    """(1 + ε) x_t + Σ_{s→t} x_s; x [nodes, c], ε one number or None for 0."""
    y: Tensor = _Gin.apply(x, eps, edges)
    return y


# --- GINE -----------------------------------------------------------------------------------------


class _Gine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, e: Tensor, eps: Tensor | None, edges: Edges) -> Tensor:
        from gradformer.model.message_kernels import gine_kernel

        x, (e, e_row) = x.contiguous(), _edge_rows(e)
        ctx.save_for_backward(x, e, eps)
        ctx.edges = edges
        y = torch.empty_like(x, dtype=torch.promote_types(x.dtype, e.dtype))
        if x.numel():
            gine_kernel[(len(x),)](
                x, e, y, x if eps is None else eps, edges.source, edges.target_ptr,
                E_ROW=e_row, EPS=eps is not None, **_tile(x.shape[1], len(e), len(x)),
            )  # fmt: skip
        return y

    @staticmethod
    @_once
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        from gradformer.model.message_kernels import gine_gradient_kernel

        (x, e, eps), edges = ctx.saved_tensors, ctx.edges
        grad, (e, e_row) = grad.contiguous(), _edge_rows(e)
        dx, de = torch.empty_like(x), e.new_empty(e.shape)
        if x.numel():
            gine_gradient_kernel[(len(x),)](
                grad, x, e, dx, de, x if eps is None else eps, edges.target, edges.source_ptr,
                edges.by_source, edges.target_ptr, len(x), len(e),
                E_ROW=e_row, EPS=eps is not None, **_tile(x.shape[1], len(e), len(x)),
            )  # fmt: skip
        return dx, de, _eps_gradient(grad, x, eps, ctx.needs_input_grad[2]), None


def gine(x: Tensor, e: Tensor, eps: Tensor | None, edges: Edges) -> Tensor:
    """(1 + ε) x_t + Σ_{s→t} ReLU(x_s + e_st); x [nodes, c], e [edges, c] or one row expanded."""
    y: Tensor = _Gine.apply(x, e, eps, edges)
    return y


# --- GatedGCN -------------------------------------------------------------------------------------


class _Gated(torch.autograd.Function):
    """Keeps one edge tensor, u, beside four node tensors; gates are made again from u."""

    @staticmethod
    def forward(
        ctx: Any, terms: Tensor, c: Tensor, r: Tensor | None, edges: Edges
    ) -> tuple[Tensor, Tensor]:
        from gradformer.model.message_kernels import gated_kernel

        terms, (c, c_row) = terms.contiguous(), _edge_rows(c)
        r = None if r is None else r.contiguous()
        size = len(terms), c.shape[1]
        u = c.new_empty(c.shape, dtype=torch.promote_types(terms.dtype, c.dtype))
        h = terms.new_empty(size)
        mean, inverse = (torch.empty_like(h, dtype=torch.float32) for _ in range(2))
        if h.numel():
            gated_kernel[(len(terms),)](
                terms, c, c if r is None else r, u, h, mean, inverse,
                edges.source, edges.target_ptr, len(terms), len(c),
                C_ROW=c_row, POSITION=r is not None, **_tile(size[1], len(c), size[0]),
            )  # fmt: skip
        ctx.save_for_backward(terms, r, u, mean, inverse)
        ctx.edges, ctx.c_type = edges, c.dtype
        ctx.set_materialize_grads(False)
        return u, h

    @staticmethod
    @_once
    def backward(ctx: Any, u_grad: Tensor | None, dh: Tensor | None) -> Gradients:
        from gradformer.model.message_kernels import gated_source_kernel, gated_target_kernel

        (terms, r, u, mean, inverse), edges = ctx.saved_tensors, ctx.edges
        dh = torch.zeros_like(mean) if dh is None else dh.contiguous()
        u_grad = None if u_grad is None else u_grad.contiguous()
        d_terms, share = torch.empty_like(terms), torch.empty_like(mean)
        du = torch.empty_like(u, dtype=ctx.c_type)
        dr = None if r is None else torch.empty_like(r)
        if mean.numel():
            position = u if r is None else r
            tile = _tile(u.shape[1], len(u), len(terms))
            gated_target_kernel[(len(terms),)](
                dh, u if u_grad is None else u_grad, terms, position, u, mean, inverse,
                d_terms, du, u if dr is None else dr, share,
                edges.source, edges.target_ptr, len(terms), len(u),
                POSITION=r is not None, U_GRAD=u_grad is not None, **tile,
            )  # fmt: skip
            gated_source_kernel[(len(terms),)](
                position, u, du, share, d_terms, edges.target, edges.source_ptr, edges.by_source,
                POSITION=r is not None, **tile,
            )  # fmt: skip
        return d_terms, du, dr, None


def gated(terms: Tensor, c: Tensor, r: Tensor | None, edges: Edges) -> tuple[Tensor, Tensor]:
    r"""Edge states and node sums of the gated convolution.

    .. math::
        u_{st} = D_t + E_s + c_{st}, \qquad
        h_t = A_t + \frac{\sum_s \sigma(u_{st})\, r_{st}\, B_s}{\sum_s \sigma(u_{st})\, r_{st}
              + 10^{-6}}

    Args:
        terms: the columns A | D | B | E, [nodes, 4 c].
        c: [edges, c], or one row expanded; r: [edges, 1], or None for 1.

    Returns:
        u [edges, c], zero in padded rows, and h [nodes, c].
    """
    found: tuple[Tensor, Tensor] = _Gated.apply(terms, c, r, edges)
    return found
