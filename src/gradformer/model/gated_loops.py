r"""The gated convolution as loops for a CPU, forward and backward; plainly ``local.GatedGCN``.

Between the map of the edge states and the norms, all is done edge by edge in the cache: forward one
pass over the edges makes u in the place of the map's result and the sums at the targets; backward
one pass makes du, one sums it to the sources. With :math:`m_t = \sum_s g_{st} B x_s / n_t`,
:math:`n_t = \sum_s g_{st} + 10^{-6}` and the gradient :math:`\dot h_t` of :math:`A x_t + m_t`,

.. math::
    \dot u_{st} \mathrel{+}= \frac{\dot h_t}{n_t} (B x_s - m_t)\, r_{st}\, \sigma'(u_{st}), \qquad
    \dot B_s = \sum_t g_{st} \frac{\dot h_t}{n_t}.

Shapes: terms [nodes, 4c] (A, D, B, E); u [edges, c]; r [edges] or [0]; h, mean, total, slope
[nodes, c]. Loops write to few arrays at once, as compilers make vectors of no others.
"""

# The kernels' arguments are untyped.
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear

from gradformer.attention.cpu_kernels import exp
from gradformer.attention.loops import plain_gradients
from gradformer.graphs.batch import Edges
from gradformer.model.local import plain_gates
from gradformer.structure.parallel import inlined, over_slices, vectorised

LEAST_WORK = 300_000  # numbers of edge states, below which a second thread is not worth its start
_ONE, _ZERO, _TINY = np.float32(1.0), np.float32(0.0), np.float32(1e-6)


@inlined
def _sigmoid(x):
    z = exp(-abs(x))
    return (_ONE if x >= _ZERO else z) / (_ONE + z)


@vectorised
def forward_kernel(first, last, terms, u, r, source, ptr, h, mean, total):
    c = u.shape[1]
    for t in range(first, last):
        for j in range(c):
            mean[t, j] = _ZERO
            total[t, j] = _TINY
        for edge in range(ptr[t], ptr[t + 1]):
            s = source[edge]
            open_ = r[edge] if len(r) else _ONE
            for j in range(c):
                u[edge, j] += terms[t, c + j] + terms[s, 3 * c + j]
            for j in range(c):
                gate = _sigmoid(u[edge, j]) * open_
                mean[t, j] += gate * terms[s, 2 * c + j]
                total[t, j] += gate
        for j in range(c):
            mean[t, j] /= total[t, j]
        for j in range(c):
            h[t, j] = terms[t, j] + mean[t, j]


@vectorised
def target_kernel(first, last, terms, u, r, source, ptr, mean, slope, given, du, dr, dterms):
    """du: what is given and what comes through the gates; and its sum at the targets' D."""
    c = u.shape[1]
    for t in range(first, last):
        for j in range(c):
            dterms[t, c + j] = _ZERO
        for edge in range(ptr[t], ptr[t + 1]):
            s = source[edge]
            open_ = r[edge] if len(r) else _ONE
            if len(r):
                for j in range(c):
                    apart = terms[s, 2 * c + j] - mean[t, j]
                    dr[edge] += slope[t, j] * apart * _sigmoid(u[edge, j])
            for j in range(c):
                gate = _sigmoid(u[edge, j])
                apart = terms[s, 2 * c + j] - mean[t, j]
                through = open_ * gate * (_ONE - gate)
                du[edge, j] = given[edge, j] + slope[t, j] * apart * through
            for j in range(c):
                dterms[t, c + j] += du[edge, j]


@vectorised
def source_kernel(first, last, u, r, target, by_source, ptr, slope, du, dterms):
    """What B and E of the sources get."""
    c = u.shape[1]
    total = np.empty((2, c), np.float32)
    for s in range(first, last):
        for j in range(c):
            total[0, j] = _ZERO
            total[1, j] = _ZERO
        for place in range(ptr[s], ptr[s + 1]):
            edge = by_source[place]
            t = target[edge]
            open_ = r[edge] if len(r) else _ONE
            for j in range(c):
                total[0, j] += open_ * _sigmoid(u[edge, j]) * slope[t, j]
            for j in range(c):
                total[1, j] += du[edge, j]
        for j in range(c):
            dterms[s, 2 * c + j] = total[0, j]
        for j in range(c):
            dterms[s, 3 * c + j] = total[1, j]


class _Gates(torch.autograd.Function):
    """(terms, e, weight, bias, r [edges, 1] or None) → (u, h)."""

    @staticmethod
    def forward(
        ctx: Any, terms: Tensor, e: Tensor, weight: Tensor, bias: Tensor, r: Tensor | None,
        edges: Edges,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        u = linear(e, weight, bias)
        h, mean, total = (u.new_empty(len(terms), u.shape[1]) for _ in range(3))
        gates = u.new_empty(0) if r is None else r.flatten()
        shown = (terms, u, gates, edges.source, edges.target_ptr, h, mean, total)
        _over_nodes(forward_kernel, edges.target_ptr, u.shape[1], *shown)
        ctx.edges = edges
        ctx.save_for_backward(terms, e, weight, bias, r, u, mean, total)
        return u, h

    @staticmethod
    def backward(ctx: Any, given: Tensor, dh: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        *inputs, u, mean, total = ctx.saved_tensors
        edges, needed = ctx.edges, ctx.needs_input_grad
        if torch.is_grad_enabled():

            def plain(terms: Tensor, e: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Any:
                return plain_gates(terms, linear(e, w, b), r, edges)

            return *plain_gradients(plain, inputs, needed, (given, dh)), None
        terms, e, weight, _, r = inputs
        gates = u.new_empty(0) if r is None else r.flatten()
        slope, dr, channels = dh / total, torch.zeros_like(gates), u.shape[1]
        du, dterms = torch.empty_like(u), u.new_empty(terms.shape)
        du[int(edges.target_ptr[-1]) :] = 0.0  # of padding
        dterms[:, :channels] = dh
        shown = (terms, u, gates, edges.source, edges.target_ptr, mean, slope, given, du, dr)
        _over_nodes(target_kernel, edges.target_ptr, channels, *shown, dterms)
        back = (edges.target, edges.by_source, edges.source_ptr, slope, du, dterms)
        _over_nodes(source_kernel, edges.source_ptr, channels, u, gates, *back)
        return (
            dterms,
            du @ weight if needed[1] else None,
            du.T @ e,
            dterms[:, channels : 2 * channels].sum(0),  # every edge has one target
            None if r is None else dr.view_as(r),
            None,
        )


def _over_nodes(kernel: Any, ptr: Tensor, channels: int, *tensors: Tensor) -> None:
    """All nodes, whose edges begin at ``ptr``, on as many threads as torch has."""
    arrays = [x.detach().contiguous().numpy() for x in tensors]
    over_slices(
        lambda first, last: kernel(first, last, *arrays),
        (np.diff(ptr.numpy()) + 1) * np.int64(channels),
        smallest=LEAST_WORK,
        threads=torch.get_num_threads(),
    )


def looped_gates(
    terms: Tensor, e: Tensor, weight: Tensor, bias: Tensor, r: Tensor | None, edges: Edges
) -> tuple[Tensor, Tensor]:
    """:func:`gradformer.model.local.plain_gates` of C e by loops, in float32."""
    u, h = _Gates.apply(terms, e, weight, bias, r, edges)
    return u, h
