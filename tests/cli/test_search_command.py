"""``gradformer search``: by validation, test closed, continued where it was."""

from __future__ import annotations

import json
import re
import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from gradformer.cli.search import _tell
from gradformer.report.levers import levers
from gradformer.training.attempts import load_attempts
from gradformer.training.plan import Plan, load_plan
from gradformer.training.recipe import load_recipe
from gradformer.training.run import Run
from gradformer.training.search import search
from gradformer.training.trial import Trial
from tests.cli.conftest import Program

SPACE = ("--range", "model.decay=0.4,0.8", "--range", "train.lr=1e-3,1e-2")


def _words(files: Path, out: Path) -> tuple[str | Path, ...]:
    small = ("--set", "model.layers=1", "--set", "train.epochs=3")
    return ("search", files / "graphs.jsonl", *SPACE, *small, "--samples", "4", "--out", out)


@pytest.fixture(scope="module")
def found(program: Program, files: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADFORMER_DATA", str(files / "raw"))
        program(*_words(files, files / "search"))
    return files / "search"


def test_halving_trains_fewer_for_longer(found: Path) -> None:
    about, *lines = map(json.loads, (found / "record.jsonl").read_text().splitlines())
    assert about["kind"] == "environment"
    assert about["device"] == "cpu"
    assert [(line["rung"], line["epochs"]) for line in lines] == [(0, 1)] * 4 + [(1, 3)] * 2
    assert load_plan(found).steady == 5
    for line in lines:  # no more epochs than that
        run = Run.load(found / "attempts" / f"{line['rung']}-{line['candidate']}")
        values = [one["val"]["accuracy"] for one in run.record if one["kind"] == "epoch"]
        assert line["val"] == pytest.approx(np.mean(values))
    first = [line["val"] for line in lines[:4]]
    recipe, last = sorted(lines[4:], key=lambda line: len(line["settings"]))
    assert recipe["settings"] == []
    assert last["candidate"] == lines[int(np.argmax(first))]["candidate"]
    best = yaml.safe_load((found / "best.yaml").read_text())
    won = last["settings"] if last["val"] > recipe["val"] else []  # the recipe itself wins a tie
    assert load_plan(found).recipe.change(*won).to_dict() == best
    assert best["train"]["epochs"] == 3


@pytest.mark.parametrize("against", [True, False])
def test_a_candidate_wins_only_if_it_beats_the_recipe(
    files: Path, tmp_path: Path, against: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = load_recipe("own", settings=("train.epochs=1", "model.layers=1"))
    same = {"train.lr": [recipe.train.lr]}
    plan = Plan(str(files / "graphs.jsonl"), recipe, same, samples=1)
    kept = plan.to_dict()
    if not against:
        del kept["against_recipe"], kept["steady"]  # as of before there were these options
    assert Plan.from_dict(kept).steady == (5 if against else 1)
    found = search(Plan.from_dict(kept), tmp_path / "search", tell=partial(_tell, plan))
    assert found.settings == (() if against else (f"train.lr={recipe.train.lr}",))
    said = capsys.readouterr().err
    assert (said.count("train.lr="), said.count("the recipe as it is")) == (1, int(against))


def test_recorded_attempts_without_folders_stand_and_decide_the_metric(
    files: Path, tmp_path: Path
) -> None:
    """As a repository keeps them; scores of two metrics were ranked together otherwise."""
    recipe = load_recipe("own", settings=("train.epochs=1", "model.layers=1"))
    plan = Plan(str(files / "graphs.jsonl"), recipe, {"train.lr": [1e-3]})
    first, second = search(plan, tmp_path / "search").attempts
    assert first.metric == "accuracy"
    record = tmp_path / "search" / "record.jsonl"
    place, line, _ = record.read_text().splitlines()
    kept = json.loads(line) | {"metric": "mean_recall", "val": 0.875}
    record.write_text(f"{place}\n{json.dumps(kept)}\n")
    shutil.rmtree(tmp_path / "search" / "attempts")
    again = search(plan, tmp_path / "search").attempts
    assert [attempt.metric for attempt in again] == ["mean_recall"] * 2
    assert [attempt.candidate for attempt in again] == [first.candidate, second.candidate]
    assert again[0].val == 0.875
    assert load_attempts(tmp_path / "search") == again


def test_what_is_set_is_not_drawn(program: Program, files: Path, tmp_path: Path) -> None:
    words = ("--set", "model.layers=1", "--budget", "0", "--out", tmp_path / "search")
    program("search", files / "graphs.jsonl", *words)
    plan = load_plan(tmp_path / "search")
    assert plan.recipe.model.config.layers == 1
    assert set(plan.space) == {"model.decay", "model.dropout", "train.lr"}


def test_a_search_begins_at_a_preset(program: Program, files: Path, tmp_path: Path) -> None:
    """It had no --preset, so that none could be searched around."""
    mine = tmp_path / "mine.yaml"
    mine.write_text("dataset: own\npresets: {deep: {model: {layers: 7}}}\n")
    words = ("--recipe", mine, "--preset", "deep", "--range", "train.lr=0.1", "--budget", "0")
    program("search", files / "graphs.jsonl", *words, "--out", tmp_path / "search")
    assert load_plan(tmp_path / "search").recipe.model.config.layers == 7


def test_a_search_with_an_endless_option_goes_on(
    program: Program, files: Path, tmp_path: Path
) -> None:
    """JSON has no number for it: the plan lost it, and could not be read again."""
    words = (*_words(files, tmp_path / "search"), "--set", "train.clip=inf")
    program(*words, "--budget", "0")
    assert load_plan(tmp_path / "search").recipe.train.clip == float("inf")
    program(*words)
    assert "clip: .inf" in (tmp_path / "search" / "best.yaml").read_text()


def test_seeds_that_are_set_count(program: Program, files: Path, tmp_path: Path) -> None:
    """They gave way to the default of --trials."""
    words = ("--set", "trials=2", "--budget", "0", "--out", tmp_path / "search")
    program("search", files / "graphs.jsonl", *words)
    assert load_plan(tmp_path / "search").recipe.trials == 2
    program("search", files / "graphs.jsonl", *words[:-1], tmp_path / "three", "--trials", "3")
    assert load_plan(tmp_path / "three").recipe.trials == 3  # as train takes them


def test_a_search_is_on_the_data_that_are_named(
    program: Program, files: Path, tmp_path: Path
) -> None:
    """A recipe for other data, or --set dataset, took their place without a word."""
    (tmp_path / "mine.yaml").write_text("base: mutag\ntrain: {epochs: 1}\nmodel: {layers: 1}\n")
    words = ("--recipe", tmp_path / "mine.yaml", "--range", "train.lr=0.1", "--budget", "0")
    for data, dataset in (("pattern-sample",) * 2, (files / "graphs.jsonl", "own")):
        program("search", data, *words, "--out", tmp_path / dataset)
        assert load_plan(tmp_path / dataset).recipe.dataset == dataset
    out = ("--set", "dataset=nci1", "--out", tmp_path / "other")
    for verb in ("search", "train"):
        said = program(verb, "mutag", *out, code=1).stderr
        assert said.startswith("error: --set dataset=nci1: the data are named by themselves")


@pytest.mark.parametrize("name", ["train.epochs", "seed", "trials", "data.split", "dataset"])
def test_what_candidates_share_cannot_be_searched(
    program: Program, files: Path, tmp_path: Path, name: str
) -> None:
    """A rung sets the epochs, so those of a range had no effect; the others choose the splits."""
    out = tmp_path / "search"
    words = (*_words(files, out), "--range", f"{name}=1,2")
    said = program(*words, code=1).stderr
    assert said.startswith(f"error: {name}: cannot be searched")
    assert not out.exists()


def test_a_candidate_with_a_diverged_seed_is_last(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mean of the others is over other splits than that of the candidates beside it."""
    lucky = 2e-3

    def validate(trial: Trial) -> dict[str, float] | None:
        if trial.recipe.train.lr != lucky:
            return {"accuracy": 0.5}
        return None if trial.number == 0 else {"accuracy": 1.0}

    monkeypatch.setattr(Trial, "validate", validate)
    recipe = load_recipe("own", settings=("train.epochs=1", "model.layers=1", "trials=2"))
    plan = Plan(str(files / "graphs.jsonl"), recipe, {"train.lr": [1e-3, lucky]}, method="random")
    found = search(plan, tmp_path / "search")
    assert {one.settings: one.val for one in found.attempts} == {
        (): 0.5,
        ("train.lr=0.001",): 0.5,
        (f"train.lr={lucky}",): None,
    }
    assert found.best.train.lr == recipe.train.lr


def test_the_plan_names_no_folder_of_raw_files(files: Path, found: Path) -> None:
    assert str(files / "raw") not in (found / "plan.json").read_text()


def test_no_candidate_sees_the_test_part(found: Path) -> None:
    for folder in (found / "attempts").iterdir():
        outcome = json.loads((folder / "results.json").read_text())
        assert outcome["test"]["values"] == outcome["val"]["values"]


def test_a_search_goes_on_without_doing_anything_twice(
    program: Program, files: Path, found: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADFORMER_COMMIT", "another")
    kept = (found / "record.jsonl").read_bytes()
    times = {p: p.stat().st_mtime_ns for p in (found / "attempts").glob("*/results.json")}
    plan = json.loads((found / "plan.json").read_text())
    del plan["recipe"]["model"]["input_dropout"]  # as of before there was the option
    (found / "plan.json").write_text(json.dumps(plan))
    told = program("search", "--resume", found).stdout
    train = f"gradformer train {files / 'graphs.jsonl'} --recipe {found / 'best.yaml'}"
    assert told.splitlines()[-1] == f"train    {train}"
    assert "over the others after 1 epoch" in told
    assert {one.name for one in levers(load_attempts(found))} == {"model.decay", "train.lr"}
    without = program("train", "--recipe", found / "best.yaml", code=1)
    assert "gradformer train FILE --recipe" in without.stderr
    assert (found / "record.jsonl").read_bytes() == kept
    assert {p: p.stat().st_mtime_ns for p in times} == times
    other = program(*_words(files, found)[:-2], "--seed", "1", "--out", found, code=1)
    assert "another plan" in other.stderr
    refused = program("search", "--resume", found, *SPACE, code=1)
    assert "error: --range: cannot go with --resume" in refused.stderr


def test_a_search_whose_data_have_moved_goes_on_with_them(
    program: Program, files: Path, tmp_path: Path
) -> None:
    here, there, folder = tmp_path / "here", tmp_path / "there", tmp_path / "a search"
    for place in (here, there):
        place.mkdir()
    shutil.copy(files / "graphs.jsonl", here)
    program(*_words(here, folder), "--budget", "0")
    (here / "graphs.jsonl").rename(there / "graphs.jsonl")
    gone = program("search", "--resume", folder, code=1).stderr
    assert f"gradformer search FILE --resume '{folder}'" in gone
    benchmark = program("search", "pattern-sample", "--resume", folder, code=1).stderr
    assert "another plan" in benchmark
    lines = (there / "graphs.jsonl").read_text().splitlines(keepends=True)
    (there / "fewer.jsonl").write_text("".join(lines[:-1]))
    other = program("search", there / "fewer.jsonl", "--resume", folder, code=1).stderr
    assert "not those that the search began with" in other
    told = program("search", there / "graphs.jsonl", "--resume", folder).stdout
    assert f"gradformer train {there / 'graphs.jsonl'} --recipe" in told
    assert load_plan(folder).data == str(there / "graphs.jsonl")
    program("search", "--resume", folder)


@pytest.mark.parametrize("won", [(), ("train.lr=0.1", "model.decay=0.4")])
def test_the_last_words_train_what_has_won(
    won: tuple[str, ...],
    program: Program,
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def carry_out(plan: Plan, folder: Path, **_: object) -> SimpleNamespace:
        return SimpleNamespace(attempts=[], folder=folder, settings=won)

    monkeypatch.setattr("gradformer.training.search.search", carry_out)
    table = files / "molecules.csv"
    best, recipe, train = program("search", table, "--target", "y").stdout.splitlines()
    assert best == f"best     {' '.join(won) or 'the recipe as it is'}"
    place = re.fullmatch(r"recipe   (runs/search-molecules-\d{8}-\d{6}/best\.yaml)", recipe)
    assert place is not None
    assert train == f"train    gradformer train {table} --target y --recipe {place[1]}"


def test_a_search_whose_data_are_wrong_is_not_begun(
    program: Program, files: Path, tmp_path: Path
) -> None:
    words = ("search", files / "molecules.csv", *SPACE, "--out", tmp_path / "search")
    assert "no column 'Y'" in program(*words, "--target", "Y", code=1).stderr
    assert not (tmp_path / "search").exists()


def test_a_search_with_a_candidate_that_cannot_be_trained_is_not_begun(
    program: Program, files: Path, tmp_path: Path
) -> None:
    """It ended where that candidate was next, and could not be continued without it."""
    words = ("search", files / "graphs.jsonl", "--range", "model.width=64,16")
    said = program(*words, "--set", "model.pe_width=16", "--out", tmp_path / "search", code=1)
    assert "leaves no room for features in width 16" in said.stderr
    assert not (tmp_path / "search").exists()


def test_every_place_of_a_search_is_recorded(
    program: Program, found: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "search"
    shutil.copytree(found, folder)
    for last in (folder / "attempts").glob("1-*"):
        shutil.rmtree(last)
    record = folder / "record.jsonl"
    before = record.read_text().splitlines()
    record.write_text("".join(f"{line}\n" for line in before if '"rung": 1' not in line))
    for place, budget in (("another", "0"), ("third", "9")):  # stopped there, ended here
        monkeypatch.setenv("GRADFORMER_COMMIT", place)
        program("search", "--resume", folder, "--budget", budget)
    first, second, third, *attempts = record.read_text().splitlines()
    assert [first, *attempts] == before
    assert [json.loads(line)["commit"] for line in (second, third)] == ["another", "third"]
