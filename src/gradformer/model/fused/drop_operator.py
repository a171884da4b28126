"""Dropout as one operator for ``torch.compile``.

Its compiler would write the hash of a draw out anew at each of its many uses, and took half a
minute for one dropout. The gradient is the same dropout of the gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gradformer.attention.layout import Rows
from gradformer.model.parts import Draw


def _apply(
    x: Tensor, graph_id: Tensor, index: Tensor, seed: Tensor, p: float, whole_graphs: bool
) -> Tensor:
    return Draw(p, Rows(graph_id, index), seed, whole_graphs)(x.contiguous())


_drop = torch.library.custom_op("gradformer::drop", _apply, mutates_args=())


@_drop.register_fake
def _(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, *tensors, ctx.p, ctx.whole_graphs = inputs
    ctx.save_for_backward(*tensors)


def _gradient(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return _drop(grad, *ctx.saved_tensors, ctx.p, ctx.whole_graphs), *(None,) * 5


_drop.register_autograd(_gradient, setup_context=_setup)


def drop_operator(x: Tensor, draw: Draw) -> Tensor:
    """``draw(x)``, [rows, c]."""
    rows = draw.rows
    return _drop(x, rows.graph_id, rows.index, draw.seed, draw.p, draw.whole_graphs)
