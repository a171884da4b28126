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

from dataclasses import dataclass

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
    return layout.rows.zero_padding((exponent - top[layout.slot][:, :, None]).clamp(max=0.0).exp())


@dataclass(frozen=True, eq=False)
class Places:
    """The rows of a batch as dense tensors [graphs, largest, …], and back.

    Shapes: row [graphs · largest], of each place, −1 where there is none; place [rows], of each
    row, −1 where it is padding.
    """

    shape: tuple[int, int]
    row: Tensor
    place: Tensor

    @classmethod
    def of(cls, layout: Layout) -> Places:
        largest = layout.largest
        index = torch.arange(largest, device=layout.device)
        first, size = layout.node_ptr[:-1, None], layout.node_ptr.diff()[:, None]
        row = torch.where(index < size, first + index, -1).flatten()
        place = layout.graph * largest + layout.rows.index
        if layout.rows.mask is not None:
            place = torch.where(layout.rows.mask, place, -1)
        return cls((layout.num_graphs, largest), row, place)

    def dense(self, x: Tensor) -> Tensor:
        """[rows, …] → [graphs, largest, …], zero where there is no row."""
        return moved(x, self.row, self.place).unflatten(0, self.shape)

    def packed(self, x: Tensor) -> Tensor:
        """[graphs, largest, …] → [rows, …]; rows of padding are zero."""
        return moved(x.flatten(0, 1), self.place, self.row)


def linear_attention(query: Tensor, key: Tensor, value: Tensor, places: Places) -> Tensor:
    """Means of the values weighted by query · key > 0, inside each graph: [rows, heads, d].

    Shapes: query, key [rows, heads, f] features; value [rows, heads, d]. Rows of padding are zero.
    """
    queries, keys = places.dense(query), places.dense(key)
    state = torch.einsum("gmhf,gmhd->ghfd", keys, places.dense(value))
    total = torch.einsum("gmhf,ghf->gmh", queries, keys.sum(dim=1))
    mean = torch.einsum("gmhf,ghfd->gmhd", queries, state) / total.clamp(min=1e-30)[..., None]
    return places.packed(mean)


def _exponent(x: Tensor, directions: Tensor) -> Tensor:
    """w · x − |x|²/2, [rows, heads, r]."""
    along = torch.einsum("nhc,hrc->nhr", x, directions)
    return along - 0.5 * x.square().sum(dim=2, keepdim=True)
