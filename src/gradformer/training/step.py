"""One training step of one trial: from graph numbers to changed weights, all on the device."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import torch
from torch import Tensor

from gradformer.attention.availability import runs_kernels
from gradformer.attention.draws import site_seeds
from gradformer.attention.layout import Rows
from gradformer.graphs.batch import Batch
from gradformer.graphs.collate import Capacity, Collator
from gradformer.model.base import GraphModel
from gradformer.model.parallel import is_shared, total
from gradformer.training.losses import Objective
from gradformer.training.optimizer import Adam, Schedule, clip_
from gradformer.training.sections import TrainOptions
from gradformer.training.weights import Weights, counters


class Step:
    """``step(ids)`` gathers the batch, goes forward and backward, and updates the weights.

    All that changes is tensors on the device: the weights, the optimizer's two vectors, the
    averaged weights and ``count``, the number of steps done. With a :class:`Capacity` nothing is
    read back, so the call can be captured as a CUDA graph and replayed.

    ``weights`` are the numbers of ``model``; ``seed`` keys all random draws; ``labelled`` [nodes]
    bool are the nodes to learn from where the data are a single graph.
    """

    def __init__(
        self,
        model: GraphModel,
        weights: Weights,
        collator: Collator,
        objective: Objective,
        options: TrainOptions,
        schedule: Schedule,
        seed: int,
        *,
        labelled: Tensor | None = None,
    ) -> None:
        self.model, self.weights, self.collator = model, weights, collator
        self.objective, self.options, self.schedule = objective, options, schedule
        self.labelled = labelled
        device = weights.vector.device
        decay = weights.decayed, options.weight_decay
        self.optimizer = Adam(options.optimizer, weights.grad, *decay)
        self.average = weights.vector.clone() if options.ema else None
        self.count = torch.zeros((), dtype=torch.int64, device=device)
        self._seeds = site_seeds(torch.tensor([seed, 0], device=device), model.sites)
        self._fused = None
        if runs_kernels(weights.vector):
            from gradformer.training.fused_update import FusedUpdate

            self._fused = FusedUpdate(self.optimizer, schedule, options.clip, options.ema)

    @property
    def state(self) -> list[Tensor]:
        """Every tensor that a step changes."""
        average = [] if self.average is None else [self.average]
        optimizer = [self.optimizer.mean, self.optimizer.square]
        weights = [self.weights.vector, self.weights.grad, *counters(self.model).values()]
        return [*weights, *optimizer, self.count, *average]

    def __call__(self, ids: Tensor, capacity: Capacity | None = None) -> Tensor:
        """Train on the graphs ``ids`` [graphs] int64; returns the loss before the update, 0-d."""
        self.model.train()
        self._seeds[:, 1] = self.count
        batch = replace(self.collator(ids, capacity), seeds=self._seeds)
        with autocast(self.options.precision, ids.device), self.weights.collecting() as pieces:
            prediction = self.model(batch)
        rows = batch.layout.rows if self.model.schema.level == "node" else batch.layout.graph_rows
        y = self._targets(batch, rows)
        share, slope = self.objective.with_slope(prediction, y, rows.mask)
        grads = torch.autograd.grad(prediction, self.weights.parameters, slope, allow_unused=True)
        self.weights.set_grad(grads, pieces)
        if is_shared():
            torch.distributed.all_reduce(self.weights.grad)
        self.update()
        return total(share)

    def _targets(self, batch: Batch, rows: Rows) -> Tensor:
        y = batch.y
        assert y is not None
        if self.labelled is None:
            return y
        known = self.labelled[rows.index.clamp(0, len(self.labelled) - 1)]
        missing = torch.nan if y.is_floating_point() else -1
        return torch.where(known.view(-1, *(1,) * (y.dim() - 1)), y, missing)

    @torch.no_grad()
    def update(self) -> None:
        """Change the weights by the gradient at ``weights.grad``, and count the step."""
        grad, vector = self.weights.grad, self.weights.vector
        if self._fused is not None:
            self._fused(vector, grad, self.count, self.average)
            return
        if self.options.clip:
            clip_(grad, self.options.clip)
        rate = self.schedule(self.count)
        self.optimizer.update(vector[: self.weights.num_parameters], grad, rate, self.count)
        self.count.add_(1)
        if self.average is not None:
            # The average is short at first, so that it does not remember the initial weights.
            keep = ((1 + self.count) / (10 + self.count)).clamp(max=self.options.ema)
            self.average.lerp_(vector, (1.0 - keep).to(vector.dtype))


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Products in the precision of the recipe (``tf32`` is set for a whole process)."""
    if precision != "bf16":
        return contextlib.nullcontext()
    # Its cache of weights is one for all threads: trials beside each other would clear it.
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)
