"""A trial whose numbers are no longer finite is never selected, scored or asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gradformer.cli.tables import print_results
from gradformer.errors import GradformerWarning, InputError
from gradformer.training.fit import fit
from gradformer.training.trial import Trial
from tests.training import toy

# The loss of the only step is finite, the weights after it are not.
HUGE = ["train.batch_size=100", "train.lr=1e38", "train.clip=0", "train.schedule=none"]
HUGE += ["train.warmup_epochs=0", "train.ema=0", "train.weight_decay=0", "train.epochs=2"]


def test_weights_that_spoil_the_answers_are_a_divergence(tmp_path: Path) -> None:
    recipe = toy.RECIPE.change(*HUGE)
    data = toy.data(recipe)
    run = fit(data, recipe=recipe, out=tmp_path / "run", **toy.QUIET)
    (result,) = run.results["trials"]
    assert (result["status"], result["bad_step"], result["best_epoch"]) == ("diverged", 0, 0)
    assert result["test"] is None
    epochs = [entry for entry in run.record if entry["kind"] == "epoch"]
    assert [(entry["bad_step"], np.isfinite(entry["loss"])) for entry in epochs] == [(0, True)]
    for ask in (run.predict, run.embed, run.evaluate):
        with pytest.raises(InputError, match=f"{run.folder}: no trial has a test score"):
            ask(data.store)


def test_a_diverged_trial_takes_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    close_epoch = Trial.close_epoch

    def poisoned(trial: Trial) -> dict[str, object]:
        record = close_epoch(trial)
        if trial.number == 1:
            trial.weights.vector[0] = np.nan
        return record

    monkeypatch.setattr(Trial, "close_epoch", poisoned)
    recipe = toy.RECIPE.change("model.layers=1", "train.epochs=2", "trials=3")
    data = toy.data(recipe)
    run = fit(data, recipe=recipe, out=tmp_path / "run", **toy.QUIET)
    assert run.results["diverged"] == [1]
    assert run.trials == [0, 2]
    assert run.predict(data.store).trials.shape[0] == 2
    assert len(run.evaluate(data.store)) == 2
    with pytest.raises(InputError, match=r"trial 1 is not finished, diverged, or .* used: 0, 2"):
        run.embed(data.store, trial=1)
    with pytest.warns(GradformerWarning, match="^trial 1 diverged: it counts nowhere$"):
        print_results(run)
    assert ": 2 trials, " in capsys.readouterr().out
