"""The fused engine: Triton kernels behind a custom operator, for CUDA graphs and ``torch.compile``.

Saved for the backward pass: q, k, v, out and one float for each row and head. The gradient of a
decay that has few parameters is contracted with their jacobian inside the kernel; a free table gets
its full [heads, 256] gradient. Results do not depend on timing: tile sizes follow from the shapes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradformer.attention.availability import interpreting
from gradformer.attention.decay import Table
from gradformer.attention.draws import threshold
from gradformer.attention.layout import Layout
from gradformer.errors import ConfigError

SMALL = 64  # graphs up to this size take one program for each head in the backward pass
WHOLE = 256  # "count" of a table whose every entry has a gradient


def precision() -> str:
    """How float32 products are made: torch's own switch, ``ieee`` unless tf32 is allowed."""
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"


@dataclass(frozen=True)
class Tiles:
    """Rows and columns of a tile, warps, and stages of the software pipeline."""

    m: int
    n: int
    warps: int
    stages: int = 2


def _block(d: int) -> int:
    return max(16, 1 << (d - 1).bit_length())


def _forward_tiles(dtype: torch.dtype, d: int, largest: int) -> Tiles:
    if largest <= 256 or dtype == torch.float32:
        return Tiles(32, 64, 2)
    return Tiles(64, 128, 4)


def _query_tiles(dtype: torch.dtype, d: int, largest: int) -> Tiles:
    if largest <= 256 or dtype == torch.float32:
        return Tiles(32, 64, 2)
    return Tiles(64, 128, 4)


def _key_tiles(dtype: torch.dtype, d: int, largest: int) -> Tiles:
    if largest <= 256 or dtype == torch.float32:
        return Tiles(32, 64, 4)
    return Tiles(32, 128, 4)


def _strides(*tensors: Tensor) -> list[int]:
    return [size for tensor in tensors for size in tensor.stride()[:2]]


def _small_warps(block: int) -> int:
    return 2 if block <= 32 else 8


def _flags(d: int, mul: Tensor | None, add: Tensor | None, dropout: float) -> dict[str, Any]:
    return {
        "D": d,
        "BLOCK_D": _block(d),
        "HAS_MUL": mul is not None,
        "HAS_ADD": add is not None,
        "DROPOUT": dropout > 0.0,
        "PRECISION": precision(),
        "INTERPRET": interpreting(),
    }


def _base_two(mul: Tensor | None, add: Tensor | None, scale: float, q: Tensor) -> list[Tensor]:
    """The tables with scale and log₂e multiplied in (``q`` stands in for an absent one)."""
    log2e = math.log2(math.e)
    return [q if mul is None else mul * (scale * log2e), q if add is None else add * log2e]


def _slack(distance: Tensor) -> bool:
    """Whether eight bytes behind the distances may be read."""
    end = distance.storage_offset() + distance.numel()
    return distance.untyped_storage().nbytes() - end >= 8


def _total(partial: Tensor, count: int) -> Tensor:
    """Sum over programs in a fixed order; nothing is launched when nobody asked for it."""
    return partial.sum(2) if count else partial.new_empty(partial.shape[:2])


def _rows(tensor: Tensor) -> Tensor:
    """The tensor with contiguous channels."""
    return tensor if tensor.stride(2) == 1 else tensor.contiguous()


@torch.library.custom_op("gradformer::decay_attention", mutates_args=())
def _forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
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
    scale: float,
    dropout: float,
    largest: int,
    diameter: int,
    padded: bool,
) -> tuple[Tensor, Tensor]:
    from gradformer.attention.kernels import forward_kernel, small_forward_kernel

    q, k, v = _rows(q), _rows(k), _rows(v)
    nodes, heads, d = q.shape
    make = torch.zeros if padded else torch.empty
    out = make(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(nodes, heads, dtype=torch.float32, device=q.device)
    graphs = node_ptr.numel() - 1
    arguments = [
        q, k, v, out, lse, node_ptr, pair_ptr, graph_id, distance,
        q if mul is None else mul, q if add is None else add, node_ptr if seed is None else seed,
        *_strides(q, k, v), heads, scale, 1.0 / (1.0 - dropout), threshold(dropout),
    ]  # fmt: skip
    flags = _flags(d, mul, add, dropout)
    if not graphs * largest:
        return out, lse
    if largest <= SMALL:
        block = _block(largest)
        small_forward_kernel[(heads, graphs)](
            *arguments, BLOCK=block, num_warps=_small_warps(block), num_stages=1, **flags
        )
    else:
        tile = _forward_tiles(q.dtype, d, largest)
        tiles = -(-largest // tile.m)
        arguments[9:11] = _base_two(mul, add, scale, q)
        forward_kernel[(heads, graphs * tiles)](
            *arguments, distance.numel(), tiles, BLOCK_M=tile.m, BLOCK_N=tile.n,
            num_warps=tile.warps, num_stages=tile.stages, SLACK=_slack(distance), **flags,
        )  # fmt: skip
    return out, lse


@_forward.register_fake
def _(q: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), q.new_empty(q.shape[:2], dtype=torch.float32)


@torch.library.custom_op("gradformer::decay_attention_backward", mutates_args=())
def _backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
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
    scale: float,
    dropout: float,
    largest: int,
    diameter: int,
    padded: bool,
    mul_count: int,
    add_count: int,
) -> tuple[Tensor, Tensor, Tensor]:
    from gradformer.attention.kernels import (
        key_gradient_kernel,
        query_gradient_kernel,
        small_backward_kernel,
    )

    q, k, v, grad = _rows(q), _rows(k), _rows(v), grad.contiguous()
    _, heads, d = q.shape
    make = torch.zeros if padded else torch.empty
    gradients = make(3, *q.shape, dtype=q.dtype, device=q.device)
    dq, dk, dv = gradients.unbind()
    graphs = node_ptr.numel() - 1
    query_tile, key_tile = _query_tiles(q.dtype, d, largest), _key_tiles(q.dtype, d, largest)
    small = largest <= SMALL
    programs = graphs * (1 if small else -(-largest // query_tile.m))

    def partial(count: int) -> Tensor:
        slots = WHOLE if count == WHOLE else 2
        return q.new_empty(heads, slots, programs if count else 0, dtype=torch.float32)

    partial_mul, partial_add = partial(mul_count), partial(add_count)
    tables: tuple[Tensor, ...] = (
        q if mul is None else mul,
        q if add is None else add,
        q if mul_jacobian is None else mul_jacobian,
        q if add_jacobian is None else add_jacobian,
    )
    draws = node_ptr if seed is None else seed
    where = (node_ptr, pair_ptr, graph_id, distance)
    numbers = (*_strides(q, k, v), heads, scale, 1.0 / (1.0 - dropout), threshold(dropout))
    flags = _flags(d, mul, add, dropout)
    counts = {"MUL_COUNT": mul_count, "ADD_COUNT": add_count}
    if small and programs:
        block = _block(largest)
        small_backward_kernel[(heads, graphs)](
            q, k, v, out, lse, grad, dq, dk, dv, partial_mul, partial_add,
            *where, *tables, draws, *numbers, diameter,
            BLOCK=block, num_warps=_small_warps(block), num_stages=1, **flags, **counts,
        )  # fmt: skip
    elif programs:
        delta = torch.empty_like(lse)
        tables = (*_base_two(mul, add, scale, q), *tables[2:])
        flags["SLACK"] = _slack(distance)
        tiles = -(-largest // query_tile.m)
        query_gradient_kernel[(heads, graphs * tiles)](
            q, k, v, out, lse, grad, delta, dq, partial_mul, partial_add,
            *where, *tables, draws, *numbers, distance.numel(), tiles, diameter,
            BLOCK_M=query_tile.m, BLOCK_N=query_tile.n,
            num_warps=query_tile.warps, num_stages=query_tile.stages, **flags, **counts,
        )  # fmt: skip
        tiles = -(-largest // key_tile.n)
        key_gradient_kernel[(heads, graphs * tiles)](
            q, k, v, lse, grad, delta, dk, dv,
            *where, *tables[:2], draws, *numbers, distance.numel(), tiles,
            BLOCK_M=key_tile.m, BLOCK_N=key_tile.n,
            num_warps=key_tile.warps, num_stages=key_tile.stages, **flags,
        )  # fmt: skip
    return gradients, _total(partial_mul, mul_count), _total(partial_add, add_count)


@_backward.register_fake
def _(grad: Tensor, q: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    mul_count, add_count = rest[-2:]

    def decay(count: int) -> Tensor:
        slots = WHOLE if count == WHOLE else 2
        return q.new_empty(q.shape[1], slots, dtype=torch.float32)

    return q.new_empty(3, *q.shape), decay(mul_count), decay(add_count)


def _no_second_backward(ctx: Any, *grads: Tensor) -> None:
    raise ConfigError(
        "the fused engine has no second derivative; use the reference engine for it: "
        "with gradformer.use_engine('reference'): …"
    )


_backward.register_autograd(_no_second_backward)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    (q, k, v, node_ptr, pair_ptr, graph_id, distance, mul, add,
     _, mul_jacobian, _, add_jacobian, seed, *ctx.numbers) = inputs  # fmt: skip
    out, lse = output
    ctx.save_for_backward(
        q, k, v, out, lse, node_ptr, pair_ptr, graph_id, distance, mul, add,
        mul_jacobian, add_jacobian, seed,
    )  # fmt: skip
    ctx.mark_non_differentiable(lse)


def _gradients(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    mul, add, mul_jacobian, add_jacobian = saved[9:13]
    # inputs: 7 mul, 8 add, 9 mul_parameters, 11 add_parameters
    need = ctx.needs_input_grad
    mul_count = len(mul_jacobian) if need[9] else WHOLE if need[7] else 0
    add_count = len(add_jacobian) if need[11] else WHOLE if need[8] else 0
    gradients, dmul, dadd = _backward(grad, *saved, *ctx.numbers, mul_count, add_count)
    none = (None,) * 4
    tables = (
        dmul.to(mul.dtype) if need[7] and not need[9] else None,
        dadd.to(add.dtype) if need[8] and not need[11] else None,
        dmul[:, :mul_count] if need[9] else None,
        None,
        dadd[:, :add_count] if need[11] else None,
        None,
    )
    return (*gradients.unbind(), *none, *tables, None, *(None,) * 5)


_forward.register_autograd(_gradients, setup_context=_setup)


def fused_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    layout: Layout,
    distance: Tensor,
    mul: Table | None,
    add: Table | None,
    scale: float,
    dropout: float,
    seed: Tensor | None,
) -> Tensor:
    """See :func:`gradformer.decay_attention`."""
    out, _ = _forward(
        q,
        k,
        v,
        layout.node_ptr,
        layout.pair_ptr,
        layout.graph_id,
        distance,
        *_values(mul, add),
        *_parameters(mul),
        *_parameters(add),
        seed if dropout > 0.0 else None,
        scale,
        dropout,
        layout.largest,
        layout.diameter,
        layout.padded,
    )
    return out


def _values(*tables: Table | None) -> list[Tensor | None]:
    """Values of the tables, without a graph where parameters take the gradient."""

    def value(table: Table) -> Tensor:
        bare = table.value if table.parameters is None else table.value.detach()
        return bare.float().contiguous()

    return [None if table is None else value(table) for table in tables]


def _parameters(table: Table | None) -> tuple[Tensor | None, Tensor | None]:
    if table is None or table.parameters is None or table.jacobian is None:
        return None, None
    return table.parameters, table.jacobian.float().contiguous()
