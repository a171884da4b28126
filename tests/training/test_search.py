"""The plan of a search and who goes on, wins or is refused; nothing is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from gradformer.errors import ConfigError, InputError
from gradformer.report.history import open_histories
from gradformer.report.pairs import comparable
from gradformer.training import search as searching
from gradformer.training.attempts import Attempt, Record, validation_scores
from gradformer.training.data import TrainingData
from gradformer.training.export import export
from gradformer.training.files import replace_json
from gradformer.training.fit import fit, resume
from gradformer.training.plan import Plan, load_plan
from gradformer.training.recipe import load_recipe
from gradformer.training.search import _shortened, _Trainer, closed, search
from tests.training import toy


@pytest.mark.parametrize(
    "damage",
    [lambda plan: plan.pop("recipe"), lambda plan: plan.update(sded=plan.pop("seed")),
     lambda plan: plan.update(method="halvinh"), lambda plan: plan.update(space=None)],
)  # fmt: skip
def test_a_damaged_plan_is_named(damage: Callable[[Any], object], tmp_path: Path) -> None:
    """It was called a bug, or an option that nobody had given."""
    stored = Plan("mutag", load_recipe("mutag"), {"model.decay": [0.4, 0.6]}).to_dict()
    replace_json(tmp_path / "plan.json", stored)
    assert load_plan(tmp_path).data == "mutag"
    damage(stored)
    replace_json(tmp_path / "plan.json", stored)
    with pytest.raises(InputError, match=r"plan.json: cannot be read \(.*\); .* restore this file"):
        load_plan(tmp_path)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"space": {}}, "space: the recipe states no ranges to search"),
        ({"space": {"model.decay": []}}, "model.decay: the range holds no value"),
        ({"space": {"train.lr": [1e-3, "fast"]}}, "train.lr: .*fast"),
        ({"method": "halfing"}, "method: unknown value 'halfing'; did you mean 'halving'"),
        ({"space": {"model.decay": 0.5}}, "model.decay: got 0.5, expected a list of the values"),
        ({"space": {"model.decay": "0.5"}}, "model.decay: got '0.5', expected a list of the val"),
        ({"data": [1, 2]}, "data: got list, expected a name or a path"),
        ({"seed": 0.5}, "seed: got 0.5, expected a whole number"),
        ({"samples": 0}, "samples: got 0"),
        ({"finalists": 0}, "finalists: got 0"),
        ({"steady": 0}, "steady: got 0"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(
    changed: dict[str, Any], message: str
) -> None:
    plan = {"data": "own", "recipe": load_recipe("own"), "space": {"model.decay": [0.5]}}
    with pytest.raises(ConfigError, match=message):
        Plan(**{**plan, **changed})


def test_a_plan_of_numpys_numbers_and_a_path_is_kept(tmp_path: Path) -> None:
    """They ended in a traceback where the plan was written down."""
    recipe, rates = replace(load_recipe("own"), trials=np.int64(1)), np.array([0.25, 0.5])  # type: ignore[arg-type]
    space = {"model.decay": rates, "model.layers": np.arange(1, 3)}
    plan = Plan(Path("own.csv"), recipe, space, samples=np.int64(3), reading={})  # type: ignore[arg-type]
    replace_json(tmp_path / "plan.json", plan.to_dict())
    assert load_plan(tmp_path) == plan
    assert recipe.to_yaml() == load_recipe("own").to_yaml()


def test_halving_ends_with_the_finalists() -> None:
    space = {"model.width": [32, 48, 64, 80, 96], "train.lr": [1e-3, 2e-3]}
    plan = Plan("own", load_recipe("own"), space, samples=99, finalists=2)
    assert plan.rungs() == [(10, 7), (3, 20), (2, 60)]
    assert len({*plan.candidates()}) == 10


def test_random_search_trains_all_in_full() -> None:
    space = {"model.width": [32, 48, 64], "train.lr": [1e-3, 2e-3]}
    plan = Plan("own", load_recipe("own"), space, method="random", samples=4)
    assert plan.rungs() == [(4, load_recipe("own").train.epochs)]
    assert len(set(plan.candidates())) == 4
    assert (
        plan.candidates() != Plan("own", load_recipe("own"), space, samples=4, seed=1).candidates()
    )


def test_a_short_attempt_warms_up_for_the_same_share_of_it() -> None:
    recipe = load_recipe("own", settings=["train.epochs=40", "train.warmup_epochs=10"])
    short = _shortened(recipe, 6).train
    assert (short.epochs, short.warmup_epochs) == (6, 1.5)


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Candidates are not trained: their scores are a function of their settings."""

    def judge(metric: str, score: Callable[[tuple[str, ...]], float | None]) -> None:
        def rung(_: object, number: int, epochs: int, chosen: Mapping[int, tuple[str, ...]]) -> Any:
            for candidate, settings in chosen.items():
                yield Attempt(number, candidate, settings, epochs, metric, score(settings), None)

        monkeypatch.setattr(_Trainer, "rung", rung)
        monkeypatch.setattr(_Trainer, "check", lambda *_: None)

    return judge


RATES = [k / 10_000 for k in range(1, 10)]


@pytest.mark.parametrize(("metric", "sign"), [("mae", 1), ("accuracy", -1)])
def test_the_best_of_a_rung_go_on_and_the_best_of_all_wins(
    metric: str, sign: int, judged: Callable[..., None], tmp_path: Path
) -> None:
    """7 is the best, the recipe itself is better than 3."""
    judged(
        metric, lambda given: sign * abs(7 - 10_000 * float(given[0][9:])) if given else sign * 4
    )
    recipe = load_recipe("own", settings=("train.epochs=9",))
    found = search(Plan("own.csv", recipe, {"train.lr": RATES}), tmp_path / "search")
    assert found.best.train.lr == 7e-4
    rungs = [[one.settings for one in found.attempts if one.rung == rung] for rung in range(3)]
    assert len(rungs[0]) == 9
    assert {*rungs[1]} == {(f"train.lr={rate}",) for rate in (6e-4, 7e-4, 8e-4)}
    assert rungs[2] == [(), ("train.lr=0.0007",)]


@pytest.mark.parametrize(("threads", "groups"), [(1, [1, 1, 1]), (2, [2, 1]), (9, [2, 1])])
def test_on_a_cpu_as_many_candidates_are_trained_together_as_it_has_cores(
    threads: int, groups: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def train(self: _Trainer, recipes: Mapping[Path, Any]) -> list[Any]:
        made.append(len(recipes))
        return []

    monkeypatch.setattr(_Trainer, "_runs", train)
    monkeypatch.setattr("gradformer.training.search.ABREAST", 2)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    plan = Plan("own", load_recipe("own"), {"model.decay": [0.4, 0.6, 0.8]})
    trainer = _Trainer(plan, tmp_path, Record(tmp_path, {}), "cpu", None)
    list(trainer.rung(0, 1, dict(enumerate(plan.candidates()))))
    assert made == groups


def _trained(
    curves: list[list[float]], selected: Sequence[float] = (), lost: Sequence[int] = ()
) -> Any:
    """A run of two trials with these curves; some of its lines may be lost."""
    lines = [
        {"kind": "epoch", "trial": trial, "epoch": epoch, "val": {"accuracy": value}}
        for epoch, values in enumerate(zip(*curves), 1)
        for trial, value in enumerate(values)
    ]
    kept = [line for number, line in enumerate(lines) if number not in lost]
    ended = [{"trial": trial, "epochs": len(curve)} for trial, curve in enumerate(curves)]
    val = {"values": list(selected or map(max, curves))}
    return SimpleNamespace(
        folder=Path("attempts/0-0"),
        recipe=SimpleNamespace(trials=2),
        record=[{"kind": "run"}, *kept, {"kind": "result"}],
        results={"metric": "accuracy", "val": val, "trials": ended},
    )


NOISY, CALM = [[0.5, 0.9, 0.5, 0.5], [0.5, 0.5, 0.7, 0.5]], [[0.6, 0.6, 0.6, 0.6]] * 2


def test_a_candidate_is_scored_by_epochs_in_a_row_not_by_its_luckiest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best of many noisy epochs was the better the noisier they were."""
    runs = [_trained(NOISY), _trained(CALM), _trained(CALM, selected=[0.6])]
    monkeypatch.setattr(_Trainer, "_runs", lambda self, recipes: runs)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    plan = Plan("own", load_recipe("own"), {"model.decay": [0.4, 0.6, 0.8]}, steady=2)
    trainer = _Trainer(plan, tmp_path, Record(tmp_path, {}), "cpu", None)
    by_two, calmer, diverged = trainer.rung(0, 4, dict(enumerate(plan.candidates())))
    assert (by_two.val, by_two.std) == pytest.approx((0.65, 0.05 * 2**0.5))
    assert (calmer.val, calmer.std) == pytest.approx((0.6, 0))
    assert (diverged.val, diverged.std) == (None, None)


def test_one_epoch_is_the_selected_one() -> None:
    """A search of before goes on by it; it was the best, which another metric may not select."""
    assert validation_scores(_trained(NOISY, selected=[0.5, 0.7]), 1) == [0.5, 0.7]


@pytest.mark.parametrize("lost", [range(8), [1, 3, 5, 7], [2]])
def test_a_record_that_has_lost_epochs_is_no_score(lost: Sequence[int]) -> None:
    """The candidate counted as diverged, or by the trials that were left."""
    assert validation_scores(_trained(NOISY), 2) == pytest.approx([0.7, 0.6])
    with pytest.raises(InputError, match=r"record.jsonl: has lost epochs of trial [01], by which"):
        validation_scores(_trained(NOISY, lost=lost), 2)


def test_candidates_that_begin_from_other_weights_have_their_data_read_as_those_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The categories of the first were those of all."""

    def prepare(*_: object, inputs: str) -> tuple[TrainingData, None]:
        read.append(inputs)
        return toy.data(), None

    read: list[str] = []
    monkeypatch.setattr(searching, "inputs_before", lambda recipe, data: recipe.train.weights)
    monkeypatch.setattr(searching, "prepare", prepare)
    plan = Plan("own.csv", load_recipe("own"), {"train.weights": ["zinc", "molhiv"]})
    trainer = _Trainer(plan, tmp_path, Record(tmp_path, {}), "cpu", None)
    for name in ("zinc", "molhiv", "zinc"):
        trainer._data(plan.recipe.change(f"train.weights={name}"))
    assert read == ["zinc", "molhiv"]


def test_an_attempt_is_no_run_with_a_test_score(tmp_path: Path) -> None:
    """What its results call test is the validation part, which its epoch was selected by."""
    recipe = toy.RECIPE.change("train.epochs=1")
    runs = [
        fit(data, recipe=recipe, out=tmp_path / name, **toy.QUIET)
        for name, data in (("open", toy.data()), ("closed", closed(toy.data())))
    ]
    attempt = runs[1]
    assert attempt.results["test"] == attempt.results["val"]
    assert (attempt.folder / "recipe.yaml").is_file()
    said = "closed: an attempt of a search, which knows no test part; train its recipe anew: .*yaml"
    with pytest.raises(InputError, match=said):
        export(attempt, tmp_path / "alone")
    with pytest.raises(InputError, match=said):
        resume(attempt.folder, toy.data(), trials=2, **toy.QUIET)
    text = attempt.report().read_text()
    assert "is an attempt of a search, to which the test part is closed: what is" in text
    assert "attempt of a search" not in runs[0].report().read_text()
    assert not comparable(*open_histories(runs))


def test_a_search_without_a_winner_or_in_a_folder_of_others_says_so(
    judged: Callable[..., None], tmp_path: Path
) -> None:
    judged("mae", lambda settings: None)
    plan = Plan("mutag", load_recipe("own"), {"train.lr": RATES})
    (tmp_path / "search").mkdir()
    with pytest.raises(InputError, match="every candidate of the last rung diverged; try"):
        search(plan, tmp_path / "search")
    begun = _Trainer(plan, tmp_path / "search", Record(tmp_path / "search", {}), "cpu", None)
    begun._require_file()  # a benchmark is none
    with pytest.raises(InputError, match="search: holds a search with another plan"):
        search(replace(plan, data="own.csv"), tmp_path / "search")
    with pytest.raises(InputError, match="exists already and is no search"):
        search(plan, tmp_path)
