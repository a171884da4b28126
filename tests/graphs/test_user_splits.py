"""How a user's own graphs are split."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from gradformer.errors import ConfigError, InputError
from gradformer.graphs.molecules import scaffold
from gradformer.graphs.objects import from_networkx, from_smiles_list
from gradformer.graphs.splits import Split
from gradformer.graphs.user_splits import (
    names_parts,
    part_number,
    scaffold_split,
    user_split,
    user_way,
)

pytest.importorskip("rdkit")


def items(split: Split) -> list[int]:
    return sorted(int(item) for part in split for item in part)


@pytest.mark.parametrize("nodes", [False, True])
def test_classes_are_shared_out_and_what_has_no_label_takes_no_part(nodes: bool) -> None:
    y = [None, *["a"] * 30, None, *["b"] * 10]
    labelled = [k for k, word in enumerate(y) if word is not None]
    if nodes:  # of one graph
        user = from_networkx([nx.path_graph(len(y))], y=[y], level="node")
    else:
        user = from_networkx([nx.path_graph(2)] * len(y), y=y)
    assert user_way("auto", user.arrays) == "stratified"
    splits = {way: user_split(way, user, 5) for way in ("stratified", "kfold", "random")}
    for find in splits.values():
        assert items(find(6)) == labelled
        assert find(6).test.tolist() != find(7).test.tolist()
    for way in ("stratified", "kfold"):
        parts = splits[way](6)
        assert [sum(y[k] == "b" for k in part) for part in parts] == [8, 1, 1]
    assert sorted(k for seed in range(5, 15) for k in splits["kfold"](seed).test) == labelled
    with pytest.raises(ConfigError, match="the data name no parts"):
        user_split("column", user, 0)


def test_numbers_and_graphs_of_many_labels_are_split_at_random() -> None:
    """A graph takes part with one label of several, or with one labelled node."""
    nan, graphs = np.nan, [nx.path_graph(2)] * 20
    numbers = from_networkx(graphs, y=[[0.5, nan], [nan, nan], *([[nan, 1.5], [2.5, 0.5]] * 9)])
    words = [["a", None], [None, None], *([["b", "a"], ["a", "a"]] * 9)]
    nodes = from_networkx(graphs, y=words, level="node")
    for user in (numbers, nodes):
        assert user_way("auto", user.arrays) == "random"
        assert items(user_split("random", user, 0)(0)) == [0, *range(2, 20)]
        assert items(user_split("kfold", user, 0)(0)) == [0, *range(2, 20)]
        with pytest.raises(ConfigError, match="stratified needs one class"):
            user_split("stratified", user, 0)
        with pytest.raises(ConfigError, match="scaffold needs molecules"):
            user_split("scaffold", user, 0)


def test_molecules_with_labels_are_split_by_scaffold() -> None:
    rings = [f"C1{'C' * size}1" for size in range(2, 12)]  # a scaffold each
    user = from_smiles_list(rings * 2, y=[np.nan, *np.arange(19) / 4])
    assert items(user_split("scaffold", user, 0)(0)) == list(range(1, 20))


def test_scaffolds_stay_together_and_sizes_are_met(data_mirror: Path) -> None:
    table = pd.read_csv(data_mirror / "ZINC" / "zinc12k_smiles.csv.gz", nrows=600)
    smiles = table["smiles"].tolist()
    parts = scaffold_split(smiles, 3, (0.7, 0.2, 0.1))
    homes: dict[str, set[int]] = {}
    for word, part in zip(smiles, parts.tolist()):
        homes.setdefault(scaffold(word), set()).add(part)
    assert all(len(home) == 1 for home in homes.values())
    np.testing.assert_allclose(np.bincount(parts) / 600, (0.7, 0.2, 0.1), atol=0.02)
    np.testing.assert_array_equal(parts, scaffold_split(smiles, 3, (0.7, 0.2, 0.1)))
    assert (parts != scaffold_split(smiles, 4, (0.7, 0.2, 0.1))).any()


def test_large_scaffolds_are_dealt_out_first_and_fill_a_part_to_the_last_molecule() -> None:
    rings = ["C1CC1", "C1CCC1", "C1CCCC1", "C1CCCCC1", "C1CCCCCC1", "c1ccccc1", "c1ccncc1"]
    smiles = rings[:1] * 6 + rings[1:] + ["c1ccoc1", "c1ccsc1", "c1cc[nH]c1", "c1cnoc1"]
    for seed in range(8):  # 16 molecules; the first scaffold has more than half of a test part
        parts = scaffold_split(smiles, seed, (0.5, 0.25, 0.25))
        assert parts[:6].tolist() == [0] * 6
        assert np.bincount(parts).tolist() == [8, 4, 4]


def test_scaffolds_are_found_once_for_all_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("gradformer.graphs.user_splits.scaffold", lambda s: asked.append(s) or s)
    smiles = [f"once{k}" for k in range(20)]
    assert (scaffold_split(smiles, seed=0) != scaffold_split(smiles, seed=1)).any()
    assert asked == smiles


def test_a_split_with_an_empty_part_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"nothing for \w+: 20 molecules have only 1 scaffold; use"
    ):
        scaffold_split(["CCO", "CC", "CCC", "C"] * 5, seed=0)


def test_words_for_parts() -> None:
    words = ("train", "Training", "val", "valid", "validation", "dev", " TEST ")
    assert [part_number(word) for word in words] == [0, 0, 1, 1, 1, 1, 2]
    assert names_parts(["train", "Test", "train"])
    assert not names_parts(["test", "test"])


def test_unknown_part() -> None:
    with pytest.raises(InputError, match="split 'holdout' is unknown; use train, val or test"):
        part_number("holdout")
