"""Models that come with the package: by name, with a card, on new molecules and graphs."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gradformer import InputError, Run, load_dataset
from gradformer.training.card import model_card
from gradformer.training.export import best_trial, export
from gradformer.training.fit import fit
from gradformer.training.trials import summary
from gradformer.weights import published
from tests.cli.conftest import Program
from tests.conftest import ROOT, shared_path
from tests.training.toy import QUIET

SMALL = ("train.epochs=1", "data.fraction=0.01", "model.layers=1", "train.warmup_epochs=0")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of published models: of ZINC and of MUTAG."""
    root = tmp_path_factory.mktemp("weights")
    for name, trials in (("zinc", 1), ("mutag", 2)):
        settings = [*SMALL, "data.fraction=0.3"] if name == "mutag" else SMALL
        out = root / "runs" / name
        run = fit(
            name, settings=settings, trials=trials, out=out, mirror=shared_path("data"), **QUIET
        )
        export(run, root / name, trial=trials - 1)
    return root


@pytest.fixture(autouse=True)
def _named(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {name: weights / name for name in ("zinc", "mutag")}
    monkeypatch.setattr("gradformer.training.run.published", lambda: found)
    monkeypatch.setattr("gradformer.weights.published", lambda: found)


def test_an_exported_model_is_scored_on_the_fold_it_was_tested_on(tmp_path: Path) -> None:
    """The folds were dealt anew by its own seed, so that it was tested on what it had learned."""
    mirror = shared_path("data")
    settings = ["data.split=kfold", "model.layers=1", "train.epochs=10", "train.lr=0.01"]
    run = fit("mutag", settings=settings, trials=2, out=tmp_path / "run", mirror=mirror, **QUIET)
    alone = export(run, tmp_path / "alone", trial=1)
    for part in ("train", "val", "test"):
        assert alone.evaluate(part=part, mirror=mirror) == [
            run.evaluate(part=part, mirror=mirror)[1]
        ]


def test_a_card_says_what_was_trained_on_what(weights: Path) -> None:
    text = (weights / "mutag" / "README.md").read_text()
    val = Run.load("mutag").results["trials"][0]["val"]["accuracy"]
    whole = Run.load(weights / "runs" / "mutag").results["test"]
    assert text.startswith("# gradformer trained on MUTAG\n")
    assert "$ gradformer predict mutag graphs.jsonl" in text
    assert re.search(rf"\| this model, seed 1.* \| validation accuracy {val:.4f}, test ", text)
    mean = f"test accuracy {whole['mean']:.4f} ± {whole['std']:.4f}"
    assert f"| mean of all 2 seeds | {mean} |" in text
    assert "| protocol | tu-random-811 |" in text
    assert "TUDataset" in text
    assert str(weights) not in text
    assert "predict zinc molecules.csv --smiles smiles" in (weights / "zinc/README.md").read_text()


@pytest.mark.parametrize(("lower", "best"), [(False, 1), (True, 0)])
def test_a_card_says_that_a_model_was_chosen(
    lower: bool, best: int, weights: Path, tmp_path: Path
) -> None:
    """Its test score is not the mean that the run is judged by."""
    place = shutil.copytree(weights / "runs" / "mutag", tmp_path / "run")
    results = json.loads((place / "results.json").read_text()) | {"lower_is_better": lower}
    for trial, score in zip(results["trials"], (0.25, 0.75)):
        trial["val"]["accuracy"] = score
    results["val"]["values"] = [0.25, 0.75]
    (place / "results.json").write_text(json.dumps(results))
    cards = [model_card(Run.load(place), trial, "mine") for trial in (0, 1)]
    assert f"| this model, seed {best}, the best of 2 by validation | " in cards[best]
    assert f"| this model, seed {1 - best} | " in cards[1 - best]


def test_a_card_says_how_many_seeds_have_no_score(weights: Path, tmp_path: Path) -> None:
    """As one that diverged: the mean is not that of all."""
    place = shutil.copytree(weights / "runs" / "mutag", tmp_path / "run")
    results = json.loads((place / "results.json").read_text())["trials"]
    results[1] |= {"status": "diverged", "test": None}
    (place / "results.json").write_text(json.dumps(summary(results, "accuracy")))
    mean = f"test accuracy {results[0]['test']['accuracy']:.4f}"
    card = model_card(Run.load(place), 0, "mine")
    assert f"| mean of 1 of 2 seeds (the others have no score) | {mean} |" in card


@pytest.mark.parametrize("name", published())
def test_a_card_of_the_package_is_that_of_its_record(name: str) -> None:
    result = json.loads((published()[name] / "trials/0/result.json").read_text())
    runs = {
        path.parent: trial
        for path in (ROOT / "results" / "studies").glob(f"table1/{name}*/results.json")
        for trial in json.loads(path.read_text())["trials"]
        if {**trial, "trial": 0} == result
    }
    ((place, trial),) = runs.items()
    run = Run.load(place)
    assert trial["trial"] == best_trial(run)
    assert (published()[name] / "README.md").read_text() == model_card(run, trial["trial"], name)


def test_zinc_by_name_reads_molecules_as_its_files_do(program: Program, tmp_path: Path) -> None:
    """The same predictions as for the benchmark's own graphs, where there is one Kekulé form."""
    table = pd.read_csv(shared_path("data", "ZINC", "zinc12k_smiles.csv.gz"))
    table = table[~table["smiles"].str.contains(r"[cnos]\d")][:40]
    bad = pd.DataFrame({"smiles": ["C[Si](C)C"], "y": [0.0]})
    pd.concat([table[["smiles", "y"]], bad]).to_csv(tmp_path / "new.csv", index=False)
    result = program("predict", "zinc", tmp_path / "new.csv", "--smiles", "smiles")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert rows[-1]["y_predicted"] == ""
    assert "none of the atoms of ZINC" in result.stderr
    found = np.array([float(row["y_predicted"]) for row in rows[:-1]])
    there = Run.load("zinc").predict("zinc", mirror=shared_path("data")).value[table.index, 0]
    np.testing.assert_allclose(found, there, rtol=1e-4, atol=1e-5)


def test_graphs_of_a_benchmark_are_explained_by_their_numbers(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gradformer.report.explain.LARGEST", 15)
    data, out = shared_path("data"), tmp_path / "attention.html"
    program("explain", "mutag", "mutag", "--data", data, "--most", "3", "--out", out)
    found = [int(number) for number in re.findall(r"<h2>Graph (\d+)</h2>", out.read_text())]
    sizes = load_dataset("mutag", data).store.sizes
    assert found == [graph for graph in range(188) if sizes[graph] <= 15][:3] != [0, 1, 2]


def test_pages_of_the_packages_models_are_written_here(
    program: Program, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder with the name of a benchmark would be read in its place the next time."""
    monkeypatch.chdir(tmp_path)
    program("explain", "mutag", "mutag", "--data", shared_path("data"), "--most", "1")
    program("report", "mutag")
    assert Run.load("zinc").report() == Path("report.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["attention.html", "report.html"]
    assert not list(weights.glob("*/*.html"))


def test_other_benchmarks_take_their_own_numbers(program: Program, tmp_path: Path) -> None:
    graphs = [{"num_nodes": 3, "edges": [[0, 1], [1, 2]], "x": [[0], [1], [0]]}]
    graphs[0]["edge_attr"] = [[0], [1]]
    (tmp_path / "new.jsonl").write_text("\n".join(json.dumps(graph) for graph in graphs))
    found = program("predict", "mutag", tmp_path / "new.jsonl").stdout
    assert found.splitlines()[0] == "row,y_predicted,y_p_0,y_p_1"
    with pytest.raises(InputError, match="by number only; give JSON lines"):
        Run.load("mutag").predict(["CCO"])
    with pytest.raises(InputError, match="nor one of the package's models: zinc, mutag"):
        Run.load("mutagg")


def test_a_benchmark_is_predicted_and_embedded_whole(program: Program, tmp_path: Path) -> None:
    words, out = ("mutag", "mutag", "--data", shared_path("data")), tmp_path / "e.npz"
    said = program("predict", *words)
    rows = list(csv.DictReader(io.StringIO(said.stdout)))
    assert [row["row"] for row in rows] == [str(number) for number in range(188)]
    chances = Run.load("mutag").predict("mutag", mirror=shared_path("data")).value[:, 1]
    assert [float(row["y_p_1"]) for row in rows] == pytest.approx(chances, rel=1e-4)
    assert said.stderr == ""
    program("embed", *words, "-o", out)
    with np.load(out) as found:
        assert found["rows"].tolist() == list(range(188))


def test_a_model_of_a_benchmark_is_scored_on_its_own_split(program: Program) -> None:
    words = ("evaluate", "mutag", "--data", shared_path("data"), "--device", "cpu")
    (score,) = json.loads(program(*words, "--json").stdout)
    assert json.loads(program(*words, "--json", "--on", "mutag").stdout) == [score]
    said = program(*words, "--on", "MUTAG", "--part", "val").stdout
    assert said.startswith("mutag on val part of MUTAG\n")
    recorded = Run.load("mutag").results["trials"][0]["test"]
    assert score["accuracy"] == pytest.approx(recorded["accuracy"])


def test_a_folder_of_the_same_name_hides_a_model_only_if_it_is_a_run(
    program: Program, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mutag").mkdir()
    assert Run.load("mutag").folder == weights / "mutag"
    said = program("train", "--resume", "mutag", "--trials", "2", code=1).stderr
    assert "mutag: a model of the package is no run to continue" in said


def test_a_trained_model_shows_its_card(program: Program, weights: Path) -> None:
    assert program("models", "mutag").stdout == (weights / "mutag" / "README.md").read_text()


def test_what_is_published_is_small_and_whole() -> None:
    for name, folder in published().items():
        assert sum(file.stat().st_size for file in folder.rglob("*")) < 5_000_000, name
        run = Run.load(folder)
        assert run.trials == [0]
        assert (folder / "README.md").is_file()
        assert run.metric == run.results["metric"], "begun before the metric was written down"
        run.model(0)
