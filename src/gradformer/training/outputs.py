"""What a model gives for many graphs, in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gradformer.graphs.collate import Collator
from gradformer.model.base import GraphModel
from gradformer.model.parallel import is_shared
from gradformer.training.distributed import place_in_batch
from gradformer.training.sections import at_least
from gradformer.training.step import autocast
from gradformer.training.threads import worthwhile_threads


@torch.no_grad()
def model_outputs(
    model: GraphModel,
    collator: Collator,
    graphs: NDArray[np.int64],
    batch_size: int,
    precision: str = "float32",
) -> NDArray[np.float32]:
    """What the model gives for ``graphs``, [graphs or their nodes, outputs].

    Processes that share a batch share the work, and all have the whole result.
    """
    at_least("batch_size", batch_size, 1)
    model.eval()
    batches = np.split(graphs, range(batch_size, len(graphs), batch_size))
    first, stride = place_in_batch()
    done: dict[int, NDArray[Any]] = {}
    with worthwhile_threads(model, collator, graphs, batch_size):
        for number in range(first, len(batches), stride):
            batch = collator(torch.from_numpy(batches[number]).to(collator.device))
            with autocast(precision, collator.device):
                done[number] = model(batch).float().cpu().numpy()
    if is_shared():
        shares: list[Any] = [None] * stride
        torch.distributed.all_gather_object(shares, done)
        done = {number: rows for share in shares for number, rows in share.items()}
    return np.concatenate([done[number] for number in range(len(batches))])
