"""``gradformer data``: what each verb prints, on a mirror, without one, and on wrong files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gradformer.graphs.cards import card_names, find_card
from gradformer.graphs.datasets import open_card
from gradformer.training.data import benchmark
from gradformer.training.metrics import metric_name
from gradformer.training.recipe import load_recipe
from tests.cli.conftest import Program


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "[cache]"  # no word of style in a table
    monkeypatch.setenv("GRADFORMER_CACHE", str(path))
    monkeypatch.delenv("GRADFORMER_DATA", raising=False)
    return path


@pytest.fixture
def mirror(data_mirror: Path, tmp_path: Path) -> Path:
    """A mirror that holds MUTAG only, and can be changed."""
    path = tmp_path / "mirror" / "TU" / "MUTAG.zip"
    path.parent.mkdir(parents=True)
    shutil.copyfile(data_mirror / "TU" / "MUTAG.zip", path)
    return tmp_path / "mirror"


def test_list_has_every_dataset(program: Program) -> None:
    lines = program("data", "list").stdout.splitlines()
    for name in card_names():
        (line,) = [line for line in lines if line.startswith(f"{name} ")]
        assert metric_name(find_card(name).metric) in line
        assert find_card(name).about in line


def test_measured_datasets_stand_beside_the_paper(
    program: Program, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gradformer.graphs.cards.card_names", lambda: ["mutag"])
    head, row, caption = program("data", "list", "--measure", "--data", mirror).stdout.splitlines()
    assert row.split() == ["MUTAG", "188", "17.93", "19.79", "2", "same", "188:", "17.9,", "19.7"]
    assert head.split()[:4] == ["dataset", "graphs", "nodes", "edges"]
    assert row.index(" 188 ") + 4 == head.index("graphs") + 6, "numbers end where their heads do"
    assert caption.strip() == "paper: graphs: mean nodes, mean edges"


def test_info_tells_sizes_pairs_and_memory(program: Program, mirror: Path) -> None:
    found = program("data", "info", "mutag", "--data", mirror).stdout
    facts = dict(line.split(maxsplit=1) for line in found.splitlines())
    card, structure = find_card("mutag"), load_recipe("mutag").model.config.needs()
    store = open_card(card, mirror, structure)
    assert facts["dataset"].strip() == f"{card.title}: {card.about}"
    assert facts["task"].strip() == "graph multiclass, scored by accuracy ↑"
    assert facts["graphs"].startswith("188, random split 150 / 18 / 20 (")
    assert facts["mean"].strip() == "17.93 nodes, 19.79 edges"
    assert facts["largest"].strip() == "28 nodes"
    assert facts["pairs"].strip() == "64,381"
    assert facts["store"].strip() == f"{store.nbytes / 1e6:.1f} MB in {store.folder}"
    assert "MB for recipe mutag: data " in facts["GPU"]
    assert facts["exactness"].strip() == card.exactness
    assert facts["citation"].strip() == card.citation
    words = ("data", "info", "mutag", "--data", mirror, "--recipe", "nci1")
    assert "MB for recipe nci1" in program(*words).stdout
    assert "Gradformer" not in found
    said = program(*words[:-1], "zinc-gin").stdout
    assert " MB (estimated as for a Gradformer: gin may differ)" in said


def test_pack_builds_once_what_training_opens(program: Program, mirror: Path, cache: Path) -> None:
    for words in ((), ("--recipe", "molhiv"), ()):
        found = program("data", "pack", "mutag", "--data", mirror, *words).stdout
        assert str(cache / "stores" / "mutag-") in found
    packed = set((cache / "stores").glob("mutag-*"))
    assert len(packed) == 2
    recipes = (load_recipe(name, settings=["dataset=mutag"]) for name in ("mutag", "molhiv"))
    assert {benchmark(recipe, mirror).store.folder for recipe in recipes} == packed


def test_raw_files_are_fetched_into_the_cache(
    program: Program, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr("gradformer.graphs.mirror.fetch", lambda *given: asked.extend(given))
    found = program("data", "fetch", "mutag").stdout
    assert asked == [find_card("mutag"), cache / "raw"]
    assert found == f"mutag: raw files are in {cache / 'raw'}\n"


def test_verify_tells_right_wrong_and_unknown_files(program: Program, mirror: Path) -> None:
    assert program("data", "verify", "mutag", "--data", mirror).stdout.startswith("ok  af70fd25")
    with open(mirror / "TU" / "MUTAG.zip", "ab") as file:
        file.write(b"more")
    result = program("data", "verify", "mutag", "--data", mirror, code=1)
    assert result.stdout.startswith("DIFFERS")
    assert "1 of 1 files" in result.stderr
    (mirror / "SBM").mkdir()
    (mirror / "SBM" / "CLUSTER_v2.pt").write_bytes(b"published")
    found = program("data", "verify", "cluster", "--data", mirror).stdout
    assert found.startswith("not on the card")
    assert found.strip().endswith("SBM/CLUSTER_v2.pt")


def test_verify_fetches_nothing(
    program: Program, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks whether files are right has not asked for a download."""
    monkeypatch.setattr("gradformer.graphs.mirror.fetch", lambda *_: pytest.fail("it fetches"))
    said = program("data", "verify", "mutag", code=1).stderr
    where = f"TU/MUTAG.zip is missing from the cache {cache / 'raw'}"
    assert said == f"error: mutag: {where}; gradformer data fetch mutag gets it\n"
    said = program("data", "verify", "mutag", "--data", tmp_path, code=1).stderr
    where = f"TU/MUTAG.zip is missing from the mirror {tmp_path}"
    assert said == f"error: mutag: {where}; put it there\n"


@pytest.mark.parametrize("verb", ["fetch", "verify"])
def test_generated_data_need_no_files(program: Program, verb: str) -> None:
    assert program("data", verb, "cluster").stdout.startswith("cluster is generated: there is no")
