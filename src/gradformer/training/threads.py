"""How many threads a batch is worth on a CPU.

torch divides every operation on more than some ten thousand numbers among its threads, and wakes
them for it. For a batch of molecules that may take longer than the operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext

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


def worthwhile_threads(
    model: GraphModel, collator: Collator, graphs: NDArray[np.int64], batch_size: int
) -> AbstractContextManager[int]:
    """:func:`no_more_threads` than the mean batch of ``graphs`` keeps busy."""
    if collator.device.type != "cpu":
        return nullcontext(1)
    return no_more_threads(worth_of(model, collator, graphs, batch_size))


@contextmanager
def no_more_threads(most: int) -> Iterator[int]:
    """Inside, torch has ``most`` threads at most, for what this thread asks of it.

    Gives how many batches at once there are threads for.
    """
    before = torch.get_num_threads()
    threads = min(before, most)
    torch.set_num_threads(threads)
    try:
        yield min(before // threads, ABREAST)
    finally:
        torch.set_num_threads(before)


def pool(lanes: int) -> ThreadPoolExecutor:
    """Threads each of which has as many of torch's threads as the caller.

    Left to itself, a thread has as many as were last set in any thread when it first asks.
    """

    def begin(threads: int) -> None:
        torch.get_num_threads()  # asked first, else it would undo the next line
        torch.set_num_threads(threads)

    return ThreadPoolExecutor(lanes, "lane", begin, (torch.get_num_threads(),))


def worth_of(
    model: GraphModel, collator: Collator, graphs: NDArray[np.int64], batch_size: int
) -> int:
    """Threads that the mean batch of ``graphs`` keeps busy on a CPU: this follows from the data and
    the model alone, since sums depend on it."""
    return max(numbers_of(model, collator, graphs, batch_size) // SHARE, 1)


def numbers_of(
    model: GraphModel, collator: Collator, graphs: NDArray[np.int64], batch_size: int
) -> int:
    """How many numbers a layer makes of the mean batch: channels of nodes and edges, weights of
    pairs."""
    nodes, edges = collator.sizes(torch.from_numpy(graphs))
    width, heads = getattr(model.config, "width", 64), getattr(model.config, "heads", 0)
    numbers = int(width * (nodes + edges).sum() + heads * nodes.square().sum())
    return int(numbers * min(batch_size / max(len(graphs), 1), 1.0))
