"""The page: well formed, complete, self-contained, and true to the run."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from gradformer.errors import InputError
from gradformer.report import write_report
from gradformer.report.attention import SEES
from gradformer.report.history import History
from gradformer.training.keepsakes import Answers, load_answers, save_answers
from gradformer.training.run import Run
from tests.report import toys

SECTIONS = ["result", "learning", "decay", "attention", "answers", "settings"]
VOID = {"meta", "br", "hr", "col"}


class Outline(HTMLParser):
    """Checks that elements are closed in order; notes sections, titles and attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sections: list[str] = []
        self.images = self.titles = 0
        self.attributes: set[str] = set()
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.attributes |= set(given)
        self.images += given.get("role") == "img"
        self.titles += tag == "title" and self.open[-1] == "svg"
        if tag == "section":
            self.sections.append(given["id"])
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def check(page: str) -> None:
    outline = Outline(page)
    assert outline.sections == SECTIONS
    assert outline.images == outline.titles > 0, "every picture has a title"
    assert not outline.attributes & {"src", "srcset", "xlink:href", "onload", "onclick"}
    assert not re.search(r"https?:|//|url\(|@import|<script|<link", page)
    assert "default-src 'none'" in unescape(page)
    assert not re.search(r"\b(nan|inf|None)\b", page)
    assert page.startswith("<!DOCTYPE html>")


@pytest.fixture(params=["classes", "numbers", "nodes"])
def run(request: pytest.FixtureRequest) -> Run:
    return request.getfixturevalue(request.param)


def test_every_section_for_every_kind_of_task(run, tmp_path):
    page = write_report([run], tmp_path / "deep" / "report.html").read_text()
    check(page)
    for title in ("training loss over epochs", "Start points of", "Decay M of the logit in"):
        assert f"<title>{title}" in page
    kind = "Prediction over true" if run.schema.task == "regression" else "Confusion matrix"
    assert f"<title>{kind}" in page
    assert re.search(r"<title>graph \d+ with attention, same weights, decay off<", page)
    assert page == write_report([run.folder], tmp_path / "again.html").read_text()


def test_answers_of_equal_parts_have_the_mean_accuracy_of_the_trials(classes, tmp_path):
    page = write_report([classes], tmp_path / "report.html").read_text()
    assert f"{100 * classes.results['test']['mean']:.1f} % right" in page
    assert "2 trials together" in page


def test_answers_give_the_test_score(numbers):
    for trial, result in enumerate(numbers.results["trials"]):
        answers = load_answers(numbers.folder / "trials" / str(trial))
        error = np.abs(answers.prediction.astype(np.float64) - answers.target).mean()
        assert error == pytest.approx(result["test"]["mae"])


def test_comparison(variants, tmp_path):
    page = write_report(variants, tmp_path / "report.html").read_text()
    check(page)
    for first, other in combinations((run.folder.name for run in variants), 2):
        assert f"{other} − {first}" in page
    assert "Where the runs differ" in page
    columns = ("plain", "PE: position", "bias", "decay")  # a run that is called so says it once
    for column in columns:
        assert re.search(rf"<title>graph \d+ with attention, {column}</title>", page)
    order = [page.index(f"<b>{column}</b>") for column in columns]
    assert order == sorted(order)
    assert "decay off" not in page, "which a run alone has beside it"
    assert "Not shown for gin" in page
    assert "gin has no decay." in page
    assert SEES in page
    assert page.count('<table class="facts"><caption>Protocol') == 1, "a shared protocol, once"
    assert "own column, else by seed" in page, "of data whose split is not recorded"


def test_a_protocol_says_where_runs_differ(classes, numbers, tmp_path):
    page = write_report([classes, numbers], tmp_path / "report.html").read_text()
    assert page.count('<table class="facts"><caption>Protocol') == 1
    assert "<td>classes: graph multiclass; numbers: graph regression</td>" in page
    assert page.count("evaluated once a trial") == 1


def test_another_split_is_not_the_benchmarks_protocol(classes, tmp_path):
    origin = {**classes.origin, "kind": "benchmark"}
    about = "<td>a toy</td>"
    for split, seen in (("auto", True), ("kfold", False)):
        recipe = replace(classes.recipe, dataset="mutag").change(f"data.split={split}")
        run = replace(classes, recipe=recipe, origin=origin)
        page = write_report([run], tmp_path / "report.html").read_text()
        assert (about in page) == seen


def test_a_run_that_diverged_says_so(classes, tmp_path):
    folder = shutil.copytree(classes.folder, tmp_path / "run")
    (folder / "results.json").unlink()
    shutil.rmtree(folder / "trials")
    (folder / "trials").mkdir()
    lines = [json.loads(line) for line in (folder / "record.jsonl").read_text().splitlines()]
    for line in lines:
        if "test" in line:
            line |= {"status": "diverged", "bad_step": 3, "val": {}, "test": None, "best_epoch": 0}
    (folder / "record.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = write_report([folder], tmp_path / "report.html").read_text()
    check(page)
    assert "trial 1 diverged and counts in no mean" in page
    assert "No trial has ended well, so there is no result." in page
    assert page.count('>diverged at step 3</td><td class="number">–</td>') == 2


@pytest.mark.parametrize("task", ["binary", "multilabel"])
def test_labels_that_are_yes_or_no(task, tmp_path):
    run = toys.train(tmp_path / "run", task, trials=1, epochs=1)
    page = write_report([run], tmp_path / "report.html").read_text()
    check(page)
    assert page.count("<title>Confusion matrix") == (2 if task == "multilabel" else 1)
    assert ("over 2 targets together" in page) == (task == "multilabel")


def test_a_run_that_was_stopped_shows_what_there_is(classes, tmp_path):
    folder = tmp_path / "stopped"
    shutil.copytree(classes.folder, folder)
    for path in (folder / "results.json", folder / "trials"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (folder / "trials").mkdir()
    lines = (folder / "record.jsonl").read_text().splitlines()
    (folder / "record.jsonl").write_text("\n".join(lines[:3]) + "\n")
    page = write_report([folder], tmp_path / "report.html").read_text()
    check(page)
    assert "0 of 2 trials have ended" in page
    assert "No trial has ended yet" in page
    assert "Every trial" not in page
    (folder / "record.jsonl").write_text(lines[0] + "\n")
    page = write_report([folder], tmp_path / "r.html").read_text()
    assert "No epoch is recorded" in page
    assert "has a decay, and nothing is recorded of it yet." in page


def test_results_are_taken_from_where_they_are_whole(classes, tmp_path):
    folder = shutil.copytree(classes.folder, tmp_path / "run")
    (folder / "results.json").write_text("{")
    told = History(Run.load(folder), "told").outcome
    shutil.copy(classes.folder / "results.json", folder)
    lines = (folder / "record.jsonl").read_text().splitlines()
    (folder / "record.jsonl").write_text("\n".join(lines[:3]) + "\n")
    for outcome in (told, History(Run.load(folder), "cut").outcome):
        assert outcome["test"] == classes.results["test"]


def test_words_of_the_user_stay_words(classes, tmp_path):
    folder = tmp_path / "<b>&run"
    shutil.copytree(classes.folder, folder)
    run = replace(Run.load(folder), recipe=replace(classes.recipe, dataset="<script>"))
    page = write_report([run], tmp_path / "report.html").read_text()
    check(page)
    assert "&lt;script&gt;" in page


def test_missing_labels_are_left_out(classes, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(classes.folder, folder)
    target = np.array([0, 1, -1])
    answers = Answers(np.array([[1, 0], [0, 1], [0, 1]], np.float32), target)
    for trial in (0, 1):
        save_answers(folder / "trials" / str(trial), answers)
    page = write_report([folder], tmp_path / "report.html").read_text()
    assert "4 answers, 100.0 % right" in page


def test_no_run_is_an_error(tmp_path):
    with pytest.raises(InputError, match="name at least one folder"):
        write_report([], tmp_path / "report.html")
    with pytest.raises(InputError, match="not a run"):
        write_report([Path(tmp_path)], tmp_path / "report.html")
