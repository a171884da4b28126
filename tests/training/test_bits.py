"""The weights after 20 steps are the same bits alone, among other trials, padded, and resumed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gradformer.graphs.arrays import Schema
from gradformer.graphs.batch import Batch
from gradformer.graphs.collate import Capacity
from gradformer.model.base import GraphModel, ModelConfig, all_models
from gradformer.model.conv import GradformerConv
from gradformer.model.encoders import FeatureEncoder
from gradformer.model.heads import Head
from gradformer.training.checkpoint import load_checkpoint, save_checkpoint
from gradformer.training.epochs import train_epoch
from gradformer.training.loop import train
from gradformer.training.recipe import Recipe
from gradformer.training.stop import Stop
from tests.training import toy
from tests.training.toy import After, digest

RECIPE = toy.RECIPE.change("train.epochs=5")  # of four steps


make = partial(toy.trials, recipe=RECIPE)


@pytest.fixture(scope="module")
def alone() -> str:
    (trial,) = make(1)
    assert train([trial], lambda *_: None, Stop())
    assert int(trial.step.count) == 20
    return digest(trial)


def test_among_other_trials(alone: str) -> None:
    short = RECIPE.change("train.epochs=2")
    trials = [*make(0, recipe=short), *make(1), *make(*range(2, 10), recipe=short)]
    train(trials, lambda *_: None, Stop())
    digests = [digest(trial) for trial in trials]
    assert digests[1] == alone
    assert len(set(digests)) == 10


def test_whatever_torch_has_drawn_before(alone: str) -> None:
    torch.manual_seed(123)
    (trial,) = make(1)
    torch.rand(17)
    train([trial], lambda *_: None, Stop())
    assert digest(trial) == alone


@pytest.mark.parametrize("steps", [0, 6, 8, 19])
def test_resumed_after_any_step(steps: int, alone: str, tmp_path: Path) -> None:
    (trial,) = make(1)
    assert not train([trial], lambda *_: None, After(trial, steps))
    save_checkpoint(tmp_path, trial)
    (again,) = make(1)
    assert load_checkpoint(tmp_path, again)
    assert int(again.step.count) == steps
    train([again], lambda *_: None, Stop())
    assert digest(again) == alone


class Foreign(GraphModel):
    """Draws from torch's generator, as what a user brings along may do."""

    Config = ModelConfig

    def __init__(self, schema: Schema, config: ModelConfig | None = None, **options: object):
        super().__init__(schema, config, options)
        width = self.config.width
        self.node = FeatureEncoder(schema.node, width)
        self.conv = GradformerConv(width, None, heads=2, dropout=0.5, attention_dropout=0.5)
        self.dropout = nn.Dropout(0.5)
        self.head = Head(width, schema.outputs, schema.level)

    def states(self, batch: Batch) -> Tensor:
        assert batch.edges is not None
        ends = torch.stack([batch.edges.source, batch.edges.target]).long()
        return self.dropout(self.conv(self.node(batch), ends, batch.layout.graph))


def test_a_model_that_draws_from_torch_is_resumed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(all_models(), "foreign", Foreign)
    model = {"name": "foreign", "width": 8, "layers": 1}
    recipe = Recipe.from_dict({**RECIPE.to_dict(), "model": model})
    (whole,) = make(1, recipe=recipe)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    assert train([whole], lambda *_: None, Stop())
    assert torch.equal(torch.random.get_rng_state(), before), "the user's generator is as it was"

    other, trial = make(0, 1, recipe=recipe)
    assert not train([other, trial], lambda *_: None, After(trial, 6))
    save_checkpoint(tmp_path, trial)
    (again,) = make(1, recipe=recipe)
    assert load_checkpoint(tmp_path, again)
    train([again], lambda *_: None, Stop())
    assert digest(again) == digest(whole)


def test_padding_changes_rounding_only() -> None:
    recipe = replace(RECIPE, train=replace(RECIPE.train, ema=0.0))
    ragged, padded = make(1, 1, recipe=recipe)
    for ids in ragged.batches():
        slots = torch.cat([ids, torch.full((9 - len(ids),), -1)])
        capacity = Capacity(graphs=9, nodes=100, edges=400, largest=8)
        torch.testing.assert_close(padded.step(slots, capacity), ragged.step(ids))
    close = {"rtol": 1e-3, "atol": 1e-4}  # Adam divides small gradients by their own size
    torch.testing.assert_close(padded.weights.vector, ragged.weights.vector, **close)


def test_a_loss_that_is_not_finite_stops_one_trial_only(alone: str) -> None:
    trials = make(0, 1)
    train_epoch(trials[:1], Stop())
    trials[0].close_epoch()
    trials[0].weights.vector[0] = np.nan
    seen = []
    assert train(trials, lambda trial, record: seen.append((trial.number, record)), Stop())
    bad = trials[0].progress
    assert (bad.status, bad.bad_step, bad.epoch) == ("diverged", 4, 2)
    assert [record["bad_step"] for number, record in seen if number == 0] == [4]
    assert digest(trials[1]) == alone
