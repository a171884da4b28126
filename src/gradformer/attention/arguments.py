"""The arguments of the attention, checked: what does not fit is named, with what was expected."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gradformer.attention.draws import share
from gradformer.attention.layout import Layout
from gradformer.attention.tables import Table
from gradformer.errors import ConfigError, InputError, at_least, counted


def check_heads(width: int, heads: int) -> None:
    """Raise unless the heads share the channels evenly."""
    at_least("width", width, 1)
    at_least("heads", heads, 1)
    if width % heads:
        raise ConfigError(f"heads: {heads} does not divide the width {width}")


class Call(NamedTuple):
    """A call of the attention, as engines take it: see :func:`gradformer.decay_attention`.

    ``joint`` holds q, k and v side by side, [nodes, 3 · heads, d], where they came so.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    layout: Layout
    distance: Tensor
    mul: Table | None
    add: Table | None
    bias: Tensor | None
    scale: float
    dropout: float
    seed: Tensor | None
    joint: Tensor | None = None

    @property
    def tables(self) -> tuple[Tensor | None, Tensor | None]:
        """The values of ``mul`` and ``add``."""
        mul, add = self.mul, self.add
        return None if mul is None else mul.value, None if add is None else add.value


def checked(
    q: Tensor, k: Tensor, v: Tensor, layout: Layout, distance: Tensor,
    mul: Tensor | Table | None, add: Tensor | Table | None, bias: Tensor | None,
    scale: float | None, dropout: float, seed: Tensor | None, joint: Tensor | None,
) -> Call:  # fmt: skip
    """The call with these arguments, if they fit."""
    tensors = {"q": q, "k": k, "v": v, "distance": distance, "bias": bias, "seed": seed}
    for name, value in tensors.items():
        absent = value is None and name in ("bias", "seed")
        if not absent and not isinstance(value, Tensor):
            came = type(value).__name__
            raise InputError(f"{name}: expected a torch tensor, got {came}; use torch.as_tensor")
    if not isinstance(layout, Layout):
        came = type(layout).__name__
        raise InputError(f"layout: expected a Layout, got {came}; use Layout.from_sizes")
    _check(q, k, v, layout, distance, bias)
    if share(dropout) > 0.0:
        _check_seed(seed, q.device)
    tables = _table("mul", mul, q), _table("add", add, q)
    if isinstance(scale, Tensor):
        raise InputError("scale: expected a number; one that is learned is multiplied with q")
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return Call(q, k, v, layout, distance, *tables, bias, scale, dropout, seed, joint)


def _check_seed(seed: Tensor | None, device: torch.device) -> None:
    if seed is None or seed.shape != (3,) or seed.is_floating_point() or seed.device != device:
        came = "None" if seed is None else f"{seed.dtype} {list(seed.shape)} on {seed.device}"
        raise InputError(
            f"seed: dropout needs integers (trial seed, step, site) [3] on {device}, got {came}"
        )


def _table(name: str, table: Tensor | Table | None, q: Tensor) -> Table | None:
    if table is None:
        return None
    table = Table(table) if isinstance(table, Tensor) else table
    if not isinstance(table, Table):
        came = type(table).__name__
        raise InputError(f"{name}: expected a torch tensor or Table, got {came}")
    if table.value.shape != (q.shape[1], 256):
        raise InputError(
            f"{name}: expected a table [{q.shape[1]} heads, 256], got {list(table.value.shape)}"
        )
    if table.value.device != q.device:
        raise InputError(f"{name}: on {table.value.device}, but q is on {q.device}")
    if table.parameters is not None and table.jacobian is not None:
        count = len(table.jacobian)
        made = table.parameters.shape, table.jacobian.shape
        if made != ((q.shape[1], count), (count, q.shape[1], 256)):
            raise InputError(
                f"{name}: expected parameters [{q.shape[1]} heads, p] and their jacobian "
                f"[p, {q.shape[1]} heads, 256], got {list(made[0])} and {list(made[1])}"
            )
        if {table.parameters.device, table.jacobian.device} != {q.device}:
            raise InputError(f"{name}: parameters and jacobian must be on {q.device}, as q is")
    return table


def _check(
    q: Tensor, k: Tensor, v: Tensor, layout: Layout, distance: Tensor, bias: Tensor | None
) -> None:
    if q.dim() != 3 or k.shape != q.shape or v.shape[:2] != q.shape[:2] or v.dim() != 3:
        raise InputError(
            "q, k, v: expected [nodes, heads, d] alike, got "
            f"{list(q.shape)}, {list(k.shape)}, {list(v.shape)}"
        )
    if not q.is_floating_point() or k.dtype != q.dtype or v.dtype != q.dtype:
        raise InputError(f"q, k, v: expected one float type, got {q.dtype}, {k.dtype}, {v.dtype}")
    if q.shape[0] != layout.capacity:
        raise InputError(
            f"q: has {counted(q.shape[0], 'row')}, but the layout has {layout.capacity}"
        )
    if distance.dtype != torch.uint8 or distance.dim() != 1:
        raise InputError(
            f"distance: expected a flat uint8 tensor, got {distance.dtype} {list(distance.shape)}"
        )
    if distance.device != q.device or layout.device != q.device:
        raise InputError(
            f"distance, layout: on {distance.device} and {layout.device}, but q is on {q.device}"
        )
    # Reads back from a device, or in code that is traced, would stop the work.
    traced = torch.compiler.is_compiling()
    if layout.device.type == "cpu" and layout.num_graphs and not traced:
        sizes = layout.node_ptr.diff().long()
        if int(sizes.max()) > layout.largest:
            raise InputError(
                f"layout: largest is {layout.largest}, but a graph has {int(sizes.max())} nodes"
            )
        real = int(layout.node_ptr[-1])
        if real < layout.capacity and not layout.padded:
            raise InputError(
                f"layout: has {layout.capacity} rows and {counted(real, 'node')}; rows behind the "
                "last graph need padded=True"
            )
        need = int((layout.pair_ptr + sizes * sizes).max())
        if distance.numel() < need:
            has = counted(distance.numel(), "byte")
            raise InputError(f"distance: has {has}, the layout needs {need}")
        pairs = int(layout.packed_ptr[-1])
        if bias is not None and len(bias) < pairs:
            has = counted(len(bias), "row")
            raise InputError(f"bias: has {has}, but there are {pairs} pairs")
    if bias is not None and bias.device != q.device:
        raise InputError(f"bias: on {bias.device}, but q is on {q.device}")
    if bias is not None and bias.shape[1:] != q.shape[1:2]:
        raise InputError(f"bias: expected [pairs, {q.shape[1]} heads], got {list(bias.shape)}")
