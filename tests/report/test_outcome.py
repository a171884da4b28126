"""What the page says came out, and of what: every number by hand."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from gradformer.report.answers import answers_section
from gradformer.report.history import History
from gradformer.report.outcome import headline, result_section
from gradformer.report.settings import protocol, settings_section
from gradformer.training.keepsakes import Answers, save_answers
from gradformer.training.run import Run


def history(run, label, *settings, test=None):
    """A run with other settings, and other test scores of its trials."""
    found = History(replace(run, recipe=run.recipe.change(*settings)), label)
    if test is not None:
        scored = zip(found.results, test)
        vars(found)["results"] = [r | {"test": r["test"] | {found.metric: y}} for r, y in scored]
    return found


def words(markup):
    return " ".join(re.sub("<[^>]+>", " ", str(markup)).split())


@pytest.mark.parametrize(("kind", "best"), [("classes", "two"), ("numbers", "one")])
def test_the_best_mean_is_bold(kind, best, request):
    run = request.getfixturevalue(kind)
    histories = [history(run, "one", test=(0.25, 0.5)), history(run, "two", test=(0.5, 0.75))]
    rows = str(result_section(histories)).split("<tr>")
    (bold,) = [words(row) for row in rows if 'class="best"' in row]
    assert bold.startswith(f"{best} toy ")


def test_a_headline_says_how_many_trials_of_what_size_and_how_long(classes):
    found = words(headline(History(classes, "run")))
    assert "2 of 2 trials that ended well" in found
    assert f"{classes.results['trials'][0]['parameters']:,} parameters" in found
    assert found.endswith("s training time, all trials")


def test_every_trial_has_a_row(classes):
    found = words(result_section([History(classes, "run")]))
    assert "Mean ± standard deviation over 2 trials." in found
    for result in classes.results["trials"]:
        row = [result[name] for name in ("trial", "seed", "status", "best_epoch", "epochs")]
        assert " ".join(map(str, row)) in found


def test_the_protocol_is_that_of_the_recipe(classes):
    told = dict(protocol(history(classes, "run", "seed=3", "data.fraction=0.3")))
    assert told["seeds"] == "3 to 4"
    assert told["share of the training part"] == "30 %"
    assert told["selection"] == "first epoch with the best validation accuracy"
    tuned = protocol(history(classes, "run", "train.weights=/home/me/runs/many"))
    assert {*tuned} - {*protocol(history(classes, "run"))} == {("fine-tuned from", "many")}
    other = dict(protocol(history(classes, "run", "trials=1", "train.select=mean_recall")))
    assert other["seeds"] == "0"
    assert other["selection"] == "first epoch with the best validation weighted accuracy"


def test_settings_say_where_runs_differ(classes):
    one, two = history(classes, "one"), history(classes, "two", "train.lr=0.5", "model.profile=yes")
    both, alone = words(settings_section([one, two])), words(settings_section([one]))
    differ = "Where the runs differ option one two model.profile no yes train.lr 0.003 0.5"
    assert both.startswith(f"{differ} one recipe dataset toy trials 2 seed 0 model name gradformer")
    assert alone.startswith("recipe dataset toy trials 2 seed 0 model name gradformer layers 2")


def test_errors_are_means_over_the_answers_that_can_be_judged(numbers, tmp_path):
    run = Run.load(shutil.copytree(numbers.folder, tmp_path / "run"))
    truth = np.array([[1], [np.nan], [3], [4]], np.float32)
    answer = np.array([[1.5], [2], [2], [np.inf]], np.float32)
    for trial in run.trials:
        save_answers(run.place(trial), Answers(answer, truth))
    assert ": 4 answers; MAE 0.75." in words(answers_section([History(run, "run")]))
