"""``decay_attention``: the one operation of the package, and which engine takes a call."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, TypedDict, Unpack, overload

import torch
from torch import Tensor

from gradformer.attention.arguments import Call, checked
from gradformer.attention.availability import current_engine, exporting, why_no_triton
from gradformer.attention.compiling import constant_when_compiled, never_compiled
from gradformer.attention.layout import Layout
from gradformer.attention.loops.running import has_tangent, runs_loops
from gradformer.attention.reference import reference_attention
from gradformer.attention.tables import Table
from gradformer.errors import ConfigError, InputError

MOST_NODES = 46_336
"""The kernels number the pairs of a graph, those of a last tile too, with 32 bits."""


def why_not_fused(q: Tensor, weights: bool = False) -> str | None:
    """Why the fused engine cannot take calls with such a q, or None if it can."""
    if weights:
        return "it does not return weights"
    if q.dtype == torch.float64:
        return "it computes in float32 at most"
    if not 4 <= q.shape[-1] <= 128:
        return f"it takes head widths 4 to 128, not {q.shape[-1]}"
    return why_no_triton(q.device)


class _Options(TypedDict, total=False):
    bias: Tensor | None
    scale: float | None
    dropout: float
    seed: Tensor | None


@overload
def decay_attention(
    q: Tensor, k: Tensor, v: Tensor, layout: Layout, distance: Tensor,
    mul: Tensor | Table | None, add: Tensor | Table | None, *,
    return_weights: Literal[False] = ..., **options: Unpack[_Options],
) -> Tensor: ...  # fmt: skip


@overload
def decay_attention(
    q: Tensor, k: Tensor, v: Tensor, layout: Layout, distance: Tensor,
    mul: Tensor | Table | None, add: Tensor | Table | None, *,
    return_weights: Literal[True], **options: Unpack[_Options],
) -> tuple[Tensor, Tensor]: ...  # fmt: skip


def decay_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    layout: Layout,
    distance: Tensor,
    mul: Tensor | Table | None,
    add: Tensor | Table | None,
    *,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    return_weights: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    r"""Attention inside each graph of a packed batch, decayed by the distance of each pair.

    .. math::
        o_i = \sum_j \operatorname{softmax}_j\bigl(s_{ij}\,\text{mul}[h, \psi_{ij}]
              + \text{add}[h, \psi_{ij}] + b_{ijh}\bigr)\, v_j, \qquad
        s_{ij} = \text{scale}\; q_i \cdot k_j

    A row whose scores are all −inf gives zeros and zero gradients. Sums are in float32 (float64 if
    q is), products of float32 exact to its rounding unless torch's switch for tf32 is on.

    Args:
        q, k: [nodes, heads, d]; v: [nodes, heads, e].
        layout: which rows are which graph.
        distance: uint8, one byte for each pair, graph after graph, row = query. 255 is
            unreachable; what a byte means is up to the tables.
        mul, add: [heads, 256] tables, or :class:`Table` objects as :class:`Decay` makes them, or
            None for 1 and 0.
        bias: [Σ n², heads] further summand for each pair.
        scale: 1/√d if not given.
        dropout: share of the weights that is zeroed; needs ``seed``.
        seed: integer tensor (trial seed, step, site) [3] on the same device.
        return_weights: also return the weights before dropout, [Σ n², heads].

    Returns:
        [nodes, heads, e]; rows of padding are zero.

    >>> import torch
    >>> layout = Layout.from_sizes([2, 1])
    >>> q = k = v = torch.ones(3, 1, 4)
    >>> distance = torch.tensor([0, 1, 1, 0, 0], dtype=torch.uint8)
    >>> mul = 0.5 ** torch.arange(256.0)[None]
    >>> decay_attention(q, k, v, layout, distance, mul, None).shape
    torch.Size([3, 1, 4])
    """
    given = q, k, v, layout, distance, mul, add, bias, scale, dropout, seed, None
    return _attend(given, return_weights)


def joint_attention(
    qkv: Tensor,
    layout: Layout,
    distance: Tensor,
    mul: Tensor | Table | None,
    add: Tensor | Table | None,
    *,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    seed: Tensor | None = None,
) -> Tensor:
    """:func:`decay_attention` of the thirds of qkv [nodes, 3 · heads, d], as one map makes them.

    The fused engine reads them in place and writes their gradients side by side: no copies.
    """
    if qkv.dim() != 3 or qkv.shape[1] % 3:
        raise InputError(f"qkv: expected [nodes, 3 · heads, d], got {list(qkv.shape)}")
    three = qkv.chunk(3, dim=1)
    return _attend((*three, layout, distance, mul, add, bias, None, dropout, seed, qkv), False)


def _attend(given: tuple[Any, ...], return_weights: bool) -> Any:
    """:func:`_by_engine`; a compiler leaves it out on a CPU, whose loops are compiled already."""
    left_out = torch.compiler.is_compiling() and not exporting() and given[0].device.type == "cpu"
    return (_by_engine_uncompiled if left_out else _by_engine)(given, return_weights)


def _by_engine(given: tuple[Any, ...], return_weights: bool) -> Tensor | tuple[Tensor, Tensor]:
    """By the engine that takes a call with the arguments ``given``."""
    call = checked(*given)
    if _takes_fused(call, return_weights):
        from gradformer.attention.fused import fused_attention

        return fused_attention(call)
    q, k, v = call.q, call.k, call.v
    if not return_weights and q.shape == v.shape and runs_loops(q, k, v, *call.tables, call.bias):
        from gradformer.attention.cpu import cpu_attention

        return cpu_attention(call)
    with without_autocast(q.device.type):
        out, weights = reference_attention(call, return_weights)
    return out if weights is None else (out, weights)


_by_engine_uncompiled = never_compiled(_by_engine)


def without_autocast(device: str) -> AbstractContextManager[None]:
    """The type of q decides how an engine computes, whatever torch would take for products."""
    if _knows_autocast(device) and torch.is_autocast_enabled(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()


@constant_when_compiled
def _knows_autocast(device: str) -> bool:
    return torch.amp.is_autocast_available(device)


def _takes_fused(call: Call, weights: bool) -> bool:
    """Whether the fused engine takes a call; an error if it was asked for and cannot."""
    if current_engine() == "reference":
        return False
    q, k, v, largest = call.q, call.k, call.v, call.layout.largest
    reason = why_not_fused(q, weights)
    if has_tangent(q, k, v, *call.tables, call.bias):
        reason = reason or "it has no forward-mode derivative"
    if q.shape[-1] != v.shape[-1]:
        reason = reason or "it needs values as wide as the keys"
    if largest > MOST_NODES:
        most = f"it takes graphs of at most {MOST_NODES} nodes"
        reason = reason or f"{most}, the layout's largest has {largest}"
    if current_engine() == "fused" and reason:
        raise ConfigError(f"engine: the fused engine cannot run this call: {reason}")
    return reason is None
