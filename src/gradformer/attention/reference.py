"""The definition of decay attention in plain torch: any device, any float type, any derivative."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from gradformer.attention.arguments import Call
from gradformer.attention.compiling import never_compiled
from gradformer.attention.draws import keep, row_keys
from gradformer.attention.layout import Group, Layout


class _ByByte(torch.autograd.Function):
    """A linear function of numbers, with bytes that say where they go."""

    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])
        ctx.save_for_forward(inputs[1])


class _Lookup(_ByByte):
    """table [h, 256], byte [...] → table[:, byte] [h, ...]."""

    @staticmethod
    def forward(table: Tensor, byte: Tensor) -> Tensor:
        return table.index_select(1, byte.flatten()).view(-1, *byte.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _Tally.apply(grad, *ctx.saved_tensors), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        return _Lookup.apply(tangent, *ctx.saved_tensors)  # type: ignore[no-any-return]


class _Tally(_ByByte):
    """values [h, ...], byte [...] → sums of the values of each byte [h, 256], in a fixed order."""

    @staticmethod
    def forward(values: Tensor, byte: Tensor) -> Tensor:
        flat, byte = values.reshape(len(values), -1), byte.flatten()
        if values.is_cuda:  # index_add would use atomics: bits that change from run to run
            return _sums_by_byte(flat, byte)
        return flat.new_zeros(len(flat), 256).index_add(1, byte.long(), flat)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _Lookup.apply(grad, *ctx.saved_tensors), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        return _Tally.apply(tangent, *ctx.saved_tensors)  # type: ignore[no-any-return]


def _sums_by_byte(values: Tensor, byte: Tensor, chunk: int = 1 << 15) -> Tensor:
    """values [h, pairs], byte [pairs] → [h, 256] by products with which byte is which."""
    every = torch.arange(256, device=byte.device)
    total = values.new_zeros(len(values), 256)
    for part, where in zip(values.split(chunk, dim=1), byte.split(chunk)):
        total = total + part @ (where[:, None] == every).to(values.dtype)
    return total


@never_compiled  # its loop over groups of graphs would be compiled anew for every batch
def reference_attention(call: Call, return_weights: bool = False) -> tuple[Tensor, Tensor | None]:
    """See :func:`gradformer.decay_attention`; group after group of graphs of about one size."""
    q, k, v, layout, dropout = call.q, call.k, call.v, call.layout, call.dropout
    mul, add = call.tables
    kind = torch.float64 if q.dtype == torch.float64 else torch.float32
    out = v.new_zeros(v.shape[0] + 1, *v.shape[1:])  # the last row is for padding
    weights = None
    if return_weights:
        weights = q.new_zeros(int(layout.packed_ptr[-1]), q.shape[1], dtype=kind)
    for group in layout.groups:
        queries, keys, values = (t[group.nodes].to(kind).transpose(1, 2) for t in (q, k, v))
        score = (queries * call.scale) @ keys.transpose(2, 3)  # [g, h, m, m]
        byte = call.distance[group.pairs].int()  # [g, m, m]
        if mul is not None:
            score = score * _Lookup.apply(mul.to(kind), byte).transpose(0, 1)
        if add is not None:
            score = score + _Lookup.apply(add.to(kind), byte).transpose(0, 1)
        if call.bias is not None:
            score = score + call.bias[group.packed].to(kind).permute(0, 3, 1, 2)
        weight = _softmax(score.masked_fill(~group.real[:, None, None, :], -math.inf))
        if weights is not None:
            both = group.real[:, :, None] & group.real[:, None, :]
            weights = weights.index_put((group.packed[both],), weight.permute(0, 2, 3, 1)[both])
        if dropout > 0.0:
            assert call.seed is not None
            weight = weight * _kept(group, layout, call.seed, q.shape[1], dropout)
            values = values / (1.0 - dropout)
        rows = (weight @ values).transpose(1, 2).to(v.dtype)  # [g, m, h, d]
        out = out.index_put((torch.where(group.real, group.nodes, v.shape[0]),), rows)
    return out[:-1], weights


def _softmax(score: Tensor) -> Tensor:
    """Softmax over the last axis; a row of −inf gives zeros (and zero gradients)."""
    none = score.detach().amax(dim=-1, keepdim=True) == -math.inf
    traced = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    if score.device.type == "cpu" and not traced and not bool(none.any()):
        return score.softmax(dim=-1)
    return score.masked_fill(none, 0.0).softmax(dim=-1).masked_fill(none, 0.0)


def _kept(group: Group, layout: Layout, seed: Tensor, heads: int, p: float) -> Tensor:
    """Which pairs dropout keeps, [g, heads, m, m] bool."""
    place = torch.arange(group.real.shape[1], device=seed.device, dtype=torch.int32)
    head = torch.arange(heads, device=seed.device, dtype=torch.int32)
    graph = layout.graph_id[group.graphs]
    keys = row_keys(seed, graph[:, None, None], head[:, None], place)  # [g, heads, m]
    return keep(keys[..., None], place, p)
