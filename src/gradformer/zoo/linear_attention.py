r"""Attention in time linear in the nodes: softmax by positive random features.

With directions :math:`w_1 \dots w_r \sim N(0, I)` and

.. math::
    \varphi(x) = r^{-1/2} e^{-|x|^2/2}\,[e^{w_1 \cdot x}, \dots, e^{w_r \cdot x}], \qquad
    \mathbb{E}\,\varphi(x) \cdot \varphi(y) = e^{x \cdot y},

the output

.. math::
    o_i = \frac{\varphi(x_i)^T \sum_j \varphi(y_j) v_j^T}{\varphi(x_i)^T \sum_j \varphi(y_j)}

tends to softmax attention with scores x·y; the error falls like :math:`r^{-1/2}`. A factor of each
weight that is itself a product, :math:`u_i \cdot g_j`, joins by the tensor products
:math:`\varphi(x_i) \otimes u_i` and :math:`\varphi(y_j) \otimes g_j`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradformer.attention.layout import Layout
from gradformer.model.segments import moved, pool


def query_features(x: Tensor, directions: Tensor) -> Tensor:
    """φ(x) up to a factor for each row and head, which cancels: [rows, heads, r].

    Shapes: x [rows, heads, c]; directions [heads, r, c].
    """
    exponent = _exponent(x, directions)
    return (exponent - exponent.detach().amax(dim=2, keepdim=True)).exp()


def key_features(y: Tensor, directions: Tensor, layout: Layout) -> Tensor:
    """φ(y) up to a factor for each graph and head, which cancels: [rows, heads, r]."""
    exponent = _exponent(y, directions)
    top = pool(exponent.detach().amax(dim=2), layout.node_ptr, "max")  # [graphs, heads]
    graph = layout.graph.clamp(max=layout.num_graphs - 1)
    return layout.rows.zero_padding((exponent - top[graph][:, :, None]).clamp(max=0.0).exp())


def linear_attention(query: Tensor, key: Tensor, value: Tensor, layout: Layout) -> Tensor:
    """Means of the values weighted by query · key > 0, inside each graph: [rows, heads, d].

    Shapes: query, key [rows, heads, f] features; value [rows, heads, d]. Rows of padding are zero.
    """
    graphs, largest = layout.num_graphs, layout.largest
    place = torch.arange(largest, device=layout.device)
    first, size = layout.node_ptr[:-1, None], layout.node_ptr.diff()[:, None]
    there = torch.where(place < size, first + place, -1).flatten()  # [graphs · largest]
    back = layout.graph * largest + layout.rows.index  # [rows]
    if layout.rows.mask is not None:
        back = torch.where(layout.rows.mask, back, -1)

    def dense(x: Tensor) -> Tensor:
        return moved(x, there, back).unflatten(0, (graphs, largest))

    queries, keys = dense(query), dense(key)
    state = torch.einsum("gmhf,gmhd->ghfd", keys, dense(value))
    total = torch.einsum("gmhf,ghf->gmh", queries, keys.sum(dim=1))
    mean = torch.einsum("gmhf,ghfd->gmhd", queries, state) / total.clamp(min=1e-30)[..., None]
    return moved(mean.flatten(0, 1), back, there)


def _exponent(x: Tensor, directions: Tensor) -> Tensor:
    """w · x − |x|²/2, [rows, heads, r]."""
    along = torch.einsum("nhc,hrc->nhr", x, directions)
    return along - 0.5 * x.square().sum(dim=2, keepdim=True)
