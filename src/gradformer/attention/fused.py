"""The fused engine as an autograd function, and as a custom operator for ``torch.compile``.

Saved for the backward pass: q, k, v, out and one float for each row and head. The gradient of a
decay that has few parameters is contracted with their jacobian inside the kernel, and the sum over
its programs may be left for later: see :class:`~gradformer.attention.tables.Shares`; a free table
gets its full [heads, 256] gradient. dq, dk and dv are written side by side, [nodes, 3 · heads, d]:
if q, k and v came as such a tensor, that is its gradient, and nothing has to be copied together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gradformer.attention.arguments import Call
from gradformer.attention.kernels import launch
from gradformer.attention.kernels.launch import WHOLE
from gradformer.attention.kernels.once import no_second_derivative
from gradformer.attention.layout import Layout
from gradformer.attention.tables import Table

GIVEN = (
    "Tensor q, Tensor? k, Tensor? v, Tensor node_ptr, Tensor pair_ptr, Tensor graph_id, "
    "Tensor distance, Tensor? mul, Tensor? add, Tensor? seed, Tensor? bias, Tensor? packed_ptr, "
    "Tensor? mul_jacobian, Tensor? add_jacobian"
)
NUMBERS = "float scale, float dropout, SymInt largest, bool padded, bool symmetric, SymInt shares"
LEARNED = "Tensor? mul_parameters, Tensor? add_parameters"
ASKED = "SymInt mul_count, SymInt add_count, bool need_bias, bool need_keys"
"""What the two operators take: tensors and numbers alike, then each its own."""
TENSORS = GIVEN.count(",") + 1
ALIKE = TENSORS + NUMBERS.count(",") + 1


def _problem(given: Sequence[Any], numbers: Sequence[Any]) -> launch.Problem:
    """Of q, k, v with contiguous channels; without k and v, q holds all three side by side."""
    q, k, v, *rest = given[:-2]
    parts = q.chunk(3, dim=1) if k is None else (q, k, v)
    three = (x if x.stride(2) == 1 else x.contiguous() for x in parts)
    return launch.Problem(*three, *rest, *numbers[:-1])


def _attend(*inputs: Any) -> tuple[Tensor, Tensor]:
    """GIVEN, NUMBERS, LEARNED → out, lse."""
    return launch.forward(_problem(inputs[:TENSORS], inputs[TENSORS:ALIKE]))


_forward = torch.library.custom_op(
    "gradformer::decay_attention",
    _attend,
    mutates_args=(),
    schema=f"({GIVEN}, {NUMBERS}, {LEARNED}) -> (Tensor, Tensor)",
)


@_forward.register_fake
def _(q: Tensor, k: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor]:
    nodes, heads, d = q.shape
    heads = heads // 3 if k is None else heads
    return q.new_empty(nodes, heads, d), q.new_empty(nodes, heads, dtype=torch.float32)


def _differentiate(grad: Tensor, out: Tensor, lse: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    """grad, out, lse, GIVEN, NUMBERS, ASKED → gradients as :func:`launch.backward` makes them."""
    given, numbers, asked = rest[:TENSORS], rest[TENSORS:ALIKE], rest[ALIKE:]
    return launch.backward(
        _problem(given, numbers), grad.contiguous(), out, lse, *given[-2:], *asked, *numbers[-1:]
    )


_backward = torch.library.custom_op(
    "gradformer::decay_attention_backward",
    _differentiate,
    mutates_args=(),
    schema=f"(Tensor grad, Tensor out, Tensor lse, {GIVEN}, {NUMBERS}, {ASKED})"
    " -> (Tensor, Tensor, Tensor, Tensor)",
)


@_backward.register_fake
def _(grad: Tensor, out: Tensor, lse: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    nodes, heads, d = grad.shape
    *_, bias, _, _, _ = rest[:TENSORS]
    shares, mul_count, add_count, need_bias, _ = rest[ALIKE - 1 :]

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
    ctx.save_for_backward(*output, *inputs[:TENSORS])
    ctx.numbers = inputs[TENSORS:ALIKE]
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)  # no zeros for lse


def _gradients(
    ctx: Any, grad: Tensor | None, _: Tensor, run: Callable[..., Any] = _backward
) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * len(ctx.needs_input_grad)
    saved, need = ctx.saved_tensors, ctx.needs_input_grad
    _, k, _, *_, mul, add, _, _, _, mul_jacobian, add_jacobian = saved[2:]
    need_mul, need_add, _, need_bias, *_, learn_mul, learn_add = need[7:]
    mul_count = len(mul_jacobian) if learn_mul else WHOLE if need_mul else 0
    add_count = len(add_jacobian) if learn_add else WHOLE if need_add else 0
    need_keys = need[0] if k is None else need[1] or need[2]
    gradients, dmul, dadd, dbias = run(
        grad, *saved, *ctx.numbers, mul_count, add_count, need_bias, need_keys
    )
    parts = (gradients, None, None) if k is None else gradients.chunk(3, dim=1)
    return (
        *(part if asked else None for part, asked in zip(parts, need)),
        *(None,) * 4,
        dmul.to(mul.dtype) if need_mul and not learn_mul else None,
        dadd.to(add.dtype) if need_add and not learn_add else None,
        None,
        dbias if need_bias else None,
        *(None,) * 9,
        dmul[:, :mul_count] if learn_mul else None,
        dadd[:, :add_count] if learn_add else None,
    )


_forward.register_autograd(_gradients, setup_context=_setup)


class _Attention(torch.autograd.Function):
    """The same without an operator's costs, which for small graphs are more than the kernels'."""

    forward = staticmethod(_attend)
    setup_context = staticmethod(_setup)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        # Where a graph of gradients is made, the operator refuses a second derivative.
        return _gradients(ctx, grad, _, _backward if torch.is_grad_enabled() else _differentiate)


def fused_attention(call: Call) -> Tensor:
    """See :func:`gradformer.decay_attention`."""
    layout, bias, seed = call.layout, call.bias, call.seed
    q, k, v = (call.q, call.k, call.v) if call.joint is None else (call.joint, None, None)
    p = launch.Problem(
        *(q, q, q),  # k and v have no say here
        layout.node_ptr.contiguous(),
        layout.pair_ptr.contiguous(),
        layout.graph_id.contiguous(),
        call.distance.contiguous(),
        _value(call.mul),
        _value(call.add),
        seed.contiguous() if seed is not None and call.dropout > 0.0 else None,
        None if bias is None else bias.float().contiguous(),
        None if bias is None else _packed_ptr(layout),
        call.scale,
        call.dropout,
        layout.largest,
        layout.padded,
        layout.symmetric,
    )
    later = torch.is_grad_enabled() and not torch.compiler.is_compiling()
    shares = max(p.shares, 1) if later else 1
    (mul_parameters, mul_jacobian), (add_parameters, add_jacobian) = (
        _parameters(table, shares) for table in (call.mul, call.add)
    )
    numbers = (p.scale, p.dropout, p.largest, p.padded, p.symmetric, shares)
    traced = torch.compiler.is_compiling() or type(q) not in (Tensor, nn.Parameter)
    out: Tensor
    out, _ = (_forward if traced else _Attention.apply)(
        q, k, v, *p.where, p.mul, p.add, p.seed, p.bias, p.packed_ptr,
        mul_jacobian, add_jacobian, *numbers, mul_parameters, add_parameters,
    )  # fmt: skip
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
