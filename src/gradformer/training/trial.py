"""A trial: one seed, with its own split, initial weights and order of the data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gradformer.attention import Decay
from gradformer.errors import InputError, warn
from gradformer.graphs.collate import Collator
from gradformer.graphs.portable import draw, permutation, stream
from gradformer.model.base import GraphModel, has_guests
from gradformer.training.ambient import own_draws
from gradformer.training.capture import CapturedTrial
from gradformer.training.data import TrainingData
from gradformer.training.distributed import place_in_batch
from gradformer.training.fine_tuning import take_weights
from gradformer.training.losses import Objective, balanced_weights, check_class_weights, loss_kind
from gradformer.training.metrics import better, check_metric, is_defined, metric_name, scores
from gradformer.training.optimizer import Schedule
from gradformer.training.outputs import model_outputs
from gradformer.training.recipe import Recipe
from gradformer.training.step import Step
from gradformer.training.weights import Weights

_ORDER, _DRAWS, _ANSWERS = 7, 8, 9
"""Streams of a trial's seed: the order of the data, torch's generators in steps and in answers."""


@dataclass
class Progress:
    """Where a trial stands, besides its tensors; plain values, no times.

    ``status`` is ``training``, ``finished`` or ``diverged`` (at step ``bad_step``, whose loss is
    not finite, or after which validation answers are not). ``best`` are the validation scores of
    ``best_epoch``; epochs count from 1.
    """

    epoch: int = 0
    best_epoch: int = 0
    best: dict[str, float] = field(default_factory=dict)
    status: str = "training"
    bad_step: int | None = None


class Trial:
    """One seed of a recipe on one device.

    The split, the initial weights, the order of the data and all random draws are functions of
    ``seed`` alone: what other trials do beside it changes no bit. One that was ``begun`` before
    goes on from its own files: the run that ``train.weights`` names may be gone.
    """

    def __init__(
        self,
        number: int,
        recipe: Recipe,
        data: TrainingData,
        collator: Collator,
        begun: bool = False,
    ) -> None:
        self.number, self.recipe, self.data, self.collator = number, recipe, data, collator
        self.seed = recipe.seed + number
        self.parts = data.split(self.seed)
        self.graphs = data.graphs(self.parts.train)  # on which it trains
        self.scale = data.scale(self.parts.train)
        self.metric = self._selecting()
        self.model = recipe.model.make(data.schema, data.store.codebook, self.seed)
        if recipe.train.weights != "none" and not begun:
            take_weights(self.model, recipe.train.weights, number)
        self.model.to(collator.device)
        self.weights = Weights(self.model, recipe.train.decay_all)
        self.best = self.weights.vector.clone()
        self.progress = Progress()
        self.losses: list[Tensor] = []
        self.captured: CapturedTrial | None = None
        options = recipe.train
        self.schedule = Schedule(
            options.lr,
            options.schedule,
            round(options.warmup_epochs * self.steps_per_epoch),
            options.epochs * self.steps_per_epoch,
            options.min_lr,
        )
        self.step = Step(
            self.model,
            self.weights,
            collator,
            self._objective(),
            options,
            self.schedule,
            self.seed,
            labelled=self._labelled_nodes(),
        )

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.graphs) // self.recipe.train.batch_size)

    def permuted(self, epoch: int) -> NDArray[np.int64]:
        """Graph numbers of the training part in the order of an epoch."""
        return self.graphs[permutation(len(self.graphs), _ORDER, self.seed, epoch)]

    def order(self, epoch: int) -> list[NDArray[np.int64]]:
        """Graph numbers of each step of an epoch; the last batch may be short."""
        ids, size = self.permuted(epoch), self.recipe.train.batch_size
        return np.split(ids, range(size, len(ids), size))

    def batches(self) -> list[Tensor]:
        """Graph numbers of each step of the present epoch, on the device."""
        device = self.collator.device
        return [torch.from_numpy(ids).to(device) for ids in self.order(self.progress.epoch)]

    def generator_seeds(self, process: int) -> list[int]:
        """Seeds of torch's generators in each step of the present epoch: parts of a user's model
        may draw from them. 32 bits, since the CPU's takes no more."""
        first = self.progress.epoch * self.steps_per_epoch
        return self._generator_seeds(_DRAWS, process, range(first, first + self.steps_per_epoch))

    def _generator_seeds(self, kind: int, process: int, numbers: range) -> list[int]:
        bits = draw(stream(kind, self.seed, process), np.array(numbers, dtype=np.uint64))
        return [int(seed) for seed in bits >> np.uint64(32)]

    def predict(self, items: NDArray[np.int64]) -> NDArray[np.float32]:
        """Predictions of the present model for items of a split."""
        options, graphs = self.recipe.train, self.data.graphs(items)
        rows = None
        if self.captured is not None:
            rows = self.captured.predict(graphs)
            if rows is None:
                warn(
                    f"trial {self.number}: the GPU has no memory to record its answers; they are "
                    "given batch by batch, which may change last bits"
                )
        if rows is None:
            how = options.batch_size, options.precision
            with self._answering():
                rows = model_outputs(self.model, self.collator, graphs, *how)
        if self.data.over == "nodes":
            rows = rows[items]
        return rows if self.scale is None else self.scale.invert(rows)

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Inside, what a user's model draws of torch's generators follows from seed and epoch."""
        process, _ = place_in_batch()
        epoch = self.progress.epoch
        (seed,) = self._generator_seeds(_ANSWERS, process, range(epoch, epoch + 1))
        with own_generators(self.model, self.collator.device) as generators:
            for generator in generators:
                generator.manual_seed(seed)
            yield

    def validate(self) -> dict[str, float] | None:
        """All metrics of the present weights, in the user's units; None where an answer is not
        finite."""
        items = self.parts.val
        with self.using(self._present):
            prediction = self.predict(items)
        if not np.isfinite(prediction).all():
            return None
        return scores(prediction, self.data.labels(items), self.data.schema.task, self.scale)

    def close_epoch(self) -> dict[str, Any]:
        """Score the epoch whose steps are done, select, decide whether to go on; its record."""
        losses = torch.stack(self.losses).double().cpu().numpy()
        self.losses = []
        first_step = self.progress.epoch * self.steps_per_epoch
        self.progress.epoch += 1
        record = {"epoch": self.progress.epoch, "loss": self._mean_loss(losses)}
        if not np.isfinite(losses).all():
            return self._diverged(record, first_step + int((~np.isfinite(losses)).argmax()))
        found = self.validate()
        if found is None:
            return self._diverged(record, first_step + len(losses) - 1)
        improved = better(self.metric, found[self.metric], self.progress.best.get(self.metric))
        if improved:
            self.progress.best_epoch, self.progress.best = self.progress.epoch, found
            self.best.copy_(self._present)
        patience = self.recipe.train.patience
        waited = self.progress.epoch - self.progress.best_epoch
        if self.progress.epoch == self.recipe.train.epochs or (patience and waited >= patience):
            self.progress.status = "finished"
        rate = float(self.schedule(torch.tensor(self.progress.epoch * self.steps_per_epoch - 1)))
        return {**record, "val": found, "lr": rate, "improved": improved, **self._starts()}

    @property
    def _present(self) -> Tensor:
        """The weights to judge: the averaged ones where the recipe has them."""
        return self.weights.vector if self.step.average is None else self.step.average

    def _diverged(self, record: dict[str, Any], step: int) -> dict[str, Any]:
        self.progress.status, self.progress.bad_step = "diverged", step
        return {**record, "bad_step": step}

    def _mean_loss(self, losses: NDArray[np.float64]) -> float:
        """Mean over the graphs of the epoch."""
        size = self.recipe.train.batch_size
        sizes = np.minimum(size, len(self.graphs) - size * np.arange(len(losses)))
        return float((losses * sizes).sum() / sizes.sum())

    def _starts(self) -> dict[str, Any]:
        """Start points [sets][heads] of a model that has them, those that are judged."""
        decay = getattr(self.model, "decay", None)
        if not isinstance(decay, Decay) or decay.start is None:
            return {}
        with self.using(self._present):
            return {"starts": decay.start.detach().cpu().tolist()}

    def _selecting(self) -> str:
        """The metric that selects the epoch, which must be defined on the validation part."""
        name, schema = self.recipe.train.select, self.data.schema
        if name == "auto":
            return self.data.metric
        targets = schema.outputs if self.data.scaled else 1
        check_metric(name, schema.task, "train.select", targets)
        if not is_defined(name, self.data.labels(self.parts.val), schema.outputs):
            raise InputError(
                f"train.select: the {metric_name(name)} of the validation part is not defined, its "
                "labels are all the same; select by another metric, or give another split"
            )
        return name

    def _objective(self) -> Objective:
        options, schema, device = self.recipe.train, self.data.schema, self.collator.device
        check_class_weights(options.class_weights, schema.task)
        balance = None
        if options.class_weights == "balanced":
            y = torch.from_numpy(self.data.labels(self.parts.train))
            balance = balanced_weights(y, schema.task, schema.outputs).to(device)
        scale = None
        if self.scale is not None:
            scale = torch.tensor([self.scale.mean, self.scale.std], device=device)
        kind = loss_kind(options.loss, schema.task, self.data.metric)
        return Objective(kind, options.class_weights == "batch", balance, scale)

    def _labelled_nodes(self) -> Tensor | None:
        if self.data.over == "graphs":
            return None
        mask = torch.zeros(int(self.data.store.arrays["node_ptr"][-1]), dtype=torch.bool)
        mask[torch.from_numpy(self.parts.train)] = True
        return mask.to(self.collator.device)

    @contextmanager
    def using(self, vector: Tensor) -> Iterator[None]:
        """Inside, the model has other weights, such as :attr:`best`, those of the best epoch."""
        kept = self.weights.vector.clone()
        self.weights.vector.copy_(vector)
        try:
            yield
        finally:
            self.weights.vector.copy_(kept)


@contextmanager
def own_generators(model: GraphModel, device: torch.device) -> Iterator[list[torch.Generator]]:
    """torch's generators, for a model that may draw from them; outside they are as they were. Other
    models get none, since another thread may be drawing."""
    if not has_guests(model):
        yield []
        return
    devices = [] if device.type == "cpu" else [torch.cuda.current_device()]
    with own_draws(devices):
        yield [torch.default_generator, *(torch.cuda.default_generators[k] for k in devices)]
