"""docs/results.md is what the records give, and says what is not measured."""

from __future__ import annotations

import json
import re
import shutil
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from gradformer.report.history import History
from gradformer.report.settings import protocol
from gradformer.studies import STUDIES
from gradformer.studies.study import Cell, Measured
from gradformer.studies.tables import missing, results, unbroken
from gradformer.training.attempts import validation_scores
from gradformer.training.plan import load_plan
from gradformer.training.recipe import Recipe, load_recipe
from gradformer.training.run import Run
from tests.conftest import ROOT, docs_script
from tests.studies.conftest import Reproduce
from tests.studies.test_summary import EVEN, measured


@pytest.fixture(scope="module")
def script() -> Any:
    """docs/results.py as a module."""
    return docs_script("results")


def test_the_page_is_made_from_the_records(script: Any) -> None:
    text, figures = script.made()
    for path, made in {"results.md": text, **figures}.items():
        assert (ROOT / "docs" / path).read_text(encoding="utf-8") == made, "run: make tables"
    for path in figures:
        assert f"]({path})" in text
    first, *tables = text.split("## Table ")
    assert "<sub>the paper prints</sub>" in first, "the scores are the first table"
    assert "<summary>The numbers</summary>" in tables[0], "which Table 1 has row by row"


def test_of_several_searches_of_one_dataset_that_is_kept_whose_winner_was_trained(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second", "third"):
        shutil.copytree(ROOT / "results" / "search" / "nci1", tmp_path / name)
    best = tmp_path / "first" / "best.yaml"
    best.write_text(Recipe.load(best).change("model.layers=1").to_yaml())
    (tmp_path / "third" / "best.yaml").write_text(load_plan(tmp_path / "third").recipe.to_yaml())
    monkeypatch.setattr(script, "SEARCHED", tmp_path)
    first, second, third = script.winners().splitlines()[2:]
    assert first.endswith("| – / 10 / 10 | not kept |")
    assert second.endswith("| 10 / 10 / 10 | `tuned` |")
    assert third.endswith("| the recipe as it is |")


def test_validation_scores_of_a_winner_are_of_the_seeds_that_the_others_have(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On ZINC the winner has ten seeds and `paper` four."""
    shutil.copytree(ROOT / "results/search/zinc-decay", tmp_path / "zinc-decay")
    monkeypatch.setattr(script, "SEARCHED", tmp_path)
    winner = Run.load(ROOT / "results/studies/table1/zinc-gradformer-tuned")
    score = fmean(validation_scores(winner)[:4])
    assert f"| {score:.4f}" in script.winners().splitlines()[2]


def test_what_a_search_tried_last_is_told_best_first(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a rung before the last, and of settings that are the recipe's own, nothing is said."""
    lines = (ROOT / "results/search/zinc-decay/record.jsonl").read_text().splitlines()
    attempts = [json.loads(line) for line in lines[1:]]
    diverged = {"settings": ["train.lr=0.001", "train.ema=0.9"], "val": None, "std": None}
    last = [{**one, "rung": 1} for one in (attempts[0] | diverged, *attempts)]
    shutil.copytree(ROOT / "results/search/zinc-decay", tmp_path / "mine")
    record = "\n".join([lines[0], *map(json.dumps, [*attempts, *last])])
    (tmp_path / "mine" / "record.jsonl").write_text(record + "\n")
    monkeypatch.setattr(script, "SEARCHED", tmp_path)
    told = script.finalists().replace("\N{NO-BREAK SPACE}", " ")
    assert told.splitlines()[2:] == [
        "| mine | 420 | 2 | `train.weight_decay=0.1` `model.profile=true` | 0.0868 ± 0.0011 |",
        "| mine | 420 | 2 | the recipe as it is | 0.0926 ± 0.0044 |",
        "| mine | 420 | 2 | `train.weight_decay=0.3` `model.profile=true` | 0.1184 ± 0.0046 |",
        "| mine | 420 | 2 | `train.ema=0.9` | diverged |",
    ]


def test_nothing_measured_is_said(script: Any, tmp_path: Path) -> None:
    text, figures = script.results_page(list(STUDIES.values()), tmp_path)
    assert not figures
    assert text.count("Nothing is measured yet.") == len(STUDIES)
    study = STUDIES["table1"]
    cells = study.cells(study.datasets, study.models)
    untuned = sum(cell.without_preset for cell in cells)
    assert f"the recipe has no preset tuned ({untuned} of {len(cells)})" in text
    assert "|" not in text  # no table, so no number


def test_cells_beyond_the_papers_are_on_the_page(
    script: Any, reproduce: Reproduce, tmp_path: Path
) -> None:
    reproduce("nodes", "--dataset", "mutag", "--model", "gcn", "--out", tmp_path)
    text, _ = script.results_page([STUDIES["nodes"]], tmp_path)
    assert f"| mutag | gcn | {unbroken('accuracy ↑')} |" in text
    assert "graphgps / gin / gatedgcn on cora / citeseer / actor" in text


def test_models_of_two_studies_are_ranked_together_and_count_once(
    script: Any, reproduce: Reproduce, tmp_path: Path
) -> None:
    models = {"table1": ("gradformer", "gcn"), "baselines": ("graphormer",)}
    for study, names in models.items():
        chosen = [word for name in names for word in ("--model", name)]
        reproduce(study, "--dataset", "mutag", *chosen, "--out", tmp_path)
    text, _ = script.results_page([STUDIES[name] for name in models], tmp_path)
    ranks = next(line for line in text.splitlines() if line.startswith("| mutag, "))
    for row in ("gradformer (paper)", "gcn", "graphormer"):
        assert ranks.count(row) == 1


def test_what_one_study_lacks_hides_nothing_of_another(
    script: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    known = {
        "table1": [measured("nci1", "gcn", EVEN), measured("nci1", "gin", EVEN)],
        "baselines": [Measured(Cell("nci1", "gcn", "nci1", "gcn"), missing="not begun")],
    }
    monkeypatch.setattr(script, "look", lambda study, *_: known[study.name])
    monkeypatch.setattr(script, "lists_of", lambda *_: [])
    text, _ = script.results_page([STUDIES[name] for name in known], tmp_path)
    assert "| gcn 50.00" in text.split("## How to read")[0]


def test_a_preset_that_is_begun_and_not_finished_has_no_scores(
    script: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The page could not be made."""
    searched, studied = tmp_path / "search", tmp_path / "studies"
    shutil.copytree(ROOT / "results" / "search" / "nci1", searched / "nci1")
    for preset in ("authors", "paper", "tuned"):
        name = f"table1/nci1-gradformer-{preset}"
        shutil.copytree(ROOT / "results" / "studies" / name, studied / name)
    (studied / "table1" / "nci1-gradformer-authors" / "results.json").unlink()
    monkeypatch.setattr(script, "SEARCHED", searched)
    monkeypatch.setattr(script, "STUDIED", studied)
    assert script.winners().endswith("| 10 / 10 / – | `tuned` |")


def test_what_the_page_says_of_cora_and_citeseer_is_recorded() -> None:
    for data, preset in product(("cora", "citeseer"), ("authors", "paper")):
        run = Run.load(ROOT / "results/studies/nodes" / f"{data}-gradformer-{preset}")
        last = [line for line in run.record if line.get("epoch") == 200]
        assert len(last) == 10
        assert max(line["loss"] for line in last) < 0.1, "learned by heart"
    assert "λ = 0.6, 2 layers, width 64 and GCN are ours" in STUDIES["nodes"].text
    for data, preset in product(("cora", "citeseer", "actor"), ("authors", "paper")):
        stated = load_recipe(data, preset=preset).to_dict()["model"]
        ours = {"decay": 0.6, "layers": 2, "width": 64, "local": "gcn"}
        assert stated | ours == stated
    for data, model in product(("cora", "citeseer"), ("graphgps", "gcn")):
        recipe = load_recipe(data, model=model)
        assert (recipe.train.optimizer, recipe.train.lr) == ("adam", 0.01)
        assert recipe.train.weight_decay > 0.0
        assert recipe.to_dict()["model"]["input_dropout"] > 0.0


@pytest.mark.parametrize("name", ["deep", "low-resource", "ablation", "index", "efficiency"])
def test_studies_with_the_first_of_two_rates_on_nci1_say_so(name: str) -> None:
    """Their Gradformer is not that of Table 1."""
    study = STUDIES[name]
    assert re.search(r"two λ for NCI1 .* the first, 0\.6", study.text)
    for cell in study.cells(["nci1"], ["gradformer"]):
        assert cell.recipe().to_dict()["model"]["decay"] == 0.6
    assert load_recipe("nci1", preset="paper").to_dict()["model"]["decay"] == 0.7


@pytest.mark.parametrize(
    ("data", "split"),
    [
        ("actor", "by the benchmark, one of 10 by seed: 3,648 / 2,432 / 1,520"),
        ("cora", "by the benchmark: 140 / 500 / 1,000"),
    ],
)
def test_where_each_seed_has_a_split_of_the_benchmark_it_is_said(data: str, split: str) -> None:
    """Why its differences are paired, and those of one split for all are not."""
    run = Run.load(ROOT / "results/studies/nodes" / f"{data}-gcn")
    assert dict(protocol(History(run, "gcn")))["split"] == split


def test_what_is_missing_is_said_in_few_words() -> None:
    """Rows that lack the same columns are named together."""
    lacking = {"gcn": ("zinc", "molhiv"), "gin": ("zinc", "molhiv"), "gat": ("zinc",)}
    cells = [Cell(data, row, data, row) for row, columns in lacking.items() for data in columns]
    measured = [Measured(cell, missing="not begun") for cell in cells]
    said = "not begun (5 of 5): gcn / gin on zinc / molhiv; gat on zinc"
    assert missing(measured, {}) == [said]


def test_columns_without_a_value_are_left_out() -> None:
    outcome = {"metric": "mae", "lower_is_better": True, "trials": []}
    outcome["test"] = {"mean": 1.0, "std": None, "values": [1.0]}
    alone = [Measured(Cell("zinc", "mine", "zinc"), outcome)]
    assert results(STUDIES["starts"], alone)[0] == ["data", "model", "metric", "ours", "seeds"]
