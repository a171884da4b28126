"""Runs: folders, records, results, prediction."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch

from gradformer.errors import ConfigError, InputError
from gradformer.graphs.labels import Labels
from gradformer.graphs.objects import from_objects
from gradformer.training.export import best_trial
from gradformer.training.fit import fit
from gradformer.training.records import _RESULT, read_record, truncate
from gradformer.training.run import Run
from gradformer.training.trials import summary
from tests.training import toy
from tests.training.toy import QUIET


def test_a_run_holds_its_recipe_record_and_results(whole: Path) -> None:
    run = Run.load(whole)
    assert run.recipe == toy.RECIPE.change("trials=2")
    kinds = [entry["kind"] for entry in run.record]
    assert kinds[0] == "run"
    assert kinds.count("epoch") == 8
    assert kinds.count("result") == 2
    environment = run.record[0]["environment"]
    assert environment["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    epoch = next(entry for entry in run.record if entry["kind"] == "epoch")
    assert np.shape(epoch["starts"]) == (1, 2)
    values = [result["test"]["accuracy"] for result in run.results["trials"]]
    assert run.results["test"]["mean"] == pytest.approx(np.mean(values))
    assert run.results["test"]["std"] == pytest.approx(np.std(values, ddof=1))


def test_weights_without_a_result_are_no_trial(whole: Path, tmp_path: Path) -> None:
    run = shutil.copytree(whole, tmp_path / "run")
    (run / "trials" / "old").mkdir()
    shutil.copy(run / "trials" / "0" / "model.safetensors", run / "trials" / "old")
    assert Run.load(run).trials == [0, 1]


def test_predictions_are_those_of_the_selected_weights(whole: Path) -> None:
    run, data = Run.load(whole), toy.data()
    found = run.predict(data.store)
    assert found.trials.shape == (2, 40, 2)
    np.testing.assert_allclose(found.value.sum(axis=1), 1.0)
    for trial, result in enumerate(run.results["trials"]):
        items = data.split(result["seed"]).test
        right = found.trials[trial][items].argmax(axis=1) == data.labels(items)
        assert right.mean() == pytest.approx(result["test"]["accuracy"])


@pytest.mark.parametrize(
    ("task", "outputs", "labels"),
    [
        ("multiclass", 3, Labels("multiclass", ("y",), (("0", "1", "2"),))),
        ("binary", 1, Labels("binary", ("y",), (("0", "1"),))),
        ("multilabel", 2, Labels("multilabel", ("y0", "y1"), (("0", "1"), ("0", "1")))),
        ("regression", 2, Labels("regression", ("y0", "y1"), ())),
    ],
)
def test_targets_of_a_benchmark_go_by_number(
    task: Any, outputs: int, labels: Labels, whole: Path
) -> None:
    run = Run.load(whole)
    assert replace(run, schema=replace(run.schema, task=task, outputs=outputs)).labels == labels


def test_what_a_run_cannot_take_is_named(whole: Path) -> None:
    run = Run.load(whole)
    with pytest.raises(InputError, match=r"trial 2 is not finished, .* can be used: 0, 1"):
        run.model(2)
    with pytest.raises(InputError, match="new: labels of a TU folder cannot be read for a model"):
        run.like("tu", "new")
    with pytest.raises(InputError, match="the data: SMILES cannot be read for a model"):
        run.predict(pd.DataFrame({"smiles": ["C"]}))
    with pytest.raises(InputError, match="the list of graphs is empty"):
        run.predict([])
    with pytest.raises(InputError, match=r"the graphs: node and edge features are .* trained with"):
        run.predict(from_objects([nx.path_graph(3), nx.path_graph(4)], y=[0.5, 1.5]))


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for folder in (Path("/proc/run"), tmp_path / "file" / "run"):
        with pytest.raises(InputError, match=f"{folder}: cannot be written"):
            fit(toy.data(), recipe=toy.RECIPE, out=folder, **QUIET)


def test_regression_targets_are_learned_on_their_scale(tmp_path: Path) -> None:
    data = toy.data(task="regression")
    recipe = toy.RECIPE.change("train.epochs=30", "train.lr=1e-2", "model.attention_dropout=0")
    run = fit(data, recipe=recipe, out=tmp_path / "run", **QUIET)
    y = data.labels(np.arange(40))
    found = run.predict(data.store, device="auto")
    assert found.value.shape == (40, 1)
    for name in ("gpu", "mps", "meta"):
        with pytest.raises(ConfigError, match=f"device: unknown name '{name}'"):
            run.predict(data.store, device=name)
    test = data.split(0).test
    error = np.abs(found.value[test] - y[test]).mean()
    assert error == pytest.approx(run.results["test"]["mean"], rel=1e-5)
    assert error < 0.8 * np.abs(y[test] - y.mean()).mean()


def test_weights_that_may_not_be_read_are_named(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of another user; it was called a bug, and the file not to be there."""

    def refused(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refused)
    words = (
        r"trials/1/model.safetensors: cannot be read \(Permission denied\); mend the permissions"
    )
    with pytest.raises(InputError, match=words):
        Run.load(whole).model(1)


def test_a_record_is_truncated_to_the_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    entries = [{"kind": "run"}]
    entries += [{"kind": "epoch", "trial": t, "epoch": e} for e in (1, 2, 3) for t in (0, 1)]
    entries += [{"kind": "result", **dict.fromkeys(_RESULT, 0)}]
    path.write_text("".join(json.dumps(e) + "\n" for e in entries) + '{"kind": "epo')
    truncate(path, {0: 2})
    left = [(e["kind"], e.get("trial"), e.get("epoch")) for e in read_record(path)]
    assert left == [("run", None, None), ("epoch", 0, 1), ("epoch", 0, 2)]


def test_a_summary_is_over_the_trials_that_ended_with_a_score() -> None:
    tests = [{"mae": 1.0}, None, {"mae": 2.0}, {"mae": None}, {"mae": 6.0}]
    results = [
        {"trial": k, "status": "finished" if test else "diverged", "val": {"mae": k}, "test": test}
        for k, test in enumerate(tests)
    ]
    found = summary(results, "mae")
    assert found["test"] == {"mean": 3.0, "std": pytest.approx(7**0.5), "values": [1.0, 2.0, 6.0]}
    assert found["val"]["values"] == [0, 2, 4]
    assert (found["lower_is_better"], found["diverged"]) == (True, [1])
    assert summary(results[2:4], "mae")["test"] == {"mean": 2.0, "std": None, "values": [2.0]}
    assert summary(results[1:2], "mae")["test"] == {"mean": None, "std": None, "values": []}


@pytest.mark.parametrize(("lower", "best"), [(True, 2), (False, 1)])
def test_the_trial_to_give_away_is_the_best_by_validation(lower: bool, best: int) -> None:
    scores = [(0.1, None), (0.9, 0.1), (0.3, 0.3), (0.5, 0.9)]  # the first has diverged
    trials = [
        {"trial": k, "val": {"score": val}, "test": None if test is None else {"score": test}}
        for k, (val, test) in enumerate(scores)
    ]
    results = {"metric": "score", "lower_is_better": lower, "trials": trials}
    kept = [1, 2, 3]
    run = SimpleNamespace(folder="runs/mine", results=results, trials=kept)
    assert best_trial(run) == best  # type: ignore[arg-type]
    kept.remove(best)  # has lost its weights
    assert best_trial(run) == 3  # type: ignore[arg-type]
    kept.clear()  # only the record is kept
    assert best_trial(run) == best  # type: ignore[arg-type]
    del trials[1:]
    with pytest.raises(InputError, match="runs/mine: no trial ended well"):
        best_trial(run)  # type: ignore[arg-type]
