"""Which kernels take a batch, in which tiles, and their launches.

Results do not depend on timing: tiles follow from the shapes and the device alone. Grids have one
axis of all heads of all tiles, since a device limits others to 65,535 programs; heads lie next to
each other, because they read the same distances.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from gradformer.attention.availability import interpreting, known_registers
from gradformer.attention.draws import threshold
from gradformer.attention.kernels.tiles import (
    CORES,
    block_of,
    forward_tiles,
    key_tiles,
    precision,
    query_tiles,
)

SMALL = 64  # graphs up to this size take one program for each head
MIDDLE = 256  # graphs up to this size may take the row kernels
OWN = 32  # queries or keys of a program of the row kernels
WHOLE = 256  # "count" of a table whose every entry has a gradient


@dataclass(frozen=True)
class Problem:
    """What forward and backward have in common; the fields are those of the operator."""

    q: Tensor
    k: Tensor
    v: Tensor
    node_ptr: Tensor
    pair_ptr: Tensor
    graph_id: Tensor
    distance: Tensor
    mul: Tensor | None
    add: Tensor | None
    seed: Tensor | None
    bias: Tensor | None
    packed_ptr: Tensor | None
    scale: float
    dropout: float
    largest: int
    padded: bool
    symmetric: bool

    @property
    def graphs(self) -> int:
        return self.node_ptr.numel() - 1

    def kind(self, backward: bool) -> Literal["small", "rows", "tiled"]:
        """Which kernels take it: of those that can, the fastest on an H200."""
        d = self.q.shape[2]
        rows = self.q.dtype == torch.float32 and d <= 16 and self.bias is None
        if interpreting():  # which is slow where a program is one warp
            rows = rows and self.largest > OWN
        else:
            rows = rows and known_registers(self.q.device)
        if rows and self.largest <= (MIDDLE if backward and d <= 8 else SMALL):
            return "rows"
        if self.q.dtype == torch.float32 and d > 64:  # too much for the shared memory of a program
            return "tiled"
        return "small" if self.largest <= SMALL else "tiled"

    @property
    def shares(self) -> int:
        """Programs of the backward pass that have a summand of the decay's gradient each."""
        return self.graphs * self.query_tiles

    @property
    def query_tiles(self) -> int:
        """Tiles of queries, of each graph in the backward pass."""
        tiled = query_tiles(self.q.dtype, self.q.shape[2], self.wide).m
        own = {"small": SMALL, "rows": OWN, "tiled": tiled}[self.kind(backward=True)]
        return -(-self.largest // own)

    @property
    def wide(self) -> int:
        """How many columns :mod:`.pairs` orders anew; 0: none."""
        if self.bias is not None or interpreting() or not known_registers(self.q.device):
            return 0
        if self.q.dtype in (torch.bfloat16, torch.float16):
            return 64
        return 32 if self.q.shape[2] <= CORES else 0

    def empty(self, *shape: int) -> Tensor:
        """Room for node rows, those of padding included: the kernels write zeros there."""
        return torch.empty(shape, dtype=self.q.dtype, device=self.q.device)

    @property
    def where(self) -> tuple[Tensor, ...]:
        return self.node_ptr, self.pair_ptr, self.graph_id, self.distance

    @property
    def strides(self) -> list[int]:
        return [size for tensor in (self.q, self.k, self.v) for size in tensor.stride()[:2]]

    @property
    def numbers(self) -> tuple[int | float, ...]:
        keep = 1.0 / (1.0 - self.dropout)
        return self.q.shape[1], self.scale, keep, threshold(self.dropout)

    @property
    def row_options(self) -> dict[str, Any]:
        return {
            "D": self.q.shape[2],
            "SYMMETRIC": self.symmetric,
            "EXACT": precision() == "ieee" and not interpreting(),
            "INTERPRET": interpreting(),
            "num_warps": 1,
            "num_stages": 1,
        }

    @property
    def dot_options(self) -> dict[str, Any]:
        d = self.q.shape[2]
        return {"D": d, "BLOCK_D": block_of(d), "PRECISION": precision()}

    @property
    def tiled_options(self) -> dict[str, Any]:
        cores = self.q.dtype == torch.float32 and self.q.shape[2] <= CORES
        if cores and precision() == "ieee":
            return self.dot_options | {"PRECISION": "tf32x3"}
        return self.dot_options

    @property
    def small_options(self) -> dict[str, Any]:
        block = block_of(self.largest)
        return self.dot_options | {
            "BLOCK": block,
            "num_warps": 2 if block <= 32 else 8,
            "num_stages": 1,
            "INTERPRET": interpreting(),
        }


def forward(p: Problem) -> tuple[Tensor, Tensor]:
    """out [nodes, heads, d] and lse [nodes, heads] in base 2."""
    from gradformer.attention.kernels.row_forward import row_forward_kernel
    from gradformer.attention.kernels.small import small_forward_kernel
    from gradformer.attention.kernels.tiled_forward import forward_kernel

    kind = p.kind(backward=False)
    nodes, heads, d = p.q.shape
    out = p.empty(nodes, heads, d)
    lse = torch.empty(nodes, heads, dtype=torch.float32, device=p.q.device)
    arguments = (
        p.q, p.k, p.v, out, lse, *p.where, p.mul, p.add, p.seed, *p.strides, *p.numbers,
    )  # fmt: skip
    if not p.graphs * p.largest:
        out.zero_()
    elif kind == "small":
        grid = (heads * (p.graphs + p.padded),)
        small_forward_kernel[grid](
            *arguments, nodes, p.graphs, p.bias, p.packed_ptr, **p.small_options
        )
    elif kind == "rows":
        tiles = -(-p.largest // OWN)
        grid = (heads * (p.graphs * tiles + p.padded),)
        row_forward_kernel[grid](*arguments, nodes, p.graphs, tiles, **p.row_options)
    else:
        tile = forward_tiles(p.q.dtype, d, p.wide)
        tiles = -(-p.largest // tile.m)
        forward_kernel[(heads * (p.graphs * tiles + p.padded),)](
            *arguments, nodes, p.graphs, p.distance.numel(), tiles, p.bias, p.packed_ptr,
            WIDE=p.wide, **tile.options, **p.tiled_options,
        )  # fmt: skip
    return out, lse


def backward(
    p: Problem,
    grad: Tensor,
    out: Tensor,
    lse: Tensor,
    mul_jacobian: Tensor | None,
    add_jacobian: Tensor | None,
    mul_count: int,
    add_count: int,
    need_bias: bool,
    need_keys: bool,
    shares: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k, v [nodes, 3 · heads, d], of the decay as ``count`` says, of the bias.

    Without ``need_keys`` those of k and v may be left undone.
    That of a decay's parameters is [heads, 2, ``shares``]: 1, or all of ``p.shares``.
    """
    from gradformer.attention.kernels.row_backward import row_backward_kernel
    from gradformer.attention.kernels.small import small_backward_kernel
    from gradformer.attention.kernels.tiled_key_gradients import key_gradient_kernel
    from gradformer.attention.kernels.tiled_query_gradients import query_gradient_kernel

    kind = p.kind(backward=True)
    nodes, heads, d = p.q.shape
    gradients = p.empty(nodes, 3 * heads, d)
    dq, dk, dv = gradients.chunk(3, dim=1)
    tiles, programs = p.query_tiles, p.shares

    def partial(count: int) -> Tensor:
        slots = WHOLE if count == WHOLE else 2
        size = (heads, slots, programs if count else 0)
        return torch.empty(size, dtype=torch.float32, device=p.q.device)

    partial_mul, partial_add = partials = partial(mul_count), partial(add_count)
    saved = (p.q, p.k, p.v, out, lse, grad)
    sizes = (*p.strides, 3 * heads * d, *p.numbers, nodes, p.graphs)
    given = (*p.where, p.mul, p.add, mul_jacobian, add_jacobian, p.seed, *sizes)
    counts = {"MUL_COUNT": mul_count, "ADD_COUNT": add_count}
    dbias = None
    if p.bias is not None and need_bias:
        dbias = torch.zeros_like(p.bias)  # rows behind the last pair stay zero
    if not p.graphs * p.largest:
        gradients.zero_()
    elif kind == "small":
        small_backward_kernel[(heads * (p.graphs + p.padded),)](
            *saved, dq, dk, dv, *partials, *given, p.bias, p.packed_ptr, dbias,
            **p.small_options, **counts,
        )  # fmt: skip
    elif kind == "rows":
        row_backward_kernel[(heads * (programs + p.padded), 2)](
            *saved, dq, dk, dv, *partials, *given, tiles,
            **p.row_options, **counts, maxnreg=128 if d <= 8 else 168,
        )  # fmt: skip
    else:
        pairs = p.distance.numel()
        stats = torch.empty(nodes, heads, 2, dtype=torch.float32, device=p.q.device)
        tile = query_tiles(p.q.dtype, d, p.wide)
        query_gradient_kernel[(heads * (programs + p.padded),)](
            *saved, stats, dq, *partials, *given, pairs, tiles, p.bias, p.packed_ptr, dbias,
            WIDE=p.wide, **tile.options, **p.tiled_options, **counts,
        )  # fmt: skip
        if need_keys:
            wide = p.wide if p.symmetric else 0
            tile = key_tiles(p.q.dtype, d, wide)
            tiles = -(-p.largest // tile.n)
            key_gradient_kernel[(heads * (p.graphs * tiles + p.padded),)](
                p.q, p.k, p.v, grad, stats, dk, dv, *p.where, p.mul, p.add, p.seed, *sizes,
                pairs, tiles, p.bias, p.packed_ptr,
                SYMMETRIC=p.symmetric, WIDE=wide, **tile.options, **p.tiled_options,
            )  # fmt: skip
    dmul, dadd = _total(partial_mul, mul_count, shares), _total(partial_add, add_count, shares)
    return gradients, dmul, dadd, lse.new_empty(0) if dbias is None else dbias


def _total(partial: Tensor, count: int, shares: int) -> Tensor:
    """Sum over programs in a fixed order; nothing is launched when nobody asked for it."""
    if count == WHOLE:
        return partial.sum(2)
    if not count:
        return partial.new_empty(*partial.shape[:2], shares)
    return partial if partial.shape[2] == shares else partial.sum(2, keepdim=True)
