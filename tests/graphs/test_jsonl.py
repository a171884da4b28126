"""JSON lines: what a line may hold, and what is said of one that is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradformer.errors import ConfigError, InputError
from gradformer.graphs.jsonl import read_jsonl
from gradformer.graphs.user_data import Reading

PATH = {"num_nodes": 3, "edges": [[0, 1], [1, 2]]}


def write(folder: Path, *lines: Any) -> Path:
    path = folder / "graphs.jsonl"
    path.write_text("\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines) + "\n")
    return path


def test_undirected_edges_are_stored_both_ways_and_once(tmp_path: Path) -> None:
    once = {**PATH, "edge_attr": [[3], [4]], "y": 1.5}
    both = {"num_nodes": 3, "edges": [[1, 0], [0, 1], [1, 2], [2, 1], [1, 2]], "y": 2.5}
    both["edge_attr"] = [[3], [3], [4], [4], [4]]
    arrays = read_jsonl(write(tmp_path, once, both)).arrays
    for g in (0, 1):
        edges = slice(arrays.edge_ptr[g], arrays.edge_ptr[g + 1])
        found = {
            (*pair, attr)
            for pair, attr in zip(
                arrays.edge_index[:, edges].T.tolist(), arrays.edge_attr[edges, 0].tolist()
            )
            for pair in [tuple(pair)]
        }
        assert found == {(0, 1, 3), (1, 0, 3), (1, 2, 4), (2, 1, 4)}
        assert arrays.edge_ptr[g + 1] - arrays.edge_ptr[g] == 4


def test_directed_edges_stay_as_they_are(tmp_path: Path) -> None:
    arrays = read_jsonl(write(tmp_path, {**PATH, "directed": True, "y": 1.5})).arrays
    assert arrays.edge_index.tolist() == [[0, 1], [1, 2]]


def test_whole_numbers_are_categories_and_decimals_quantities(tmp_path: Path) -> None:
    categories = {**PATH, "x": [0, 4, 2], "edge_attr": [[0.5, 1], [1, 2]], "y": 0}
    more = {"num_nodes": 1, "edges": [], "x": [[6]], "y": 1}
    data = read_jsonl(write(tmp_path, categories, "", more))
    assert (data.reading.node, data.reading.edge) == ((7,), 2)
    assert data.arrays.x.tolist() == [[0], [4], [2], [6]]
    assert data.arrays.edge_attr.dtype == np.float32
    assert data.rows.tolist() == [1, 3]

    mixed = read_jsonl(
        write(tmp_path, {**PATH, "x": [1, 2, 3], "y": 0}, {**PATH, "x": [0.5, 1, 2], "y": 1})
    )
    assert (mixed.reading.node, mixed.arrays.x.dtype) == (1, np.float32)


@pytest.mark.parametrize(
    ("targets", "task", "y"),
    [
        ([1.5, None, 2.5], "regression", [[1.5], [np.nan], [2.5]]),
        (["b", "a", "b"], "binary", [[1], [0], [1]]),
        ([True, False, None], "binary", [[1], [0], [np.nan]]),
        (["b", "a", "c"], "multiclass", [1, 0, 2]),
        ([[1, 0], [0, None], [1, 1]], "multilabel", [[1, 0], [0, np.nan], [1, 1]]),
    ],
)
def test_targets_of_graphs(tmp_path: Path, targets: list[Any], task: str, y: list[Any]) -> None:
    data = read_jsonl(write(tmp_path, *({**PATH, "y": value} for value in targets)))
    assert data.reading.labels.task == task
    np.testing.assert_array_equal(data.arrays.y, np.array(y))


def test_targets_of_nodes(tmp_path: Path) -> None:
    one = {**PATH, "y": ["a", "b", None]}
    two = {"num_nodes": 2, "edges": [[0, 1]], "y": ["c", "a"]}
    data = read_jsonl(write(tmp_path, one, two), level="node")
    assert data.arrays.schema.level == "node"
    assert data.arrays.schema.outputs == 3
    assert data.arrays.y.tolist() == [0, 1, -1, 2, 0]
    with pytest.raises(InputError, match=r"line 2: y has 2 values.*level='node'"):
        read_jsonl(write(tmp_path, one, two))
    with pytest.raises(InputError, match=r"a value for each of its nodes; .*--level node"):
        read_jsonl(write(tmp_path, one))
    with pytest.raises(ConfigError, match="level"):
        read_jsonl(write(tmp_path, one), level="edge")  # type: ignore[arg-type]


BAD_LINES = [
    ("{", "not valid JSON: character 2: Expecting property name enclosed in double quotes"),
    ('{"edg', "not valid JSON: character 2: Unterminated string starting at"),
    ('[{"num_nodes": 1, "edges": []},', "Expecting value; a line is one whole object"),
    ("[" * 100_000, "not valid JSON"),
    ("[1]", "expected an object, found a list"),
    ({"num_nodes": 3}, "the key 'edges' is missing"),
    ({**PATH, "edge_atr": []}, "unknown key 'edge_atr'; did you mean 'edge_attr'?"),
    ({**PATH, "num_nodes": 0}, "this one has 0"),
    ({**PATH, "num_nodes": 10**30}, "a graph has 1 to 1,000,000 nodes"),
    ({**PATH, "num_nodes": True}, "num_nodes must be a whole number, found True"),
    ({**PATH, "edges": [[0, 3]]}, "edge [0, 3] is out of range: nodes are numbered 0 to 2"),
    ({**PATH, "edges": [[0, -1]]}, "edge [0, -1] is out of range"),
    ({**PATH, "edges": [[2**63, 2**63]]}, "edge [9223372036854775808, 92"),
    ({**PATH, "edges": [[0, 1], [1]]}, "edges must be a list of pairs"),
    ({**PATH, "edges": [[0.0, 1.0]]}, "edges must be a list of pairs of whole numbers"),
    ({**PATH, "edges": None}, "edges must be a list of pairs, found null"),
    ({**PATH, "x": [[1], [2]]}, "x has shape (2, 1), expected 3 rows"),
    ({**PATH, "x": [[1], [2], [3, 4]]}, "x has rows of different lengths"),
    ({**PATH, "x": ["C", "C", "O"]}, "x must hold numbers only"),
    ({**PATH, "x": [0, -1, 0]}, "x[1, 0] = -1 is not a category"),
    ({**PATH, "x": [0, 10**9, 0]}, "write quantities with a decimal point"),
    ({**PATH, "x": [2**63, 2**63, 2**63]}, "x holds 9223372036854775808, which is too large"),
    ({**PATH, "x": [0, 1, 2], "edge_attr": [1]}, "edge_attr has shape (1, 1), expected 2 rows"),
    ('{"num_nodes": 1, "edges": [], "x": [NaN]}', "NaN is not a JSON number"),
    ('{"num_nodes": 1, "edges": [], "y": 1, "y": 2}', "key 'y' stands twice"),
    ({**PATH, "x": [1e300, 0, 0]}, "x[0, 0] = 1e+300 is not a finite 32-bit number"),
    ({**PATH, "y": {"a": 1}}, "y must be a number, a word or a list of them, found an object"),
    ({**PATH, "directed": 1}, "directed must be true or false"),
    ({**PATH, "split": "x"}, "split 'x' is unknown"),
    (
        {**PATH, "edges": [[0, 1], [1, 0]], "edge_attr": [1, 2]},
        "edge [1, 0] is listed twice with different edge_attr",
    ),
]


@pytest.mark.parametrize(("line", "reason"), BAD_LINES)
def test_bad_lines_are_named(tmp_path: Path, line: Any, reason: str) -> None:
    path = write(tmp_path, line)
    with pytest.raises(InputError) as caught:
        read_jsonl(path)
    assert f"{path}, line 1: " in str(caught.value)
    assert reason in str(caught.value)


def test_bad_lines_can_be_skipped_and_are_listed(tmp_path: Path) -> None:
    good = {**PATH, "x": [0, 1, 2], "edge_attr": [0, 1], "y": 0.5}
    path = write(tmp_path, good, *(line for line, _ in BAD_LINES), good)
    data = read_jsonl(path, skip_invalid=True)
    assert data.rows.tolist() == [1, len(BAD_LINES) + 2]
    assert [row for row, _ in data.skipped] == list(range(2, len(BAD_LINES) + 2))


def test_graphs_must_agree(tmp_path: Path) -> None:
    first = {**PATH, "x": [0, 1, 2], "y": 1}
    for second, reason in (
        ({**PATH, "y": 1}, "line 2: has no x, other graphs have 1 column "),
        ({**PATH, "x": [[0, 1]] * 3, "y": 1}, "line 2: x has 2 columns, other graphs have 1"),
        ({**first, "y": [1, 2]}, "line 2: y has 2 values, other graphs have 1"),
    ):
        with pytest.raises(InputError, match=reason):
            read_jsonl(write(tmp_path, first, second))
    odd = {**PATH, "x": [[0, 1]] * 3, "y": [1, 2]}
    assert read_jsonl(
        write(tmp_path, odd, *[first] * 2), skip_invalid=True, task="regression"
    ).rows.tolist() == [2, 3]
    with pytest.raises(InputError, match="no graph has a y"):
        read_jsonl(write(tmp_path, PATH))


def test_new_graphs_are_read_like_the_training_data(tmp_path: Path) -> None:
    lines = ({**PATH, "x": [0, 1, 3], "y": y} for y in ("a", "b"))
    saved = json.dumps(read_jsonl(write(tmp_path, *lines)).reading.to_dict())
    like = Reading.from_dict(json.loads(saved))
    new = read_jsonl(write(tmp_path, {**PATH, "x": [0, 0, 1]}), like=like)
    assert new.arrays.y is None
    assert new.arrays.schema == like.schema
    other = write(tmp_path, {**PATH, "x": [0, 0, 1], "y": {"unit": "eV"}})
    assert read_jsonl(other, like=like, labelled=False).arrays.y is None
    parts = ({**PATH, "x": [0, 0, 1], "split": word} for word in ("deployed", ["val"] * 3))
    assert read_jsonl(write(tmp_path, *parts), like=like).arrays.split is None
    for graph, reason in (
        ({**PATH, "x": [0, 4, 1]}, r"x\[1, 0\] = 4 is a category unseen in training"),
        ({**PATH, "x": [0, 1, 2]}, r"x\[2, 0\] = 2 is a category unseen in training"),
        ({**PATH, "x": [0.5, 1, 1]}, "x holds decimal numbers, the training data have categories"),
        ({**PATH}, "has no x, the training data have 1 column "),
        ({**PATH, "x": [0, 1, 3], "edge_attr": [1, 1]}, "edge_attr has 1 column, .* have 0"),
        ({**PATH, "x": [0, 1, 3], "y": "c"}, r"'c' is not one of the classes \(a, b\)"),
    ):
        with pytest.raises(InputError, match=reason):
            read_jsonl(write(tmp_path, graph), like=like)


def test_a_split_key(tmp_path: Path) -> None:
    lines = ({**PATH, "y": 0.5, "split": part} for part in ("train", "val", "test"))
    arrays = read_jsonl(write(tmp_path, *lines, {**PATH, "y": 0.25})).arrays
    assert arrays.split.tolist() == [[0], [1], [2], [-1]]


def test_the_nodes_of_a_single_graph_can_be_split(tmp_path: Path) -> None:
    graph = {**PATH, "y": ["a", "b", "a"], "split": ["train", "test", None]}
    arrays = read_jsonl(write(tmp_path, graph), level="node").arrays
    assert arrays.split.tolist() == [[0], [2], [-1]]
    with pytest.raises(InputError, match=r"split has 3 values, expected 1: .*--level node"):
        read_jsonl(write(tmp_path, graph))


def test_a_split_of_the_wrong_length_is_a_bad_row(tmp_path: Path) -> None:
    whole = {**PATH, "y": 0.5, "split": "val"}
    path = write(tmp_path, whole, {**whole, "split": ["train", "val"]}, {**whole, "split": []})
    with pytest.raises(InputError, match="line 2: split has 2 values, expected 1: one for each gr"):
        read_jsonl(path)
    data = read_jsonl(path, skip_invalid=True)
    assert [row for row, _ in data.skipped] == [2, 3]
    assert data.arrays.split.tolist() == [[1]]


def test_a_graph_that_alone_was_left_shares_its_part_with_its_nodes(tmp_path: Path) -> None:
    good = {**PATH, "y": [0.5, 1.5, 2.5], "split": "train"}
    path = write(tmp_path, good, {**good, "y": [0.5, 1.5, "x"]})
    arrays = read_jsonl(path, level="node", skip_invalid=True).arrays
    assert arrays.split.tolist() == [[0], [0], [0]]


def test_words_that_say_nothing_in_a_table_are_classes_here(tmp_path: Path) -> None:
    """JSON has null for a missing value."""
    lines = ({**PATH, "y": y} for y in ("None", "Mild", "NA", None, "", "Mild"))
    data = read_jsonl(write(tmp_path, *lines))
    assert data.reading.labels.classes == (("Mild", "NA", "None"),)
    assert data.arrays.y.tolist() == [2, 0, 1, -1, -1, 0]
