"""The fused engine as an autograd function, and as a custom operator for ``torch.compile``.

Saved for the backward pass: q, k, v, out and one float for each row and head. The gradient of a
decay that has few parameters is contracted with their jacobian inside the kernel, and the sum over
its programs may be left for later: see :class:`~gradformer.attention.tables.Shares`; a free table
gets its full [heads, 256] gradient. dq, dk and dv are written side by side, [nodes, 3 · heads, d]:
if q, k and v came as such a tensor, that is its gradient, and nothing has to be copied together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from gradformer.attention import launch
from gradformer.attention.launch import WHOLE
from gradformer.attention.layout import Layout
from gradformer.attention.once import no_second_derivative
from gradformer.attention.tables import Table


def _three(q: Tensor, k: Tensor | None, v: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v with contiguous channels; without k and v, q holds all three side by side."""
    parts = q.chunk(3, dim=1) if k is None or v is None else (q, k, v)
    q, k, v = (x if x.stride(2) == 1 else x.contiguous() for x in parts)
    return q, k, v


def _attend(
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    node_ptr: Tensor,
    pair_ptr: Tensor,
    graph_id: Tensor,
    distance: Tensor,
    mul: Tensor | None,
    add: Tensor | None,
    mul_parameters: Tensor | None,
    mul_jacobian: Tensor | None,
    add_parameters: Tensor | None,
    add_jacobian: Tensor | None,
    seed: Tensor | None,
    bias: Tensor | None,
    packed_ptr: Tensor | None,
    scale: float,
    dropout: float,
    largest: int,
    padded: bool,
    symmetric: bool,
    shares: int,
) -> tuple[Tensor, Tensor]:
    problem = launch.Problem(
        *_three(q, k, v), node_ptr, pair_ptr, graph_id, distance, mul, add, seed,
        bias, packed_ptr, scale, dropout, largest, padded, symmetric,
    )  # fmt: skip
    return launch.forward(problem)


_forward = torch.library.custom_op("gradformer::decay_attention", _attend, mutates_args=())


@_forward.register_fake
def _(q: Tensor, k: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor]:
    nodes, heads, d = q.shape
    heads = heads // 3 if k is None else heads
    return q.new_empty(nodes, heads, d), q.new_empty(nodes, heads, dtype=torch.float32)


def _differentiate(
    grad: Tensor,
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    out: Tensor,
    lse: Tensor,
    node_ptr: Tensor,
    pair_ptr: Tensor,
    graph_id: Tensor,
    distance: Tensor,
    mul: Tensor | None,
    add: Tensor | None,
    mul_jacobian: Tensor | None,
    add_jacobian: Tensor | None,
    seed: Tensor | None,
    bias: Tensor | None,
    packed_ptr: Tensor | None,
    scale: float,
    dropout: float,
    largest: int,
    padded: bool,
    symmetric: bool,
    shares: int,
    mul_count: int,
    add_count: int,
    need_bias: bool,
    need_keys: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    problem = launch.Problem(
        *_three(q, k, v), node_ptr, pair_ptr, graph_id, distance, mul, add, seed,
        bias, packed_ptr, scale, dropout, largest, padded, symmetric,
    )  # fmt: skip
    return launch.backward(
        problem, grad.contiguous(), out, lse, mul_jacobian, add_jacobian,
        mul_count, add_count, need_bias, need_keys, shares,
    )  # fmt: skip


_backward = torch.library.custom_op(
    "gradformer::decay_attention_backward", _differentiate, mutates_args=()
)


@_backward.register_fake
def _(grad: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    nodes, heads, d = grad.shape
    bias, (shares, mul_count, add_count, need_bias, _) = rest[14], rest[-5:]

    def decay(count: int) -> Tensor:
        shape = (heads, WHOLE) if count == WHOLE else (heads, 2, shares)
        return grad.new_empty(shape, dtype=torch.float32)

    size = bias.shape if need_bias else (0,)
    dbias = grad.new_empty(size, dtype=torch.float32)
    return grad.new_empty(nodes, 3 * heads, d), decay(mul_count), decay(add_count), dbias


def _no_second_backward(ctx: Any, *grads: Tensor) -> None:
    raise no_second_derivative("engine")


_backward.register_autograd(_no_second_backward)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    (q, k, v, node_ptr, pair_ptr, graph_id, distance, mul, add,
     _, mul_jacobian, _, add_jacobian, seed, bias, packed_ptr, *ctx.numbers) = inputs  # fmt: skip
    out, lse = output
    ctx.save_for_backward(
        q, k, v, out, lse, node_ptr, pair_ptr, graph_id, distance, mul, add,
        mul_jacobian, add_jacobian, seed, bias, packed_ptr,
    )  # fmt: skip
    ctx.mark_non_differentiable(lse)
    ctx.set_materialize_grads(False)  # no zeros for lse


def _gradients(
    ctx: Any, grad: Tensor | None, _: Tensor, run: Callable[..., Any] = _backward
) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * len(ctx.needs_input_grad)
    saved = ctx.saved_tensors
    mul, add, mul_jacobian, add_jacobian = saved[9:13]
    # inputs: 0 q, 1 k, 2 v, 7 mul, 8 add, 9 mul_parameters, 11 add_parameters, 14 bias
    need, packed = ctx.needs_input_grad, saved[1] is None
    mul_count = len(mul_jacobian) if need[9] else WHOLE if need[7] else 0
    add_count = len(add_jacobian) if need[11] else WHOLE if need[8] else 0
    need_keys = need[0] if packed else need[1] or need[2]
    gradients, dmul, dadd, dbias = run(
        grad, *saved, *ctx.numbers, mul_count, add_count, need[14], need_keys
    )
    parts = (gradients, None, None) if packed else gradients.chunk(3, dim=1)
    three = tuple(part if asked else None for part, asked in zip(parts, need))
    tables = (
        dmul.to(mul.dtype) if need[7] and not need[9] else None,
        dadd.to(add.dtype) if need[8] and not need[11] else None,
        dmul[:, :mul_count] if need[9] else None,
        None,
        dadd[:, :add_count] if need[11] else None,
        None,
    )
    return (*three, *(None,) * 4, *tables, None, dbias if need[14] else None, *(None,) * 7)


_forward.register_autograd(_gradients, setup_context=_setup)


class _Attention(torch.autograd.Function):
    """The same without an operator's costs, which for small graphs are more than the kernels'."""

    forward = staticmethod(_attend)
    setup_context = staticmethod(_setup)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        # Where a graph of gradients is made, the operator refuses a second derivative.
        return _gradients(ctx, grad, _, _backward if torch.is_grad_enabled() else _differentiate)


def fused_attention(
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    layout: Layout,
    distance: Tensor,
    mul: Table | None,
    add: Table | None,
    scale: float,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """See :func:`gradformer.decay_attention`; without k and v, q is [nodes, 3 · heads, d]."""
    p = launch.Problem(
        *(q, q, q),  # k and v have no say here
        layout.node_ptr.contiguous(),
        layout.pair_ptr.contiguous(),
        layout.graph_id.contiguous(),
        distance.contiguous(),
        _value(mul),
        _value(add),
        seed.contiguous() if seed is not None and dropout > 0.0 else None,
        None if bias is None else bias.float().contiguous(),
        None if bias is None else _packed_ptr(layout),
        scale,
        dropout,
        layout.largest,
        layout.padded,
        layout.symmetric,
    )
    later = torch.is_grad_enabled() and not torch.compiler.is_compiling()
    shares = max(p.shares, 1) if later else 1
    learned = (*_parameters(mul, shares), *_parameters(add, shares))
    numbers = (p.scale, p.dropout, p.largest, p.padded, p.symmetric, shares)
    traced = torch.compiler.is_compiling() or type(q) not in (Tensor, nn.Parameter)
    out: Tensor
    out, _ = (_forward if traced else _Attention.apply)(
        q, k, v, *p.where, p.mul, p.add, *learned, p.seed, p.bias, p.packed_ptr, *numbers
    )
    return out


def _packed_ptr(layout: Layout) -> Tensor:
    """Where each graph's pairs begin; made anew in a compiled graph, which cannot hold a cache."""
    return layout.packed_starts() if torch.compiler.is_compiling() else layout.packed_ptr


def _contracts(table: Table | None) -> bool:
    """Whether the kernels contract the gradient with a jacobian: of one or two parameters."""
    if table is None or table.parameters is None or table.jacobian is None:
        return False
    return table.parameters.requires_grad and 1 <= len(table.jacobian) <= 2


def _parameters(table: Table | None, shares: int) -> tuple[Tensor | None, Tensor | None]:
    """The parameters of such a table [heads, p, shares], and its jacobian."""
    if table is None or table.jacobian is None or not _contracts(table):
        return None, None
    return table.spread(shares), table.jacobian.float().contiguous()


def _value(table: Table | None) -> Tensor | None:
    """Values of a table, without a graph where parameters take the gradient."""
    if table is None:
        return None
    value = table.value.detach() if _contracts(table) else table.value
    return value.float().contiguous()
