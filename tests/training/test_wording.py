"""Predictions in the user's words."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data

from gradformer.graphs.arrays import Task
from gradformer.graphs.labels import Labels
from gradformer.graphs.objects import from_networkx, from_objects
from gradformer.graphs.pyg_data import from_pyg
from gradformer.training.data import own_data
from gradformer.training.keepsakes import Answers
from gradformer.training.recipe import load_recipe
from gradformer.training.wording import chances, columns, rows_table


def said(labels: Labels, *trials: list[list[float]]) -> dict[str, list[Any]]:
    return columns(labels, np.array(trials))


@pytest.mark.parametrize(
    ("task", "rows", "expected"),
    [
        ("multiclass", [[1000, 0], [0, math.log(3)]], [[1, 0], [0.25, 0.75]]),
        ("binary", [[-1000], [math.log(3)]], [[0], [0.75]]),
        ("multilabel", [[-math.log(3), 1000]], [[0.25, 1]]),
    ],
)
def test_logits_become_chances(task: Task, rows: list[Any], expected: list[Any]) -> None:
    found = chances(np.array(rows, np.float32), task)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)


def test_of_two_classes_the_likelier_is_named() -> None:
    labels = Labels("multilabel", ("toxic", "blue"), (("no", "yes"), ("0", "1")))
    assert said(labels, [[0.9, 0.2], [0.4, 0.6]]) == {
        "toxic_predicted": ["yes", "no"],
        "toxic_p_yes": [0.9, 0.4],
        "blue_predicted": ["0", "1"],
        "blue_p_1": [0.2, 0.6],
    }


def test_trials_are_averaged_and_their_spread_is_that_of_the_named_class() -> None:
    labels = Labels("multiclass", ("kind",), (("a", "b", "c"),))
    found = said(labels, [[0.5, 0.25, 0.25]], [[0.0, 0.75, 0.25]])
    assert found["kind_predicted"] == ["b"]
    assert [found[f"kind_p_{word}"] for word in "abc"] == [[0.25], [0.5], [0.25]]
    assert found["kind_spread"] == pytest.approx([0.25 * 2**0.5])  # of a sample, as all others are
    numbers, yes = Labels("regression", ("y",), ()), Labels("binary", ("toxic",), (("no", "yes"),))
    assert said(numbers, [[1.0]], [[2.0]], [[3.0]]) == {"y_predicted": [2.0], "y_spread": [1.0]}
    assert said(yes, [[0.5]], [[1.0]])["toxic_spread"] == pytest.approx([0.5 * 0.5**0.5])


def test_rows_have_their_part_and_those_of_the_test_part_what_is_right_and_what_was_answered() -> (
    None
):
    graphs = [nx.path_graph(n) for n in (2, 3, 4, 5, 6)]
    y = [[0.5, 1.5], [2.5, 3.5], [4.5, None], [None, None], [8.5, 9.5]]
    words = ["train", "val", "test", None, "test"]
    data = own_data(load_recipe("own"), from_networkx(graphs, y=y, split=words), begun=True)
    answers = Answers(np.float32([[4, 5], [8, 9]]), data.labels(np.array([2, 4])))
    table = rows_table(data, data.split(0), answers)
    assert table is not None
    assert table.splitlines() == [
        "row,part,y[0],y[1],y[0]_predicted,y[1]_predicted",
        *("0,train,,,,", "1,val,,,,", "2,test,4.5,,4,5", "3,,,,,", "4,test,8.5,9.5,8,9"),
    ]
    assert rows_table(data, data.split(0), None) == "row,part\n0,train\n1,val\n2,test\n3,\n4,test\n"
    assert rows_table(replace(data, rows=None), data.split(0), answers) is None
    nodes = Answers(
        np.zeros((11, 2), np.float32), np.zeros((11, 2))
    )  # of all graphs that are tested
    assert rows_table(data, data.split(0), nodes) == rows_table(data, data.split(0), None)


def test_rows_keep_targets_apart_that_have_the_name_of_another_column() -> None:
    """As where the predictions of one run are learned by another: one took the other's place."""
    names = ["y", "y_predicted", "part"]
    graphs = [f"C{'C' * n}" for n in range(4)]
    frame = pd.DataFrame([[0.5, 1.5, 2.5]] * 4, columns=names).assign(smiles=graphs)
    frame["split"] = ["train", "train", "val", "test"]
    user = from_objects(frame, target=names, split_column="split")
    data = own_data(load_recipe("own"), user, begun=True)
    answers = Answers(np.float32([[4, 5, 6]]), data.labels(np.array([3])))
    table = rows_table(data, data.split(0), answers)
    assert table is not None
    head, *_, last = table.splitlines()
    predicted = "y_predicted_2,y_predicted_predicted,part_predicted"
    assert head == f"row,part,y,y_predicted,part_2,{predicted}"
    assert last == "3,test,0.5,1.5,2.5,4,5,6"


def test_classes_of_rows_are_named_and_nodes_of_one_graph_are_rows() -> None:
    graph = nx.path_graph(4)
    parts = {"train_mask": [1, 1, 0, 0], "val_mask": [0, 0, 1, 0], "test_mask": [0, 0, 0, 1]}
    masks = {name: torch.tensor(mask).bool() for name, mask in parts.items()}
    labels, ends = torch.tensor([0, 1, 2, 1]), torch.tensor(list(graph.edges)).T
    graphs = [Data(edge_index=ends, y=labels, num_nodes=4, **masks)]
    data = own_data(load_recipe("own"), from_pyg(graphs, task="multiclass"), begun=True)
    answers = Answers(np.float32([[0, 100, 0]]), data.labels(np.array([3])))
    table = rows_table(data, data.split(0), answers)
    assert table is not None
    assert table.splitlines()[0] == "node,part,y,y_predicted,y_p_0,y_p_1,y_p_2"
    assert table.splitlines()[-1].startswith("3,test,1,1,")
    assert table.splitlines()[1] == "0,train,,,,,"
