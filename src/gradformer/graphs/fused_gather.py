"""A batch gathered from a store in one launch; the plain form is in ``collate.py``."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gradformer.attention.kernels.tiles import block_of
from gradformer.graphs.gather_kernels import gather_kernel

ROWS = 64
COLUMNS = 64  # of an array that one program copies at once
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Index(NamedTuple):
    """The store's arrays that say where things are; see the collator."""

    node_ptr: Tensor
    edge_ptr: Tensor
    pair_ptr: Tensor
    source: Tensor
    target: Tensor
    by_source: Tensor
    entering: Tensor
    leaving: Tensor


class Slots(NamedTuple):
    """What a layout has for each graph; ``place`` is 0 everywhere."""

    node_ptr: Tensor
    pair_ptr: Tensor
    graph_id: Tensor
    place: Tensor
    mask: Tensor


class NodeRows(NamedTuple):
    """What a layout and the edges have for each node row."""

    graph: Tensor
    graph_id: Tensor
    place: Tensor
    mask: Tensor
    target_ptr: Tensor
    source_ptr: Tensor


class EdgeRows(NamedTuple):
    """What the edges have for each edge row."""

    source: Tensor
    target: Tensor
    by_source: Tensor
    graph_id: Tensor
    place: Tensor
    mask: Tensor


class Copied(NamedTuple):
    """An array whose rows are gathered, where they go, and whether padded rows become zero."""

    values: Tensor
    out: Tensor
    zero: bool

    @classmethod
    def of(cls, values: Tensor, rows: int, zero: bool) -> Copied:
        return cls(values, values.new_empty(rows, *values.shape[1:]), zero)

    @property
    def kind(self) -> tuple[int, int, bool]:
        """Width, columns that are copied at once, and ``zero``."""
        width = math.prod(self.values.shape[1:])
        return width, min(block_of(width, 1), COLUMNS), self.zero


def gather(
    ids: Tensor, index: Index, sizes: tuple[int, int, int], *copied: list[Copied]
) -> tuple[Slots, NodeRows, EdgeRows]:
    """The batch of graphs ``ids`` [graphs] int64 in one launch.

    Args:
        index: of the store.
        sizes: slots, node rows and edge rows of the batch.
        copied: three lists of arrays, of graphs, of nodes and of edges; their ``out`` are filled.
    """
    graphs, nodes, edges = sizes

    def ints(count: int, *, more: int = 0) -> Tensor:
        return torch.empty(count + more, dtype=torch.int32, device=ids.device)

    def mask(count: int) -> Tensor:
        return torch.empty(count, dtype=torch.bool, device=ids.device)

    pair_ptr = torch.empty(graphs, dtype=torch.int64, device=ids.device)
    slots = Slots(ints(graphs, more=1), pair_ptr, ints(graphs), ints(graphs), mask(graphs))
    node_rows = NodeRows(
        ints(nodes), ints(nodes), ints(nodes), mask(nodes), ints(nodes, more=1), ints(nodes, more=1)
    )
    edge_rows = EdgeRows._make([*(ints(edges) for _ in range(5)), mask(edges)])
    lists = [arg for part in copied for arg in (_words(part, "values"), _words(part, "out"))]
    tiles = -(-graphs // ROWS) - (-(nodes + 1) // ROWS) - (-edges // ROWS)
    widest = max((item.kind[0] for part in copied for item in part), default=1)
    gather_kernel[tiles, min(-(-widest // COLUMNS), 64)](
        ids.contiguous(), index, *(_bytes(rows) for rows in (slots, node_rows, edge_rows)), *lists,
        *sizes, len(index.entering) - 1, len(index.source) - 1,
        *(tuple(item.kind for item in part) for part in copied), ROWS=ROWS,
        GRAPHS=min(block_of(graphs, 1), 128), num_warps=4,
    )  # fmt: skip
    return slots, node_rows, edge_rows


def _words(part: list[Copied], name: str) -> tuple[Tensor, ...]:
    """Arrays as integers of the same size: copies must not change a bit."""
    arrays = (getattr(item, name) for item in part)
    return tuple(array.view(WORDS[array.element_size()]) for array in arrays)


def _bytes(rows: Any) -> Any:
    """With masks as a kernel writes them."""
    return rows._replace(mask=rows.mask.view(torch.uint8))
