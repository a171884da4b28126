"""What the page says came out, and of what: every number by hand."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from gradformer.report.answers import answers_section
from gradformer.report.history import History
from gradformer.report.outcome import APART, headline, result_section
from gradformer.report.scales import spread
from gradformer.report.settings import protocol, settings_section
from gradformer.training.keepsakes import Answers, save_answers
from gradformer.training.metrics import SCALED
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
    (bold,) = [words(row) for row in rows if '<td class="number"><span class="best"' in row]
    assert bold.startswith(f"{best} toy ")


def test_a_headline_has_the_scores_how_many_trials_of_what_size_and_how_long(classes, numbers):
    results, found = classes.results, headline(History(classes, "run"))
    test, val = (spread(results[part]["values"]) for part in ("test", "val"))
    size = results["trials"][0]["parameters"]
    assert str(found).startswith('<div class="cards"><div class="card first">')
    assert str(found).count("first") == 1
    assert words(found).startswith(
        f"{test} test accuracy, higher is better {val} validation accuracy "
        f"2 of 2 trials that ended well {size:,} parameters "
    )
    assert words(found).endswith("s training time, all trials")
    assert "test MAE, lower is better" in words(headline(History(numbers, "run")))


def test_every_metric_and_every_trial_has_a_row(classes):
    alone = History(classes, "run")
    found, trials = words(result_section([alone])), classes.results["trials"]
    assert "Mean ± standard deviation over 2 trials. ★: the metric by which" in found
    val, test = (spread([r[part]["accuracy"] for r in trials]) for part in ("val", "test"))
    assert f"compared. metric validation test accuracy ↑ ★ {val} {test} " in found
    assert "Every trial accuracy of every trial" in found
    for result in trials:
        row = [result[name] for name in ("trial", "seed", "status", "best_epoch", "epochs")]
        assert " ".join(map(str, row)) in found
    vars(alone)["results"] = [trials[0] | {"test": {"accuracy": 0.5, SCALED: 0.25}}]
    found = words(result_section([alone]))
    assert "One trial. ★" in found
    assert "compared. std is that of each target in the training part." in found


def test_runs_are_set_beside_each_other_if_they_have_a_score(classes, numbers):
    one, two = history(classes, "one", test=(0.25, 0.5)), history(classes, "two", test=(0.5, 0.75))
    none, apart = history(classes, "none", test=()), History(numbers, "apart")
    page = result_section([one, two, none, apart])
    found, size = words(page), f"{one.results[0]['parameters']:,}"
    val = spread(classes.results["val"]["values"])
    assert f" two toy accuracy ↑ 0.62 ± 0.18 {val} 2 {size} " in found
    assert " none toy accuracy ↑ – – 0 – " in found
    assert str(page).count('class="best"') == 1, "alone on its data, or without a score, is none"
    assert "The best mean on each dataset is bold. run data" in found, "no word of seeds"
    for metric, runs in (("accuracy ↑", 2), ("MAE ↓", 1)):
        (strips,) = re.findall(rf"<title>Every trial: test {metric} on toy</title>.*?</svg>", page)
        assert strips.count('class="mean"') == runs
    assert re.findall(r"(\w+ − \w+) [+−]\d", found) == ["two − one"]
    assert "Every trial of two accuracy of every trial" in found
    assert APART in words(result_section([one, apart]))


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
