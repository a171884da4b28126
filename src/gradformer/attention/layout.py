"""Where each graph of a packed batch lies: nodes, pairs, and the identity that keys its draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from gradformer.errors import InputError

Made = TypeVar("Made")
Given = ParamSpec("Given")


def untransformed(make: Callable[Given, Made]) -> Callable[Given, Made]:
    """``make``, which follows from the graphs alone, outside of a transform of ``torch.func``: what
    it gives may be kept, and tensors that a transform has made end with it."""

    @wraps(make)
    def outside(*args: Given.args, **kwargs: Given.kwargs) -> Made:
        if torch.compiler.is_compiling() or not torch._C._are_functorch_transforms_active():
            return make(*args, **kwargs)
        with torch._C._DisableFuncTorch():
            return make(*args, **kwargs)

    return outside


def pointer_of(counts: Tensor) -> Tensor:
    """First row of each of many things laid end to end, and the end of the last, [things + 1]."""
    return torch.nn.functional.pad(counts.cumsum(0), (1, 0))


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a packed tensor: which graph each belongs to, its place there, and if it is real.

    Shapes: graph_id, index [rows] int32 (identity of a row in random draws: the graph's number in
    its dataset and the row's place inside that graph); mask [rows] bool, or None when all are real.
    """

    graph_id: Tensor
    index: Tensor
    mask: Tensor | None = None

    def zero_padding(self, x: Tensor) -> Tensor:
        """``x`` [rows, ...] with its padded rows set to zero."""
        if self.mask is None:
            return x
        return torch.where(self.mask.view(-1, *(1,) * (x.dim() - 1)), x, 0.0)


@dataclass(frozen=True, eq=False)
class Group:
    """Graphs of about one size, as dense tensors: g graphs padded to m nodes.

    Shapes: graphs [g]; nodes [g, m] row of each node (0 where padded); real [g, m] bool;
    pairs [g, m, m] place of each pair in ``distance``; packed [g, m, m] place of each pair in the
    batch's own packed order (Σ n² rows, as ``bias`` and returned weights have it).
    """

    graphs: Tensor
    nodes: Tensor
    real: Tensor
    pairs: Tensor
    packed: Tensor


@dataclass(frozen=True, eq=False)
class Layout:
    """A ragged batch: graph g owns node rows ``node_ptr[g] : node_ptr[g+1]``.

    Its n² distance bytes begin at ``pair_ptr[g]``, row by row (row = query); blocks may lie
    anywhere, so a batch can point into the distances of a whole dataset without copying them.
    ``graph_id`` numbers the graphs in their dataset. ``capacity`` (node rows, real and padded) and
    ``largest`` (an upper bound on the size of a graph) are host integers, so that nothing has to
    be read back from a device to choose a kernel; ``symmetric`` promises byte(i, j) = byte(j, i),
    which saves the fused engine time (:meth:`is_symmetric` finds out). Rows from ``node_ptr[-1]``
    on are padding: where there may be some, ``padded`` must say so, and ``most_pairs`` may bound
    Σn², the rows of packed pair tensors. All these are promises: on a GPU nobody checks them.

    Shapes: node_ptr [graphs + 1] int32; pair_ptr [graphs] int64; graph_id [graphs] int32.
    """

    node_ptr: Tensor
    pair_ptr: Tensor
    graph_id: Tensor
    capacity: int
    largest: int
    padded: bool = False
    symmetric: bool = False
    most_pairs: int | None = None

    @classmethod
    def from_sizes(
        cls,
        sizes: Sequence[int] | Tensor,
        graph_id: Tensor | None = None,
        device: torch.device | str | None = None,
    ) -> Layout:
        """Graphs of the given sizes, distances end to end in the same order.

        >>> Layout.from_sizes([3, 1, 2]).node_ptr.tolist()
        [0, 3, 4, 6]
        """
        given = torch.as_tensor(sizes, device="cpu")
        sizes = given.long()
        if sizes.dim() != 1 or (sizes < 0).any() or (sizes != given).any():
            raise InputError(
                "sizes: expected a list of node counts, whole and not negative, "
                f"got {given.dtype} {list(given.shape)}"
            )
        node_ptr = pointer_of(sizes)
        pair_ptr = pointer_of(sizes * sizes)[:-1]
        ids = torch.arange(len(sizes), device="cpu") if graph_id is None else graph_id
        device = torch.get_default_device() if device is None else device
        return cls(
            node_ptr.to(device, torch.int32),
            pair_ptr.to(device, torch.int64),
            ids.to(device, torch.int32),
            capacity=int(node_ptr[-1]),
            largest=int(sizes.max()) if len(sizes) else 0,
        )

    @classmethod
    def from_batch(cls, batch: Tensor, num_graphs: int | None = None) -> Layout:
        """From PyG's ``batch`` vector [nodes], which must be sorted."""
        whole = not (batch.is_floating_point() or batch.is_complex() or batch.dtype == torch.bool)
        if batch.dim() != 1 or not whole:
            raise InputError(
                f"batch: expected integers [nodes], got {batch.dtype} {list(batch.shape)}"
            )
        if batch.numel() and bool((batch[1:] < batch[:-1]).any() | (batch[0] < 0)):
            raise InputError(
                "batch: graphs must be numbered from 0 in ascending order, node by node"
            )
        sizes = torch.bincount(batch, minlength=num_graphs or 0)
        return cls.from_sizes(sizes, device=batch.device)

    @property
    def num_graphs(self) -> int:
        return self.node_ptr.numel() - 1

    @property
    def pair_capacity(self) -> int:
        """Rows of packed pair tensors, real and padded; without padding Σn² is read back."""
        if not self.padded:
            return int(self.packed_ptr[-1])
        most = self.capacity * self.largest
        return most if self.most_pairs is None else min(most, self.most_pairs)

    @property
    def device(self) -> torch.device:
        return self.node_ptr.device

    @cached_property
    @untransformed
    def graph(self) -> Tensor:
        """Graph of each node row, [capacity] int32; ``num_graphs`` for padded rows."""
        rows = torch.arange(self.capacity, device=self.device, dtype=torch.int32)
        return torch.searchsorted(self.node_ptr[1:], rows, right=True, out_int32=True)

    @property
    def slot(self) -> Tensor:
        """:attr:`graph` as an index, [capacity] int64: padded rows count to the last graph."""
        return self.graph.long().clamp(max=max(self.num_graphs - 1, 0))

    @cached_property
    @untransformed
    def rows(self) -> Rows:
        """The node rows."""
        rows = torch.arange(self.capacity, device=self.device, dtype=torch.int32)
        slot = self.graph.clamp(max=max(self.num_graphs - 1, 0))
        return Rows(
            self.graph_id[slot] if self.num_graphs else rows,
            rows - self.node_ptr[slot] if self.num_graphs else rows,
            self.graph < self.num_graphs if self.padded else None,
        )

    @cached_property
    @untransformed
    def graph_rows(self) -> Rows:
        """One row for each graph; graphs without nodes are padding."""
        mask = self.node_ptr[1:] > self.node_ptr[:-1] if self.padded else None
        return Rows(self.graph_id, torch.zeros_like(self.graph_id), mask)

    @cached_property
    @untransformed
    def packed_ptr(self) -> Tensor:
        """Where each graph's pairs begin in the batch's own packed order, [graphs + 1] int64."""
        return self.packed_starts()

    def packed_starts(self) -> Tensor:
        """``packed_ptr``, not kept."""
        sizes = self.node_ptr.diff().long()
        return pointer_of(sizes * sizes)

    def pairs(self) -> Tensor:
        """Node rows of each pair in the batch's own packed order, [2, Σ n²]: key, then query.

        >>> Layout.from_sizes([1, 2]).pairs().tolist()
        [[0, 1, 2, 1, 2], [0, 1, 1, 2, 2]]
        """
        sizes = self.node_ptr.diff().long()
        graph = torch.arange(self.num_graphs, device=self.device).repeat_interleave(sizes * sizes)
        n, first = sizes[graph], self.node_ptr[graph]
        place = torch.arange(len(graph), device=self.device) - self.packed_ptr[graph]
        return torch.stack([first + place % n, first + place // n])

    def is_symmetric(self, distance: Tensor, chunk: int = 1 << 22) -> bool:
        """Whether byte(i, j) = byte(j, i) in every graph; reads back an answer for each chunk."""
        sizes, ends = self.node_ptr.diff().long(), self.packed_ptr[1:]
        pairs = int(self.packed_ptr[-1])
        for start in range(0, pairs, chunk):
            pair = torch.arange(start, min(start + chunk, pairs), device=self.device)
            graph = torch.searchsorted(ends, pair, right=True)
            n, first = sizes[graph], self.pair_ptr[graph]
            pair -= self.packed_ptr[graph]
            mirrored = distance[first + pair % n * n + pair // n]
            if not torch.equal(distance[first + pair], mirrored):
                return False
        return True

    @cached_property
    @untransformed
    def groups(self) -> list[Group]:
        """The graphs sorted into dense groups by the power of two above their size.

        That reads the sizes back; a padded batch on a device is one group, so that it does not.
        """
        if self.padded and self.device.type != "cpu":
            return [self.whole]
        sizes = self.node_ptr.diff().tolist()
        members: dict[int, list[int]] = {}
        for slot, size in enumerate(sizes):
            if size:
                members.setdefault(max(size - 1, 7).bit_length(), []).append(slot)
        return [
            self._group(torch.tensor(slots, device=self.device), max(sizes[slot] for slot in slots))
            for _, slots in sorted(members.items())
        ]

    @cached_property
    @untransformed
    def whole(self) -> Group:
        """All graphs as one dense group, as wide as the largest may be."""
        return self._group(torch.arange(self.num_graphs, device=self.device), self.largest)

    def _group(self, graphs: Tensor, width: int) -> Group:
        first = self.node_ptr[graphs].long()
        size = self.node_ptr[graphs + 1].long() - first
        place = torch.arange(width, device=self.device)
        real = place < size[:, None]  # [g, m]
        inside = torch.where(real, place, 0)
        pair = inside[:, :, None] * size[:, None, None] + inside[:, None, :]  # [g, m, m]

        def begin(starts: Tensor) -> Tensor:
            """Where each graph begins; an empty one at 0, as the last may begin behind the end."""
            return torch.where(size > 0, starts, 0)

        return Group(
            graphs,
            nodes=begin(first)[:, None] + inside,
            real=real,
            pairs=begin(self.pair_ptr[graphs])[:, None, None] + pair,
            packed=begin(self.packed_ptr[graphs])[:, None, None] + pair,
        )
