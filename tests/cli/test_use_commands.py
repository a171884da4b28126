"""What a finished run is good for: embeddings, pages; and weights that are lost."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from gradformer import Run
from gradformer.errors import GradformerWarning, InputError
from gradformer.graphs.batch import Batch
from gradformer.graphs.collate import Collator
from gradformer.training.export import best_trial
from gradformer.training.keepsakes import load_examples
from gradformer.training.origins import dataset_name, recipe_name
from gradformer.training.recipe import load_recipe
from tests.cli.conftest import BRIEF, QUIET, Program

LEFT_OUT = "2 of 4 lines are left out: line 3: column"
"""What is said of the bad rows of new.csv."""


def _renamed(table: Path, folder: Path) -> tuple[Path, str, str]:
    """The table with another name for its SMILES, and the words that say so."""
    (folder / "renamed.csv").write_text(table.read_text().replace("smiles", "mol"))
    return folder / "renamed.csv", "--smiles", "mol"


@pytest.mark.filterwarnings("always::gradformer.errors.GradformerWarning")
def test_a_name_is_a_benchmark_for_every_verb_and_a_path_is_a_folder(
    program: Program, graph_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("MUTAG").mkdir()
    Path("cluster-16").mkdir()
    nowhere = ("--data", tmp_path)
    verbs = (("train",), ("search",), ("evaluate", graph_run, "--on"))
    for verb in (*verbs, *((verb, graph_run) for verb in ("predict", "embed", "explain"))):
        monkeypatch.setenv("GRADFORMER_DATA", "other")  # which search changes by its option
        by_name = program(*verb, "MUTAG", *nowhere, code=1).stderr
        assert f"MUTAG.zip is missing from the mirror {tmp_path};" in by_name
        assert "of the same name say ./MUTAG" in by_name
        by_path = program(*verb, "./MUTAG", *nowhere, code=1).stderr
        assert "NAME_A.txt" in by_path
        assert "warning" not in by_path
    with pytest.warns(GradformerWarning, match=r"say \./cluster-16"):
        assert recipe_name("cluster-16") == "cluster-16"
    for missing in ("./zinc", Path("zinc")):
        with pytest.raises(InputError, match="zinc does not exist; name a file"):
            recipe_name(missing)
    assert recipe_name(Path("MUTAG")) == "own"
    assert dataset_name(Path("MUTAG"), load_recipe("own")) == "./MUTAG"
    assert dataset_name("mutag", load_recipe("own")) == "mutag"
    assert dataset_name("cluster-16", load_recipe("mutag")) == "cluster"  # with --recipe


def test_a_folder_that_is_given_by_its_place_is_called_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages and cards were about "gradformer on ", with nothing behind."""
    (tmp_path / "MINE" / "runs").mkdir(parents=True)
    for here, place in (("MINE", "."), ("MINE", "./"), ("MINE/runs", Path(".."))):
        monkeypatch.chdir(tmp_path / here)
        assert Path(dataset_name(place, load_recipe("own"))).name == "MINE"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("evaluate",), "the run's own data"),
        (("evaluate", "--on", "zinc"), "the benchmark zinc"),
        (("predict", "zinc"), "the benchmark zinc"),
        (("explain",), "graphs that have been read"),
    ],
)
def test_what_is_read_already_takes_no_option(
    program: Program, molecule_run: Path, words: tuple[str, ...], what: str
) -> None:
    verb, *rest = words
    said = program(verb, molecule_run, *rest, "--smiles", "mol", code=1).stderr
    assert f"smiles: not an option of {what}; it says how new data are read" in said


@pytest.mark.parametrize(
    "words",
    [("evaluate", "--on"), ("evaluate", "--by-target", "--on"), ("predict",), ("embed",)],
    ids=" ".join,
)
def test_the_machine_is_used_as_asked(
    words: tuple[str, ...],
    program: Program,
    graph_run: Path,
    files: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes, gather = [], Collator.__call__

    def count(self: Collator, graphs: torch.Tensor) -> Batch:
        sizes.append(len(graphs))
        return gather(self, graphs)

    monkeypatch.setattr(Collator, "__call__", count)
    monkeypatch.chdir(tmp_path)
    verb, *rest = words
    words = (verb, graph_run, *rest, files / "graphs.jsonl")
    program(*words, "--batch-size", "8")
    assert sizes == [8, 8, 8, 6]
    assert "unknown name 'gpu'" in program(*words, "--device", "gpu", code=1).stderr


@pytest.mark.filterwarnings("default::gradformer.errors.GradformerWarning")
def test_embeddings_have_a_row_for_each_graph_and_node(
    program: Program, molecule_run: Path, files: Path, tmp_path: Path
) -> None:
    words = ("embed", molecule_run, files / "new.csv", "--skip-invalid")
    said = program(*words, "-o", tmp_path / "e.npz")
    assert LEFT_OUT in said.stderr
    assert said.stdout == f"2 graphs, 9 nodes in {tmp_path / 'e.npz'}\n"
    with np.load(tmp_path / "e.npz", allow_pickle=False) as found:
        assert found["graphs"].shape == (2, 64)
        assert found["nodes"].shape == (3 + 6, 64)
        assert found["node_ptr"].tolist() == [0, 3, 9]
        assert found["rows"].tolist() == [2, 4]
        # The recipe pools by the mean.
        assert found["graphs"][0] == pytest.approx(found["nodes"][:3].mean(axis=0), abs=1e-5)
    renamed = _renamed(files / "new.csv", tmp_path)
    words = ("embed", molecule_run, *renamed, "--skip-invalid", "--trial", "1", "-o")
    program(*words, tmp_path / "e.csv")
    head, *rows = (line.split(",") for line in (tmp_path / "e.csv").read_text().splitlines())
    assert head == ["row", *(f"e{k}" for k in range(64))]
    assert [row[0] for row in rows] == ["2", "4"]
    second = Run.load(molecule_run).embed(["CCO", "c1ccccc1"], trial=1).graphs
    assert [[*map(float, row[1:])] for row in rows] == pytest.approx(second, rel=1e-4)
    said = program(*words, renamed[0], code=1).stderr
    assert "is the file that is read; name another" in said
    said = program(*words, tmp_path / "e.txt", code=1).stderr
    assert f"--out {tmp_path / 'e.txt'}: expected a name that ends in .npz or .csv" in said


def test_graphs_of_a_file_are_explained_by_their_lines(
    program: Program, graph_run: Path, files: Path, tmp_path: Path
) -> None:
    out = tmp_path / "attention.html"
    program("explain", graph_run, files / "graphs.jsonl", "-o", out)
    page = out.read_text()
    assert re.findall("<h2>(.*?)</h2>", page) == [f"Line {number}" for number in range(1, 6)]
    assert 'class="atom"' not in page


@pytest.mark.filterwarnings("default::gradformer.errors.GradformerWarning")
def test_explain_writes_a_page_with_every_head(
    program: Program, molecule_run: Path, files: Path, tmp_path: Path
) -> None:
    out = tmp_path / "attention.html"
    renamed = _renamed(files / "new.csv", tmp_path)
    words = ("explain", molecule_run, *renamed, "--skip-invalid", "--trial", "1", "--layer", "1")
    assert LEFT_OUT in program(*words, "-o", out).stderr
    page = out.read_text()
    assert "Trial 1, layer 1." in page
    assert all(f"Score of head {head}" in page for head in (1, 2, 3, 4))
    assert "Line 2: CCO" in page
    program("explain", molecule_run)
    names = re.findall(r"<h2>(.*?)</h2>", (molecule_run / "attention.html").read_text())
    kept = load_examples(molecule_run).about["graphs"]
    assert names == [f"Graph {number}" for number in kept] != ["Graph 0", "Graph 1"]
    bare = shutil.copytree(molecule_run, tmp_path / "bare")
    shutil.rmtree(bare / "examples")
    said = program("explain", bare, code=1).stderr
    assert f"{bare}: has no example graph to draw; name a FILE" in said


@pytest.mark.parametrize("verb", ["explain", "report"])
def test_a_page_is_named_as_one(program: Program, graph_run: Path, verb: str) -> None:
    said = program(verb, graph_run, "-o", "page.pdf", code=1).stderr
    assert "--out page.pdf: expected a name that ends in .html" in said


def test_reports_of_one_and_of_several_runs(
    program: Program, molecule_run: Path, graph_run: Path, tmp_path: Path
) -> None:
    page = graph_run / "report.html"
    assert program("report", graph_run).stdout == f"{page}\n"
    assert "stratified by seed" in page.read_text()
    out = tmp_path / "both.html"
    said = program("report", molecule_run, graph_run, "-o", out).stdout
    assert molecule_run.name in out.read_text()
    assert "\n\nNo two runs share data" in said
    lines = said.splitlines()
    shared = not lines[0].startswith("run")  # a line above, where both took as long
    head, *rows = lines[shared : shared + 3]
    assert [word in head for word in ("run", "data", "metric", "test", "parameters")] == [True] * 5
    assert [molecule_run.name in rows[0], graph_run.name in rows[1]] == [True, True]
    assert lines[-2:] == ["", str(out)]
    marked = shutil.copytree(molecule_run, tmp_path / "[red]")
    assert "\n[red] " in program("report", marked, graph_run, "-o", out).stdout
    said = program("report", graph_run, graph_run, "-o", out).stdout
    assert said.startswith("data graphs.jsonl, metric")
    name = graph_run.name
    assert re.search(rf"^{name} \(2\) − {name} \(1\) +\+0\.000", said, re.MULTILINE), said


def test_a_comparison_says_where_seeds_differ(
    program: Program,
    graph_run: Path,
    files: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    other = tmp_path / "other"
    program("train", files / "graphs.jsonl", "--set", "seed=7", "--out", other, *BRIEF)
    note = "Seeds differ, so the means do not compare"
    assert note in program("report", graph_run, other).stdout
    assert note not in program("report", graph_run, graph_run).stdout
    assert (tmp_path / "comparison.html").is_file()


def test_weights_that_do_not_fit_are_named(
    program: Program, graph_run: Path, files: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(graph_run, tmp_path / "run")
    weights = run / "trials" / "0" / "model.safetensors"
    kept = load_file(weights)
    save_file({f"old.{name}": tensor for name, tensor in kept.items()}, weights)
    said = program("predict", run, files / "graphs.jsonl", code=1).stderr
    assert f"{weights}: not the weights of this gradformer" in said
    assert "another version" in said
    weights.write_bytes(b"no weights")
    assert "damaged" in program("predict", run, files / "graphs.jsonl", code=1).stderr


@pytest.mark.filterwarnings("always::gradformer.errors.GradformerWarning")
def test_lost_weights_are_told_of_and_made_again(
    program: Program, molecule_run: Path, files: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(molecule_run, tmp_path / "run")
    weights = run / "trials" / "1" / "model.safetensors"
    kept = weights.read_bytes()
    weights.unlink()
    words = ("predict", run, files / "new.csv")
    said = "the weights of 1 of its trials are not there (1)"
    assert said in program(*words).stderr
    assert program("evaluate", run).stderr.count(said) == 1
    (run / "trials" / "0" / "model.safetensors").unlink()
    assert "makes lost weights again where checkpoints are kept" in program(*words, code=1).stderr
    program("train", "--resume", run, *QUIET)
    assert weights.read_bytes() == kept
    assert said not in program(*words).stderr
    results = [line for line in Run.load(run).record if line["kind"] == "result"]
    assert [line["trial"] for line in results] == [0, 1]
    shutil.rmtree(weights.parent)  # with all that told of it
    assert said in program(*words).stderr
    assert said in program("evaluate", run).stderr


@pytest.mark.filterwarnings("always::gradformer.errors.GradformerWarning")
def test_a_run_that_has_lost_its_best_weights_gives_away_the_next_best(
    program: Program, molecule_run: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(molecule_run, tmp_path / "run")
    best = best_trial(Run.load(run))
    (run / "trials" / str(best) / "model.safetensors").unlink()
    program("export", run, "-o", tmp_path / "given")
    card = (tmp_path / "given" / "README.md").read_text()
    assert f"this model, seed {1 - best} |" in card
    said = program("export", run, "-o", tmp_path / "other", "--trial", str(best), code=1).stderr
    assert f"trial {best} is not finished, diverged, or has lost its weights" in said
