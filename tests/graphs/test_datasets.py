"""Benchmarks by name: cards, checksums, stores and splits together."""

from __future__ import annotations

import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import ROOT

from gradformer.errors import ConfigError, GradformerWarning, InputError
from gradformer.graphs import datasets
from gradformer.graphs.cards import card_names, find_card, is_card
from gradformer.graphs.datasets import load_dataset, open_card
from gradformer.graphs.store import Structure, pack
from gradformer.graphs.summary import comparison_row, estimate_memory
from gradformer.training.files import read_json
from gradformer.training.metrics import check_metric
from gradformer.training.recipe import load_recipe

pytestmark = pytest.mark.usefixtures("cache")


def test_cards_are_complete_and_consistent() -> None:
    assert len(card_names()) == 14
    seen: set[str] = set()
    for name in card_names():
        card = find_card(name)
        check_metric(card.metric, card.task)
        for alias in {card.name, card.title.lower(), *card.aliases}:
            assert alias not in seen
            assert alias == alias.lower()
            assert find_card(alias.upper()) is card
            seen.add(alias)
        assert all(len(digest) == 64 for digest in card.files.values())
        for path in card.files:
            assert any(
                path == to or (to[-1] == "/" and path.startswith(to)) for to in card.download
            )
        if card.level == "graph" or card.graphs > 1:
            assert sum(card.sizes) == card.graphs
        if card.class_counts and card.level == "graph":
            assert sum(card.class_counts) == card.graphs


def test_cards_carry_the_checksums_of_the_mirror(data_mirror: Path) -> None:
    known = (data_mirror / "README.md").read_text()
    listed = [f"| {path} |" in known and digest in known for path, digest in _all_files()]
    assert len(listed) == 45
    assert all(listed)


def _all_files() -> list[tuple[str, str]]:
    return [item for name in card_names() for item in find_card(name).files.items()]


def test_names_are_forgiving_and_unknown_ones_helped() -> None:
    for name in ("ZINC", "zinc-12k", "OGBG-MolHIV", "IMDB-B", "CiteSeer", " pattern "):
        assert is_card(name)
    assert not is_card("molecules.csv")
    with pytest.raises(ConfigError, match="unknown dataset 'zink'; did you mean 'zinc'"):
        find_card("zink")


@pytest.mark.parametrize("name", ["nci1", "mutag", "zinc", "cora"])
def test_load(name: str, data_mirror: Path) -> None:
    data = load_dataset(name, data_mirror, Structure(rwse=3))
    assert tuple(len(part) for part in data.split) == data.card.sizes
    assert data.over == ("nodes" if name == "cora" else "graphs")
    assert data.store.arrays["rwse"].shape == (data.store.sizes.sum(), 3)
    assert data.store.about == {
        "card": name,
        "sources": dict(data.card.files),
        "unknown": [],
        "generated": False,
    }


def test_sample_needs_nothing_but_the_package(cache: Path) -> None:
    data = load_dataset("pattern-sample")
    assert [len(part) for part in data.split] == [800, 100, 100]
    assert repr(data).startswith("<Dataset pattern-sample: 800 / 100 / 100 graphs; <Store of 1,000")
    assert data.store.about["generated"]
    assert data.store.folder is not None
    assert data.store.folder.parent == cache / "stores"
    drawn = load_dataset("pattern-sample", split="random")
    assert [len(part) for part in drawn.split] == [800, 100, 100], "of graphs, not of their nodes"
    with pytest.raises(ConfigError, match="no class to stratify by"):
        load_dataset("pattern-sample", split="stratified")


def test_splits_of_a_card(data_mirror: Path) -> None:
    first, second = (load_dataset("mutag", data_mirror, seed=seed).split for seed in (0, 1))
    assert first.test.tolist() != second.test.tolist()
    y = load_dataset("mutag", data_mirror).store.arrays["y"]
    stratified = load_dataset("mutag", data_mirror, split="stratified").split
    assert [np.bincount(y[part]).tolist() for part in stratified] == [[50, 100], [7, 13], [6, 12]]
    folds = [
        load_dataset("mutag", data_mirror, split="kfold", fold=fold).split.test
        for fold in range(10)
    ]
    assert sorted(np.concatenate(folds).tolist()) == list(range(188))
    few = load_dataset("mutag", data_mirror, fraction=0.25).split
    assert len(few.train) == 38
    assert set(few.train) < set(first.train)
    assert few.test.tolist() == first.test.tolist()
    with pytest.raises(ConfigError, match="no published split"):
        load_dataset("mutag", data_mirror, split="fixed")
    with pytest.raises(ConfigError, match="split: unknown value"):
        load_dataset("mutag", data_mirror, split="ramdom")  # type: ignore[arg-type]


def test_node_datasets_split_nodes(data_mirror: Path) -> None:
    actor = [load_dataset("actor", data_mirror, seed=seed).split for seed in (0, 1, 10)]
    assert [len(part) for part in actor[1]] == [3648, 2432, 1520]
    assert actor[0].train.tolist() == actor[2].train.tolist() != actor[1].train.tolist()
    drawn = load_dataset("actor", data_mirror, split="random").split
    assert [len(part) for part in drawn] == [6080, 760, 760]
    cora = load_dataset("cora", data_mirror, split="random", seed=3)
    y = cora.store.arrays["y"]
    assert np.bincount(y[cora.split.train]).tolist() == [20] * 7
    assert [len(part) for part in cora.split] == [140, 500, 1000]


def test_regressions_cannot_be_stratified_and_have_folds(data_mirror: Path) -> None:
    with pytest.raises(ConfigError, match="no class to stratify by"):
        load_dataset("zinc", data_mirror, split="stratified")
    folds = [load_dataset("zinc", data_mirror, split="kfold", fold=k).split for k in range(10)]
    assert sorted(np.concatenate([fold.test for fold in folds])) == list(range(12_000))


def test_reopening_reads_no_raw_file_again(
    data_mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_dataset("mutag", data_mirror)
    monkeypatch.setattr(datasets, "read_card", None)
    assert load_dataset("mutag", data_mirror).store.num_graphs == 188


def small_mirror(data_mirror: Path, folder: Path) -> Path:
    (folder / "TU").mkdir(parents=True)
    shutil.copy(data_mirror / "TU" / "MUTAG.zip", folder / "TU" / "MUTAG.zip")
    (folder / "TU" / "MUTAG.zip").chmod(0o644)
    return folder


def test_unknown_checksum_is_warned_about_and_recorded(data_mirror: Path, tmp_path: Path) -> None:
    copy = small_mirror(data_mirror, tmp_path / "mirror")
    with zipfile.ZipFile(copy / "TU" / "MUTAG.zip", "a") as archive:
        archive.writestr("MUTAG/note.txt", "another archive, the same graphs")
    with pytest.warns(GradformerWarning, match=r"checksum of TU/MUTAG\.zip"):
        data = load_dataset("mutag", copy)
    assert data.store.about["unknown"] == ["TU/MUTAG.zip"]
    assert data.store.folder != load_dataset("mutag", data_mirror).store.folder


def test_wrong_content_is_refused_and_not_stored(
    data_mirror: Path, tmp_path: Path, cache: Path
) -> None:
    copy = small_mirror(data_mirror, tmp_path / "mirror")
    shutil.copy(data_mirror / "TU" / "NCI1.zip", copy / "TU" / "NCI1.zip")
    wrong = replace(find_card("mutag"), options={"name": "NCI1"}, files={}, download={})
    with pytest.raises(InputError, match="mutag: graphs are 4110, the card says 188"):
        open_card(wrong, copy)
    assert not list((cache / "stores").glob("mutag*"))


def test_card_checks_classes_and_splits(data_mirror: Path) -> None:
    for name, wrong, reason in (
        ("cora", {"class_counts": (1, 2)}, "class counts are"),
        ("cora", {"sizes": (141, 500, 1000)}, r"sizes of split 0 are \(140, 500, 1000\)"),
        ("cora", {"ways": 10}, "published splits are 1, the card says 10"),
        ("mutag", {"split": "fixed"}, "published splits are 0, the card says 1"),
    ):
        with pytest.raises(InputError, match=reason):
            open_card(replace(find_card(name), **wrong), data_mirror)  # type: ignore[arg-type]


def test_summary_stands_beside_card_and_paper(data_mirror: Path) -> None:
    card = find_card("actor")
    row = comparison_row(card, open_card(card, data_mirror))
    assert row == ("Actor", "1", "7,600", "30,019", "5", "same", "1: 7,600, 30,019")
    other = comparison_row(replace(card, mean_nodes=2.5), open_card(card, data_mirror))
    assert other[-2] == "1: 2.50, 30,019"


def test_memory_estimate_grows_with_what_it_should() -> None:
    from gradformer.graphs import sbm

    store = pack(sbm.cluster(splits=(20, 0, 0)))
    options = {"parameters": 1000, "layers": 4, "width": 32, "batch_size": 8}
    base = estimate_memory(store, **options)
    assert base.total == base.store + base.model + base.step
    assert base.model == 16_000
    assert estimate_memory(store, **{**options, "layers": 8}).step == pytest.approx(2 * base.step)
    assert estimate_memory(store, **{**options, "batch_size": 99}).step == pytest.approx(
        20 / 8 * base.step
    )


@pytest.mark.parametrize("name", ["cluster", "cluster-16", "pattern"])
def test_memory_estimate_is_near_what_was_measured(name: str) -> None:
    """Of a step of one trial, on a GPU; the benchmark holds few graphs beside it."""
    from gradformer.graphs import sbm

    rows = read_json(ROOT / "results" / "benchmarks" / "training.json")["rows"]
    (row,) = (row for row in rows if (row["case"], row["who"]) == (name, "ours, 1 trials"))
    recipe = load_recipe(name)
    config = recipe.model.config
    is_cluster = recipe.dataset == "cluster"
    few = sbm.cluster(splits=(99, 0, 0)) if is_cluster else sbm.pattern(copies=(1, 0, 0))
    found = estimate_memory(
        pack(few),
        parameters=row["parameters"],
        layers=config.layers,
        width=config.width,
        batch_size=recipe.train.batch_size,
    )
    assert found.model + found.step == pytest.approx(row["memory_gib"] * 2**30, rel=0.5)
