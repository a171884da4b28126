"""How many threads a batch is worth on a CPU.

torch divides every operation on more than some ten thousand numbers among its threads, and wakes
them for it. For a batch of molecules that may take longer than the operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray

from gradformer.graphs.collate import Collator
from gradformer.model.base import GraphModel

SHARE = 1 << 22
"""Numbers that a layer makes of a batch for each thread that is worth its waking."""

ABREAST = 8
"""Most batches at once: of its time a step holds Python's lock for a tenth (a large batch) to a
fifth (32 molecules)."""


@contextmanager
def worthwhile_threads(
    model: GraphModel, collator: Collator, graphs: NDArray[np.int64], batch_size: int
) -> Iterator[int]:
    """Inside, torch has no more threads than the mean batch of ``graphs`` keeps busy.

    Gives how many batches at once there are threads for. A thread that is started inside has as
    many as its starter.
    """
    before, batches = torch.get_num_threads(), 1
    if collator.device.type == "cpu":
        threads = min(before, worth_of(model, collator, graphs, batch_size))
        torch.set_num_threads(threads)
        batches = min(before // threads, ABREAST)
    try:
        yield batches
    finally:
        torch.set_num_threads(before)


def worth_of(
    model: GraphModel, collator: Collator, graphs: NDArray[np.int64], batch_size: int
) -> int:
    """Threads that the mean batch of ``graphs`` keeps busy on a CPU: this follows from the data and
    the model alone, since sums depend on it."""
    numbers = _numbers(model, collator, graphs) * min(batch_size / max(len(graphs), 1), 1.0)
    return max(int(numbers) // SHARE, 1)


def _numbers(model: GraphModel, collator: Collator, graphs: NDArray[np.int64]) -> int:
    """What a layer makes of all ``graphs``: channels of nodes and edges, weights of pairs."""
    nodes, edges = collator.sizes(torch.from_numpy(graphs))
    width, heads = getattr(model.config, "width", 64), getattr(model.config, "heads", 0)
    return int(width * (nodes + edges).sum() + heads * nodes.square().sum())
