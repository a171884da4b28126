"""What a model gives for many graphs, in order."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from queue import SimpleQueue
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from gradformer.errors import at_least
from gradformer.graphs.batch import Batch
from gradformer.graphs.collate import Collator
from gradformer.model.base import GraphModel, is_own
from gradformer.model.parallel import is_shared
from gradformer.training.distributed import place_in_batch
from gradformer.training.step import autocast
from gradformer.training.threads import pool, worthwhile_threads

Answer = TypeVar("Answer")

FEWEST = 8
"""Batches for which a thread of their own, and a copy of the model, are worth making."""


def model_outputs(
    model: GraphModel,
    collator: Collator,
    graphs: NDArray[np.int64],
    batch_size: int,
    precision: str = "float32",
) -> NDArray[np.float32]:
    """What the model gives for ``graphs``, [graphs or their nodes, outputs]."""

    def rows(model: GraphModel, batch: Batch) -> NDArray[np.float32]:
        found: NDArray[np.float32] = model(batch).float().cpu().numpy()
        return found

    return np.concatenate(by_batch(rows, model, collator, graphs, batch_size, precision))


def by_batch(
    ask: Callable[[GraphModel, Batch], Answer],
    model: GraphModel,
    collator: Collator,
    graphs: NDArray[np.int64],
    batch_size: int,
    precision: str,
) -> list[Answer]:
    """What ``ask(model, batch)`` gives for each batch of ``graphs``, without gradients.

    Processes that share a batch share the work, and all have the whole result. On a CPU, where few
    threads are worth a batch, some are side by side: each has a model for itself, since a model may
    keep things while it works, and gives the same bits as alone. A user's model may draw at random,
    rest on what it kept, or hold what cannot be copied, so its batches follow one another.
    """
    at_least("batch_size", batch_size, 1)
    model.eval()
    batches = np.split(graphs, range(batch_size, len(graphs), batch_size))
    first, stride = place_in_batch()
    own = range(first, len(batches), stride)
    idle: SimpleQueue[GraphModel] = SimpleQueue()

    @torch.no_grad()
    def answer(number: int) -> Answer:
        batch = collator(torch.from_numpy(batches[number]).to(collator.device))
        free = idle.get()
        try:
            with autocast(precision, collator.device):
                return ask(free, batch)
        finally:
            idle.put(free)

    with worthwhile_threads(model, collator, graphs, batch_size) as room:
        alone = is_shared() or is_own(type(model))
        lanes = 1 if alone else max(min(room, len(own) // FEWEST), 1)
        for lane in range(lanes):
            idle.put(deepcopy(model) if lane else model)
        with pool(lanes) if lanes > 1 else nullcontext() as beside:
            done = dict(zip(own, (beside.map if beside else map)(answer, own)))
    if is_shared():
        shares: list[Any] = [None] * stride
        torch.distributed.all_gather_object(shares, done)
        done = {number: found for share in shares for number, found in share.items()}
    return [done[number] for number in range(len(batches))]
