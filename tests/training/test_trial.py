"""What a trial makes of its epochs: which is selected, when it ends, where it diverged."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gradformer.errors import ConfigError, InputError
from gradformer.training.step import autocast
from gradformer.training.trial import Trial
from tests.training import toy


def begun(*settings: str) -> Trial:
    """24 training graphs in steps of 7: the last of four has 3."""
    return toy.trial(toy.RECIPE.change("model.layers=1", *settings))


def test_the_best_epoch_is_the_first_of_equals_and_patience_counts_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trial = begun("train.epochs=9", "train.patience=2", "train.schedule=cosine")
    assert trial.step.average is not None  # which is judged and kept, not the weights
    for epoch, score in enumerate((0.5, 0.7, 0.7, 0.6), start=1):
        assert trial.progress.status == "training"
        trial.step.average.fill_(score)
        trial.losses = [torch.tensor(loss) for loss in (1.0, 2.0, 3.0, 4.0)]
        monkeypatch.setattr(trial, "validate", lambda score=score: {"accuracy": score})
        record = trial.close_epoch()
        assert (record["epoch"], record["improved"]) == (epoch, epoch < 3)
        assert record["loss"] == (7 * 1 + 7 * 2 + 7 * 3 + 3 * 4) / 24, "the mean over graphs"
        assert record["lr"] == float(trial.schedule(torch.tensor(4 * epoch - 1)))
        assert record["starts"] == [[pytest.approx(score)] * 2], "those that are judged"
        assert not trial.losses
    assert trial.progress.status == "finished"
    assert (trial.progress.best_epoch, trial.progress.best) == (2, {"accuracy": 0.7})
    assert (trial.best == 0.7).all()


@pytest.mark.parametrize("patience", [0, 4])
def test_without_an_end_to_patience_the_last_epoch_ends(
    patience: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = begun("train.epochs=4", f"train.patience={patience}")
    monkeypatch.setattr(trial, "validate", lambda: {"accuracy": 0.5})
    for _ in range(4):
        assert trial.progress.status == "training"
        trial.losses = [torch.tensor(1.0)] * 4
        trial.close_epoch()
    assert trial.progress.status == "finished"


def test_a_divergence_is_at_its_first_bad_step(monkeypatch: pytest.MonkeyPatch) -> None:
    for losses, answer, step in (
        ((1.0, math.nan, 1.0, math.inf), 0.0, 5),
        ((1.0, 1.0, 1.0, 1.0), math.nan, 7),
    ):
        trial = begun()
        trial.progress.epoch = 1
        answers = np.zeros((len(trial.parts.val), 2), np.float32)
        answers[0, 0] = answer
        monkeypatch.setattr(trial, "predict", lambda items, answers=answers: answers)
        trial.losses = [torch.tensor(loss) for loss in losses]
        assert trial.close_epoch()["bad_step"] == step
        assert (trial.progress.status, trial.progress.bad_step) == ("diverged", step)


def test_the_schedule_counts_in_steps() -> None:
    trial = begun("train.epochs=10", "train.warmup_epochs=2", "train.min_lr=1e-5")
    assert (trial.steps_per_epoch, trial.schedule.warmup, trial.schedule.steps) == (4, 8, 40)
    assert (trial.schedule.rate, trial.schedule.lowest) == (3e-3, 1e-5)
    assert [len(ids) for ids in trial.batches()] == [7, 7, 7, 3]
    assert sorted(torch.cat(trial.batches()).tolist()) == trial.parts.train.tolist()


def test_an_update_clips_and_the_average_is_short_at_first() -> None:
    step = begun("train.clip=0.5", "train.ema=0.25").step
    assert step.average is not None
    expected = step.average.clone()
    for count in range(1, 5):  # (1 + 3) / (10 + 3) is above 0.25
        step.weights.grad.fill_(1.0)
        step.update()
        assert float(step.weights.grad.norm()) == pytest.approx(0.5, rel=1e-4)
        expected.lerp_(step.weights.vector, 1 - min((1 + count) / (10 + count), 0.25))
        torch.testing.assert_close(step.average, expected)
    assert int(step.count) == 4


def test_every_step_draws_anew() -> None:
    trial = begun("train.lr=1e-12", "model.dropout=0.5")
    first, second = (float(trial.step(trial.batches()[0])) for _ in range(2))
    assert first != pytest.approx(second, rel=1e-4), "the same weights and graphs"


def test_balanced_classes_are_those_of_the_training_part() -> None:
    trial = begun("train.class_weights=balanced")
    count = np.bincount(trial.data.labels(trial.parts.train))
    assert trial.step.objective.balance is not None
    assert trial.step.objective.balance.tolist() == pytest.approx(24 / (2 * count))
    assert not trial.step.objective.batch_weights
    assert begun("train.class_weights=batch").step.objective.batch_weights


def test_what_selects_must_fit_the_task() -> None:
    assert begun("train.select=mean_recall").metric == "mean_recall"
    with pytest.raises(ConfigError, match=r"train\.select: unknown value 'mae'"):
        begun("train.select=mae")


def test_what_selects_must_be_defined_on_the_validation_part() -> None:
    """Nothing was ever selected: a whole training ended without a model."""
    recipe = toy.RECIPE.change("train.select=r2")
    data = toy.data(recipe, task="regression")
    one = replace(data, split=lambda seed: data.split(seed)._replace(val=np.array([7])))
    assert Trial(0, recipe, data, data.collator("cpu")).metric == "r2"
    with pytest.raises(InputError, match=r"train\.select: the R² of the validation .* not defined"):
        Trial(0, recipe, one, one.collator("cpu"))


class Noisy(nn.Module):
    """A part of a user's that draws also where it is evaluated."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def forward(self, *given: Any) -> Tensor:
        answer: Tensor = self.head(*given)
        return answer + torch.randn_like(answer)


def test_answers_of_a_model_that_draws_follow_from_seed_and_epoch() -> None:
    weights, found = begun().model.state_dict(), {}
    for name, number, epoch in (("one", 0, 0), ("again", 0, 0), ("seed", 1, 0), ("epoch", 0, 1)):
        trial = toy.trial(toy.RECIPE.change("model.layers=1"), number)
        trial.model.load_state_dict(weights)
        trial.model.head = Noisy(trial.model.head)
        trial.progress.epoch = epoch
        found[name] = trial.predict(np.arange(9))
    assert (found["one"] == found["again"]).all()
    assert (found["one"] != found["seed"]).any()
    assert (found["one"] != found["epoch"]).any()


def test_half_precision_keeps_no_weights_for_other_threads() -> None:
    """Trials beside each other cleared what was kept: a weight used twice had other bits."""
    with autocast("bf16", torch.device("cpu")):
        assert not torch.is_autocast_cache_enabled()
