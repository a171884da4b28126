"""The attention on a CPU: the loops of :mod:`.loops.attention` as an autograd function."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from gradformer.attention.arguments import Call
from gradformer.attention.draws import threshold
from gradformer.attention.layout import Layout
from gradformer.attention.loops.attention import backward_kernel, forward_kernel
from gradformer.attention.loops.lanes import LANES
from gradformer.attention.loops.running import in_slices, plain_gradients, wants_plain
from gradformer.attention.reference import reference_attention
from gradformer.attention.tables import Table

PAIR = 10  # numbers that take as long as a pair of nodes


def _numbers(x: Tensor | None, *shape: int) -> NDArray[Any]:
    """A tensor as a float32 array; None as one without rows."""
    if x is None:
        return np.empty((0, *shape), np.float32)
    return x.detach().float().contiguous().numpy()


def _whole(d: int) -> int:
    """Channels that fill their lanes."""
    return d + -d % int(LANES)


def _flat(x: Tensor) -> NDArray[Any]:
    """x [nodes, heads, d] as a flat float32 array, with zeros behind the channels of each head."""
    lacking = _whole(x.shape[2]) - x.shape[2]
    return _numbers(pad(x.detach(), (0, lacking)) if lacking else x).reshape(-1)


class _Attention(torch.autograd.Function):
    """qkv [nodes, 3 · heads, d], mul and add [heads, 256], bias → out [nodes, heads, d]."""

    @staticmethod
    def forward(
        ctx: Any,
        qkv: Tensor,
        mul: Tensor | None,
        add: Tensor | None,
        bias: Tensor | None,
        layout: Layout,
        distance: Tensor,
        scale: float,
        dropout: float,
        seed: Tensor | None,
    ) -> Tensor:
        nodes, heads, d = len(qkv), qkv.shape[1] // 3, qkv.shape[2]
        out = qkv.new_zeros((nodes, heads, _whole(d)), dtype=torch.float32)
        softmax = qkv.new_empty((nodes, heads, 2), dtype=torch.float32)
        saved = qkv, mul, add, bias, softmax, distance, seed
        ctx.save_for_backward(*saved)  # so torch frees them, and sees if one is written to
        ctx.options = layout, scale, dropout
        problem = _problem(*saved, *ctx.options)
        _over_tasks(forward_kernel, layout, heads, *problem, out.view(-1).numpy())
        own = out if out.shape[2] == d else out[..., :d].contiguous()  # no view: it may be changed
        return own.to(qkv.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        layout, scale, dropout = ctx.options
        qkv, mul, add, bias, _, distance, seed = saved = ctx.saved_tensors
        if wants_plain(grad):

            def plain(qkv: Tensor, mul: Tensor, add: Tensor, bias: Tensor) -> list[Tensor]:
                q, k, v = qkv.chunk(3, dim=1)
                mul_table, add_table = (None if t is None else Table(t) for t in (mul, add))
                call = Call(
                    q, k, v, layout, distance, mul_table, add_table, bias, scale, dropout, seed
                )
                return [reference_attention(call)[0]]

            again = plain_gradients(plain, saved[:4], ctx.needs_input_grad, [grad])
            return *again, *(None,) * 5
        heads, (_, need_mul, need_add, need_bias) = grad.shape[1], ctx.needs_input_grad[:4]
        dqkv = np.zeros((*qkv.shape[:2], _whole(qkv.shape[2])), np.float32)
        dmul, dadd = (
            np.zeros((layout.num_graphs if need else 0, heads, 256), np.float32)
            for need in (need_mul, need_add)
        )
        dbias = np.zeros(bias.shape if need_bias else (0, heads), np.float32)
        gradients = dqkv.reshape(-1), dmul, dadd, dbias
        problem = _problem(*saved, *ctx.options)
        _over_tasks(backward_kernel, layout, heads, *problem, _flat(grad), *gradients)
        return (
            torch.from_numpy(dqkv)[..., : qkv.shape[2]].to(qkv.dtype),
            torch.from_numpy(dmul).sum(0).to(mul.dtype) if need_mul else None,
            torch.from_numpy(dadd).sum(0).to(add.dtype) if need_add else None,
            torch.from_numpy(dbias).to(bias.dtype) if need_bias else None,
            *(None,) * 5,
        )


def _problem(
    qkv: Tensor, mul: Tensor | None, add: Tensor | None, bias: Tensor | None, softmax: Tensor,
    distance: Tensor, seed: Tensor | None, layout: Layout, scale: float, dropout: float,
) -> tuple[Any, ...]:  # fmt: skip
    """What both kernels are given."""
    where = (layout.node_ptr, layout.pair_ptr, layout.packed_ptr, distance)
    keyed = [distance.new_empty(0, dtype=kind) for kind in (torch.int64, torch.int32, torch.int32)]
    if dropout > 0.0:
        assert seed is not None
        keyed = [seed, layout.rows.graph_id, layout.rows.index]
    return (
        *(_flat(qkv), _whole(qkv.shape[2])),
        *(x.contiguous().numpy() for x in where),
        *(_numbers(mul, 256), _numbers(add, 256), _numbers(bias, softmax.shape[1])),
        *(x.contiguous().numpy() for x in keyed),
        *(np.float32(scale), np.int32(threshold(dropout)), np.float32(1.0 / (1.0 - dropout))),
        softmax.numpy(),
    )


def _over_tasks(kernel: Any, layout: Layout, heads: int, *arguments: Any) -> None:
    """Every graph and head."""
    cost = PAIR * np.repeat(layout.node_ptr.diff().numpy().astype(np.int64) ** 2, heads)
    in_slices(kernel, cost, *arguments)


def cpu_attention(call: Call) -> Tensor:
    """See :func:`gradformer.decay_attention`; values are as wide as keys."""
    qkv = torch.cat([call.q, call.k, call.v], dim=1) if call.joint is None else call.joint
    where = call.layout, call.distance, call.scale, call.dropout, call.seed
    return _Attention.apply(qkv, *call.tables, call.bias, *where)
