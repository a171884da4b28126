"""A user's graphs as a trial takes them: what is refused and what is told before any training."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from gradformer.errors import GradformerWarning, InputError
from gradformer.graphs.objects import from_objects, from_smiles_list
from gradformer.graphs.own import read
from gradformer.graphs.user_data import UserData
from gradformer.graphs.user_splits import user_split
from gradformer.training.data import own_data
from gradformer.training.recipe import Recipe, load_recipe
from tests.training import toy


def test_what_cannot_be_learned_or_scored_is_said_before_training(tmp_path: Path) -> None:
    parts = [(n, ["train", "val", "test"][n % 3 - 1]) for n in range(1, 31)]
    empty = [n + 0.5 if part == "train" else "" for n, part in parts]
    same = ["a" if part == "train" else "ab"[n % 2] for n, part in parts]
    unscored = ["a" if part == "val" else "ab"[n // 3 % 2] for n, part in parts]
    for name, y in {"empty": empty, "same": same, "unscored": unscored}.items():
        lines = [f"{'C' * n},{target},{part}" for (n, part), target in zip(parts, y)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["smiles,y,part", *lines]))
    text = (tmp_path / "same.csv").read_text()
    (tmp_path / "untested.csv").write_text(text.replace("test", "val"))
    one_class = read(tmp_path / "same.csv", split_column="part")
    recipe = load_recipe("own")
    for data, message in (
        (from_smiles_list(["C", "CC"], y=[1.5, 1.5]), "target 'y' is always 1.5, so nothing"),
        (from_smiles_list(["C", "CC"], y=[[1.5, 3], [2, 3]]), "target '.*' is always 3, so"),
        (from_smiles_list(["C", "CC"], y=[1.5, 2.0]), "val of 2 graphs with labels; give more$"),
        (from_objects(toy.some_graphs(3), y=["a", "b", "a"]), "give more, or use --split random$"),
        (read(tmp_path / "untested.csv", split_column="part"), "the data call nothing test"),
        (read(tmp_path / "unscored.csv", split_column="part"), "AUROC of the val part is not def"),
        (read(tmp_path / "empty.csv", split_column="part"), "of the val part has a label"),
        (one_class, "all labels of the train part are the same"),
    ):
        with pytest.raises(InputError, match=message):
            own_data(recipe, data)
    own_data(recipe, one_class, begun=True)  # it was not always refused


def test_one_of_several_numbers_may_be_the_same_all_through_training(tmp_path: Path) -> None:
    parts = ["train", "val", "test"]
    lines = [f"{'C' * n},{n}.5,{n if n % 3 else 7}.5,{parts[n % 3]}" for n in range(1, 31)]
    (tmp_path / "two.csv").write_text("\n".join(["smiles,y,z,part", *lines]))
    user = read(tmp_path / "two.csv", target=["y", "z"], split_column="part")
    data = own_data(load_recipe("own"), user)
    scale = data.scale(data.split(0).train)
    assert scale is not None
    assert (data.metric, data.labels(data.split(0).train)[0].tolist()) == ("scaled_mae", [3.5, 7.5])


@pytest.mark.parametrize(
    ("values", "kind"), [(("0", "1"), GradformerWarning), (("1.5", "2.5"), InputError)]
)
def test_a_target_that_no_training_row_has_is_named(
    tmp_path: Path, values: tuple[str, str], kind: type[Exception]
) -> None:
    """Of numbers it was "target 1"; a class that was never taught was predicted without a word."""
    parts = ["train", "val", "test"]
    rows = [(n, values[n // 3 % 2], parts[n % 3]) for n in range(1, 31)]
    lines = [f"{'C' * n},{y},{y if part == 'test' else ''},{part}" for n, y, part in rows]
    (tmp_path / "two.csv").write_text("\n".join(["smiles,y,rare one,part", *lines]))
    user = read(tmp_path / "two.csv", target=["y", "rare one"], split_column="part")
    with pytest.raises(kind, match="target 'rare one' has no value in the train part"):
        own_data(load_recipe("own"), user)


@pytest.mark.parametrize("more", ["", ",other"])
def test_a_class_that_no_training_row_has_is_named(tmp_path: Path, more: str) -> None:
    """Of three classes, and of two in one of several columns."""
    parts = ["train", "val", "test"]
    rows = [(n, parts[n % 3]) for n in range(1, 31)]
    rare = [f"{'rare' if part != 'train' and n % 5 == 0 else 'a' if more else 'ab'[n % 2]}"
            for n, part in rows]  # fmt: skip
    lines = [f"{'C' * n},{y},{part},{n // 3 % 2}" for (n, part), y in zip(rows, rare)]
    (tmp_path / "y.csv").write_text("\n".join(["smiles,y,part,other", *lines]))
    user = read(tmp_path / "y.csv", target=f"y{more}".split(","), split_column="part")
    with pytest.warns(GradformerWarning, match="class 'rare' of target 'y': nothing .* train p"):
        own_data(load_recipe("own"), user)


@pytest.mark.parametrize("copy", ["{}O", "O{}"])
def test_molecules_of_both_training_and_test_are_told(copy: str) -> None:
    chains = ["C" * n for n in range(1, 16)]
    words = [f"{chain}O" for chain in chains] + [copy.format(chain) for chain in chains]
    data = from_smiles_list(words, y=[len(word) + 0.5 for word in words])
    with pytest.warns(GradformerWarning, match=r"of 3 test molecules .* \(the first: .*position"):
        own_data(load_recipe("own"), data)
    isomers = from_smiles_list([f"C{c}O" for c in chains] + [f"{c}OC" for c in chains], y=data.rows)
    own_data(load_recipe("own"), isomers)  # tells nothing


def test_copies_are_looked_for_in_every_trial() -> None:
    """In the first ones of ten folds the two are in one part, or in those that are not compared."""
    words = ["C" * n for n in range(1, 40)]
    data = from_smiles_list(["OCC", "CCO", *words], y=[n + 0.5 for n in range(41)])
    recipe = load_recipe("own", settings=["data.split=kfold", "trials=10"])
    apart = [t for t in range(10) if _parted(recipe, data, t)]
    assert apart[0] > 0, "choose other molecules"
    told = rf"1 of \d test molecules of trial {apart[0]} are .* in {len(apart) - 1} other trial"
    with pytest.warns(GradformerWarning, match=told):
        own_data(recipe, data)


def _parted(recipe: Recipe, data: UserData, trial: int) -> bool:
    """Whether one of the first two molecules is trained on and the other is tested."""
    split = user_split("kfold", data, recipe.seed)(recipe.seed + trial)
    places = [[name for name, part in split._asdict().items() if k in part] for k in (0, 1)]
    return sorted(places) == [["test"], ["train"]]


def test_a_class_that_is_too_rare_to_be_tested_is_told() -> None:
    graphs = toy.some_graphs(66)
    y = ["odd" if k % 2 else "even" for k in range(60)] + ["rare", "rarer"] * 3
    data = from_objects(graphs, y=y)
    with pytest.warns(GradformerWarning, match="class 'rare' and 1 more: nothing of it is in"):
        own_data(load_recipe("own"), data)
    folds = load_recipe("own", settings=["data.split=kfold", "trials=10"])
    own_data(folds, data)  # tells nothing: every row is tested


def test_a_graph_that_is_too_large_is_named_as_in_the_file(tmp_path: Path) -> None:
    sizes = [4, 5, 40_000, 6]
    lines = [json.dumps({"num_nodes": n, "edges": [[0, 1]], "y": n + 0.5}) for n in sizes]
    (tmp_path / "graphs.jsonl").write_text("\n".join(lines))
    with pytest.raises(InputError, match=r"/graphs\.jsonl, line 3 has 40,000 nodes, so its pa"):
        own_data(load_recipe("own"), read(tmp_path / "graphs.jsonl"))


def test_attributes_that_no_model_sees_are_told() -> None:
    graphs = toy.some_graphs()
    nx.set_node_attributes(graphs[3], 1.5, "charge")
    data = from_objects(graphs, y=[len(g) + 0.5 for g in graphs])
    with pytest.warns(GradformerWarning, match="not used: charge of nodes; a model sees x of"):
        own_data(load_recipe("own"), data)


def test_graphs_without_any_edge_are_told() -> None:
    """An empty NAME_A.txt, or lists of edges that a converter left empty."""
    graphs = [nx.empty_graph(n) for n in range(2, 42)]
    with pytest.warns(GradformerWarning, match="no graph has an edge, so a model sees nodes only"):
        own_data(load_recipe("own"), from_objects(graphs, y=[len(g) + 0.5 for g in graphs]))
    for graph in graphs:
        nx.set_node_attributes(graph, 1.5, "x")
    data = from_objects(graphs, y=[len(g) + 0.5 for g in graphs])
    with warnings.catch_warnings():
        warnings.simplefilter("error", GradformerWarning)  # this index needs no edges
        own_data(load_recipe("own", settings=["model.index=similarity"]), data)


def test_ten_folds_test_every_graph_once() -> None:
    graphs = toy.some_graphs(40)
    for y in ([len(g) % 2 for g in graphs], [0.5 + len(g) for g in graphs]):
        recipe = load_recipe("own", settings=["data.split=kfold", "seed=3", "trials=10"])
        data = own_data(recipe, from_objects(graphs, y=y))
        folds = [data.split(3 + trial) for trial in range(10)]
        tested = np.concatenate([fold.test for fold in folds])
        assert sorted(tested) == list(range(40))
        for fold, following in zip(folds, [*folds[1:], folds[0]]):
            np.testing.assert_array_equal(fold.val, following.test)
            assert len({*fold.train, *fold.val, *fold.test}) == 40


def test_rare_classes_in_many_folds_are_told_once() -> None:
    y = [f"rare {n}" if n < 4 else "ab"[n % 2] for n in range(40)]
    data = from_objects(toy.some_graphs(40), y=y)
    recipe = load_recipe("own", settings=["data.split=kfold", "trials=10"])
    with pytest.warns(GradformerWarning) as told:
        own_data(recipe, data)
    (said,) = [str(one.message) for one in told if "train part" in str(one.message)]
    assert re.search(r"class 'rare \d' of target 'y': .* likewise \d+ other cases, so", said)
