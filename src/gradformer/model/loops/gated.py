r"""The gated convolution as loops for a CPU, both ways; plainly ``model.gated.GatedGCN``.

Between the map of the edge states and the norms, all is done edge by edge in the cache: one pass
over the edges forward makes u in the place of the map's result and the sums at the targets; one
pass backward makes du and all sums of it. With :math:`m_t = \sum_s g_{st} B x_s / n_t`,
:math:`n_t = \sum_s g_{st} + 10^{-6}` and the gradient :math:`\dot h_t` of :math:`A x_t + m_t`,

.. math::
    \dot u_{st} \mathrel{+}= \frac{\dot h_t}{n_t} (B x_s - m_t)\, r_{st}\, \sigma'(u_{st}), \qquad
    \dot B_s = \sum_t g_{st} \frac{\dot h_t}{n_t}.

Backward the graphs are shared out between threads, as an edge adds to both of its nodes.
Shapes: terms [nodes, 4c] (A, D, B, E); u [edges, c]; r [edges] or [0]; given, what du begins with,
[edges, c] or [0, c]; h, mean, total, slope [nodes, c]. Loops write to few arrays at once, as
compilers make vectors of no others.
"""

# The kernels' arguments are untyped.
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import linear

from gradformer.attention.loops.attention import exp, index
from gradformer.attention.loops.running import in_slices, plain_gradients
from gradformer.graphs.batch import Edges
from gradformer.model.gated import plain_gates
from gradformer.structure.parallel import inlined, vectorised

_0, _1, _2, _3 = (np.uintp(n) for n in range(4))
_ONE, _ZERO, _TINY = np.float32(1.0), np.float32(0.0), np.float32(1e-6)


@inlined
def _sigmoid(x):
    z = exp(-abs(x))
    return (_ONE if x >= _ZERO else z) / (_ONE + z)


@vectorised
def forward_kernel(first, last, terms, bias, u, r, source, ptr, h, mean, total):
    c = index(u.shape[1])
    gate = np.empty((1, c), np.float32)
    for t in range(index(first), index(last)):
        for j in range(c):
            mean[t, j] = _ZERO
        for j in range(c):
            total[t, j] = _TINY
        for edge in range(index(ptr[t]), index(ptr[t + _1])):
            s = index(source[edge])
            open_ = r[edge] if len(r) else _ONE
            for j in range(c):
                u[edge, j] += terms[t, c + j] + terms[s, _3 * c + j] + bias[j]
            for j in range(c):
                gate[_0, j] = _sigmoid(u[edge, j]) * open_
            for j in range(c):
                mean[t, j] += gate[_0, j] * terms[s, _2 * c + j]
            for j in range(c):
                total[t, j] += gate[_0, j]
        for j in range(c):
            mean[t, j] /= total[t, j]
        for j in range(c):
            h[t, j] = terms[t, j] + mean[t, j]


@vectorised
def backward_kernel(
    first, last, node_ptr, terms, u, r, source, ptr, mean, slope, given, du, dr, dterms
):
    """du, dr, and what D, B and E get, which are zero before."""
    c = index(u.shape[1])
    gate = np.empty((1, c), np.float32)
    for t in range(index(node_ptr[first]), index(node_ptr[last])):
        for edge in range(index(ptr[t]), index(ptr[t + _1])):
            s = index(source[edge])
            open_ = r[edge] if len(r) else _ONE
            for j in range(c):
                gate[_0, j] = _sigmoid(u[edge, j])
            if len(r):
                for j in range(c):
                    apart = terms[s, _2 * c + j] - mean[t, j]
                    dr[edge] += slope[t, j] * apart * gate[_0, j]
            for j in range(c):
                apart = terms[s, _2 * c + j] - mean[t, j]
                through = open_ * gate[_0, j] * (_ONE - gate[_0, j])
                du[edge, j] = slope[t, j] * apart * through
            if len(given):
                for j in range(c):
                    du[edge, j] += given[edge, j]
            for j in range(c):
                dterms[t, c + j] += du[edge, j]
            for j in range(c):
                dterms[s, _2 * c + j] += open_ * gate[_0, j] * slope[t, j]
            for j in range(c):
                dterms[s, _3 * c + j] += du[edge, j]


class _Gates(torch.autograd.Function):
    """(terms, e, weight, bias, r [edges, 1] or None) → (u, h)."""

    @staticmethod
    def forward(
        ctx: Any, terms: Tensor, e: Tensor, weight: Tensor, bias: Tensor, r: Tensor | None,
        edges: Edges, node_ptr: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        ctx.set_materialize_grads(False)
        ctx.edges, ctx.node_ptr = edges, node_ptr
        u = (e[:1] @ weight.T).repeat(len(e), 1) if _is_one_row(e) else e @ weight.T
        h, mean, total = (u.new_empty(len(terms), u.shape[1]) for _ in range(3))
        gates = u.new_empty(0) if r is None else r.flatten()
        shown = (terms, bias, u, gates, edges.source, edges.target_ptr, h, mean, total)
        in_slices(forward_kernel, _cost(edges.target_ptr, u.shape[1]), *shown)
        ctx.save_for_backward(terms, e, weight, bias, r, u, mean, total)
        return u, h

    @staticmethod
    def backward(  # type: ignore[override]
        ctx: Any, given: Tensor | None, dh: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        *inputs, u, mean, total = ctx.saved_tensors
        edges, needed = ctx.edges, ctx.needs_input_grad
        dh = torch.zeros_like(mean) if dh is None else dh
        if torch.is_grad_enabled():

            def plain(terms: Tensor, e: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Any:
                return plain_gates(terms, linear(e, w, b), r, edges)

            grads = torch.zeros_like(u) if given is None else given, dh
            return *plain_gradients(plain, inputs, needed, grads), None, None
        terms, e, weight, _, r = inputs
        gates = u.new_empty(0) if r is None else r.flatten()
        slope, dr, channels = dh / total, torch.zeros_like(gates), u.shape[1]
        du, dterms = torch.empty_like(u), u.new_zeros(terms.shape)
        du[int(edges.target_ptr[-1]) :] = 0.0  # of padding
        dterms[:, :channels] = dh
        given = u.new_empty(0, channels) if given is None else given
        shown = (terms, u, gates, edges.source, edges.target_ptr, mean, slope, given, du, dr)
        cost = _cost(edges.target_ptr[ctx.node_ptr.long()], channels)
        in_slices(backward_kernel, cost, ctx.node_ptr, *shown, dterms)
        dbias = dterms[:, channels : 2 * channels].sum(0)  # every edge has one target
        return (
            dterms,
            du @ weight if needed[1] else None,
            dbias[:, None] * e[:1] if _is_one_row(e) else du.T @ e,
            dbias,
            None if r is None else dr.view_as(r),
            *(None, None),
        )


def _is_one_row(e: Tensor) -> bool:
    """Whether one row is expanded to all edges, as where data have no edge features."""
    return len(e) > 1 and e.stride(0) == 0


def _cost(ptr: Tensor, channels: int) -> NDArray[np.int64]:
    """Numbers of the edges of each node or graph, which begin at ``ptr``."""
    return (np.diff(ptr.numpy()) + 1) * np.int64(channels)


def looped_gates(
    terms: Tensor, e: Tensor, weight: Tensor, bias: Tensor, r: Tensor | None, edges: Edges,
    node_ptr: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """:func:`gradformer.model.gated.plain_gates` of C e by loops, in float32.

    ``node_ptr`` [graphs + 1] says where graphs begin.
    """
    u, h = _Gates.apply(terms, e, weight, bias, r, edges, node_ptr)
    return u, h
