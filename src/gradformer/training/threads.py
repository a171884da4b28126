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

SHARE = 1 << 19
"""Numbers that a layer makes of a batch for each thread that is worth its waking."""


@contextmanager
def worthwhile_threads(
    model: GraphModel, collator: Collator, graphs: NDArray[np.int64], batch_size: int
) -> Iterator[int]:
    """Inside, torch has no more threads than the mean batch of ``graphs`` keeps busy.

    How many follows from the data and the model alone, since sums depend on it. Gives how many
    batches there are threads for.
    """
    before, batches = torch.get_num_threads(), 1
    if collator.device.type == "cpu":
        numbers = _numbers(model, collator, graphs) * min(batch_size / max(len(graphs), 1), 1.0)
        threads = min(before, max(int(numbers) // SHARE, 1))
        torch.set_num_threads(threads)
        batches = before // threads
    try:
        yield batches
    finally:
        torch.set_num_threads(before)


def _numbers(model: GraphModel, collator: Collator, graphs: NDArray[np.int64]) -> int:
    """What a layer makes of all ``graphs``: channels of nodes and edges, weights of pairs."""
    nodes, edges = collator.sizes(torch.from_numpy(graphs))
    width, heads = getattr(model.config, "width", 64), getattr(model.config, "heads", 0)
    return int(width * (nodes + edges).sum() + heads * nodes.square().sum())
