"""``gradformer data``: what each verb prints, on a mirror, without one, and on wrong files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gradformer.graphs.cards import card_names, find_card
from gradformer.training.data import benchmark
from gradformer.training.metrics import metric_name
from gradformer.training.recipe import load_recipe
from tests.cli.conftest import Program


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRADFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GRADFORMER_DATA", raising=False)
    return tmp_path / "cache"


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


def test_info_tells_sizes_pairs_and_memory(program: Program, mirror: Path) -> None:
    found = program("data", "info", "mutag", "--data", mirror).stdout
    assert "188, random split 150 / 18 / 20" in found
    assert "17.93 nodes, 19.79 edges" in found
    assert "64,381" in found  # pairs
    assert "MB for recipe mutag" in found
    words = ("data", "info", "mutag", "--data", mirror, "--recipe", "nci1")
    assert "MB for recipe nci1" in program(*words).stdout


def test_pack_builds_once_what_training_opens(program: Program, mirror: Path, cache: Path) -> None:
    for words in ((), ("--recipe", "molhiv"), ()):
        found = program("data", "pack", "mutag", "--data", mirror, *words).stdout
        assert str(cache / "stores" / "mutag-") in found
    packed = set((cache / "stores").glob("mutag-*"))
    assert len(packed) == 2
    recipes = (load_recipe(name, settings=["dataset=mutag"]) for name in ("mutag", "molhiv"))
    assert {benchmark(recipe, mirror).store.folder for recipe in recipes} == packed


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


@pytest.mark.parametrize("verb", ["fetch", "verify"])
def test_generated_data_need_no_files(program: Program, verb: str) -> None:
    assert program("data", verb, "cluster").stdout.startswith("cluster is generated: there is no")
