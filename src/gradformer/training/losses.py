r"""What a step minimises: means over the labels of the whole batch, on all processes that share it.

Padded rows and missing labels (−1 for classes, NaN else) take no part. A batch without labels has
loss 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from gradformer.attention.availability import runs_kernels
from gradformer.errors import ConfigError
from gradformer.graphs.arrays import Task
from gradformer.model.parallel import is_shared, total

LOSSES = ("auto", "cross_entropy", "l1", "mse")
CLASS_WEIGHTS = ("none", "batch", "balanced")
MOST_FUSED_OUTPUTS = 1024


def loss_kind(loss: str, task: Task, metric: str) -> str:
    """The kind of :class:`Objective`; ``auto`` is L1 where MAE is the score, else squares."""
    fitting = ("l1", "mse") if task == "regression" else ("cross_entropy",)
    if loss == "auto":
        loss = fitting[0] if metric in ("mae", "scaled_mae") else fitting[-1]
    if loss not in fitting:
        raise ConfigError(
            f"train.loss: {loss!r} does not fit a {task} task; use {' or '.join(fitting)}"
        )
    return {"regression": loss, "multiclass": "classes"}.get(task, "binary")


def check_class_weights(name: str, task: Task) -> str:
    """Return ``name`` if it means something in ``task``: no option is silently without effect."""
    of_task = {"multiclass": CLASS_WEIGHTS, "regression": ("none",)}
    fitting = of_task.get(task, ("none", "balanced"))
    if name not in fitting:
        raise ConfigError(
            f"train.class_weights: {name!r} has no meaning in a {task} task; "
            f"use {' or '.join(fitting)}"
        )
    return name


@dataclass(frozen=True)
class Objective:
    r"""A loss with its class weights; its ``kind`` is ``classes``, ``binary``, ``l1`` or ``mse``.

    ``batch_weights`` are those of *Benchmarking GNNs*: class c weighs :math:`(V - n_c)/V`, with
    :math:`n_c` of the batch's V labels. ``balance`` are fixed weights from the training split: one
    for each class, or for binary targets the weight of a positive. ``scale`` are mean and standard
    deviation of each target of a regression, [2, outputs], which learns them in that unit.
    """

    kind: str
    batch_weights: bool = False
    balance: Tensor | None = None
    scale: Tensor | None = None

    def __call__(self, prediction: Tensor, y: Tensor, real: Tensor | None = None) -> Tensor:
        """This process's share of the loss, 0-d; shares add up to the loss of the shared batch.

        Shapes: prediction [rows, outputs]; y [rows] or [rows, targets]; real [rows] bool.
        """
        if self.kind == "classes":
            return self._classes(prediction, y, real)
        if self.scale is not None:
            y = (y - self.scale[0]) / self.scale[1]
        known = ~y.isnan()
        if real is not None:
            known = known & real[:, None]
        target = torch.where(known, y, 0.0).to(prediction.dtype)
        if self.kind == "binary":
            value = F.binary_cross_entropy_with_logits(
                prediction, target, pos_weight=self.balance, reduction="none"
            )
        else:
            value = prediction - target
            value = value.abs() if self.kind == "l1" else value.square()
        return torch.where(known, value, 0.0).sum() / total(known.sum()).clamp(min=1)

    def with_slope(
        self, prediction: Tensor, y: Tensor, real: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The share of the loss, and how it changes with the prediction, [rows, outputs]."""
        small = prediction.shape[1] <= MOST_FUSED_OUTPUTS
        if small and runs_kernels(prediction) and not is_shared():
            from gradformer.training.fused_loss import fused_loss

            weights = self.scale, self.balance, self.batch_weights
            return fused_loss(prediction.detach(), y, real, self.kind, *weights)
        leaf = prediction.detach().requires_grad_()
        share = self(leaf.float(), y, real)
        (slope,) = torch.autograd.grad(share, leaf)
        return share.detach(), slope

    def _classes(self, prediction: Tensor, y: Tensor, real: Tensor | None) -> Tensor:
        known = y >= 0 if real is None else (y >= 0) & real
        classes = torch.arange(prediction.shape[1], device=y.device)
        # A product with one-hot rows, because the derivative of a gather adds in any order.
        member = ((y[:, None] == classes) & known[:, None]).to(prediction.dtype)
        count = total(member.sum(0))  # n_c
        weight = torch.ones_like(count) if self.balance is None else self.balance
        if self.batch_weights:
            weight = 1.0 - count / count.sum().clamp(min=1)
        value = -(member * prediction.log_softmax(1) * weight).sum()
        whole = (count * weight).sum()
        return value / torch.where(whole > 0, whole, 1.0)


def balanced_weights(y: Tensor, task: Task, outputs: int) -> Tensor:
    """Fixed weights from the labels of the training split.

    Class c weighs n / (C·n_c) (0 if it has no label); a positive weighs negatives / positives.
    """
    if task == "multiclass":
        count = torch.bincount(y[y >= 0], minlength=outputs).double()
        return torch.where(count > 0, count.sum() / (outputs * count.clamp(min=1)), 0.0).float()
    positive, negative = (y > 0.5).sum(0).double(), (y < 0.5).sum(0).double()
    return torch.where(positive > 0, negative / positive.clamp(min=1), 1.0).float()
