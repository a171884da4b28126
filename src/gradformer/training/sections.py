"""The sections of a recipe beside its model: which data are used, and how the weights are found."""

from __future__ import annotations

from dataclasses import dataclass

from gradformer.errors import ConfigError, at_least, choice
from gradformer.model.base import option
from gradformer.training.losses import CLASS_WEIGHTS, LOSSES
from gradformer.training.optimizer import OPTIMIZERS, SCHEDULES

PRECISIONS = ("float32", "tf32", "bf16")


@dataclass(frozen=True)
class DataOptions:
    """Which part of a dataset is used, and how."""

    split: str = option(
        "auto",
        "auto (a benchmark's protocol; of your own data the split column, else stratified, else "
        "random), random, stratified, scaffold, column, fixed or kfold (trial k is tested on fold "
        "k of ten)",
    )
    fraction: float = option(
        1.0, "share of the training part that is used; small shares lie inside larger ones"
    )

    def __post_init__(self) -> None:
        if not 0.0 < self.fraction <= 1.0:
            raise ConfigError(f"data.fraction: got {self.fraction}, expected a share in (0, 1]")


@dataclass(frozen=True)
class TrainOptions:
    """How the weights are found."""

    epochs: int = option(100, "passes over the training part")
    batch_size: int = option(32, "graphs in a step")
    optimizer: str = option("adamw", "adam or adamw")
    lr: float = option(1e-3, "highest learning rate")
    weight_decay: float = option(1e-5, "on weight matrices; biases, norms, start points have none")
    decay_all: bool = option(False, "weight decay on every parameter, as the authors' code")
    warmup_epochs: float = option(0.0, "epochs of linear warm-up")
    schedule: str = option("cosine", "after warm-up: none (constant) or cosine, step by step")
    min_lr: float = option(0.0, "where the cosine ends")
    clip: float = option(1.0, "largest norm of the gradient, 0 for no limit")
    loss: str = option("auto", "auto, cross_entropy, l1 or mse")
    class_weights: str = option(
        "none", "none, batch (as Benchmarking GNNs; one class of several) or balanced"
    )
    precision: str = option("float32", "float32, tf32 or bf16")
    patience: int = option(0, "stop after so many epochs without improvement, 0 for never")
    ema: float = option(0.0, "decay of averaged weights, 0 for none")
    select: str = option("auto", "validation metric that selects the epoch; auto: the dataset's")
    weights: str = option("none", "run or model of the package to begin from; none: drawn")

    def __post_init__(self) -> None:
        for name, known in (
            ("optimizer", OPTIMIZERS),
            ("schedule", SCHEDULES),
            ("loss", LOSSES),
            ("class_weights", CLASS_WEIGHTS),
            ("precision", PRECISIONS),
        ):
            choice(f"train.{name}", getattr(self, name), known)
        for name, lowest in (("epochs", 1), ("batch_size", 1), ("patience", 0)):
            at_least(f"train.{name}", getattr(self, name), lowest)
        for name in ("weight_decay", "warmup_epochs", "min_lr", "clip"):
            at_least(f"train.{name}", getattr(self, name), 0.0)
        if not self.lr > 0.0:
            raise ConfigError(f"train.lr: got {self.lr}, expected a number above 0")
        if self.min_lr > self.lr:
            raise ConfigError(f"train.min_lr: {self.min_lr} is above train.lr = {self.lr}")
        if not 0.0 <= self.ema < 1.0:
            raise ConfigError(f"train.ema: got {self.ema}, expected a share in [0, 1)")
