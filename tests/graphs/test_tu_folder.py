"""A user's folder in TU format, and the one function that reads every kind of data."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from gradformer.errors import ConfigError, GradformerWarning, InputError
from gradformer.graphs.own import read
from gradformer.graphs.user_data import Reading

FILES = {
    "A": "1, 2\n2, 1\n3, 4\n4, 3\n4, 5\n5, 4\n",
    "graph_indicator": "1\n1\n2\n2\n2\n",
    "graph_labels": "-1\n1\n",
    "node_labels": "3\n4\n3\n3\n5\n",
    "edge_labels": "1\n1\n0\n0\n1\n1\n",
}


def write(folder: Path, **files: str | None) -> Path:
    folder.mkdir()
    for kind, text in {**FILES, **files}.items():
        if text is not None:
            (folder / f"TOY_{kind}.txt").write_text(text)
    return folder


def test_labels_keep_their_numbers(tmp_path: Path) -> None:
    data = read(write(tmp_path / "a"))
    assert (data.reading.node, data.reading.edge) == ((6,), (2,))
    assert data.arrays.x[:, 0].tolist() == [3, 4, 3, 3, 5]
    assert data.reading.labels.classes == (("-1", "1"),)
    assert data.arrays.y.tolist() == [[0], [1]]
    assert data.rows.tolist() == [1, 2]
    assert read(write(tmp_path / "b", graph_labels="-1\n\n1\n")).arrays.y.tolist() == [[0], [1]]


@pytest.mark.parametrize(("begin", "mark"), [("", ", "), ("", " "), ("\n", ", ")])
def test_several_labels_of_a_node(tmp_path: Path, begin: str, mark: str) -> None:
    rows = [[3, 1], [4, 0], [3, 0], [3, 0], [5, 1]]
    lines = [f"{first}{mark}{second}\n" for first, second in rows]
    data = read(write(tmp_path / "a", node_labels=begin + "".join(lines)))
    assert data.arrays.x.tolist() == rows


def test_files_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    """Windows writes one; the first label was a class of its own."""
    folder = write(tmp_path / "a", **{kind: f"\ufeff{text}" for kind, text in FILES.items()})
    plain = read(write(tmp_path / "b"))
    assert read(folder).reading == plain.reading
    assert read(folder).arrays.y.tolist() == plain.arrays.y.tolist()


def test_attributes_and_a_regression(tmp_path: Path) -> None:
    attributes = "0.5, 1\n1, 2\n1, 3\n1, 4\n1, 5\n"
    folder = write(tmp_path / "a", node_attributes=attributes, graph_attributes="0.5\n1.5\n")
    assert read(folder).reading.node == (6,)
    data = read(folder, node="attributes", task="regression")
    assert data.reading.node == 2
    assert data.arrays.x[0].tolist() == [0.5, 1]
    assert data.arrays.y.tolist() == [[0.5], [1.5]]
    labels = read(write(tmp_path / "c", graph_labels="0.5\n1.5\n"), task="regression")
    assert labels.arrays.y.tolist() == [[0.5], [1.5]], "there are no attributes of graphs"
    alone = write(tmp_path / "b", node_attributes=attributes, node_labels=None)
    assert read(alone).reading.node == 2, "there are no labels to prefer"
    with pytest.raises(InputError, match=r"TOY_edge_attributes\.txt is missing, which edge="):
        read(folder, edge="attributes")
    with pytest.raises(ConfigError, match="node: unknown value 'atributes'"):
        read(folder, node="atributes")


def test_new_folders_are_read_like_the_training_data(tmp_path: Path) -> None:
    reading = read(write(tmp_path / "a")).reading
    like = Reading.from_dict(json.loads(json.dumps(reading.to_dict())))
    labels = "4\n4\n4\n4\n5\n"
    new = read(write(tmp_path / "b", node_labels=labels, graph_labels=None), like=like)
    assert new.arrays.x[:, 0].tolist() == [4, 4, 4, 4, 5]
    assert new.arrays.y is None
    short = write(tmp_path / "d", graph_labels="?\n")
    assert read(short, like=like, labelled=False).rows.tolist() == [1, 2]
    unseen = write(tmp_path / "c", node_labels="4\n4\n4\n4\n6\n")
    with pytest.raises(
        InputError, match=r"graph 2: x\[2, 0\] = 6 is a category unseen in training"
    ):
        read(unseen, like=like)
    assert read(unseen, like=like, skip_invalid=True).rows.tolist() == [1]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"A": None}, "must hold one file NAME_A.txt"),
        ({"A": "1, 2\n2, x\n"}, "TOY_A.txt, line 2"),
        ({"A": "1, 9\n"}, "TOY_A.txt, line 1"),
        ({"graph_labels": None}, "TOY_graph_labels.txt is missing"),
        ({"graph_labels": "1\n2\n3\n"}, "TOY_graph_labels.txt has 3 lines, expected 2"),
        ({"node_labels": "1\n"}, "TOY_node_labels.txt has 1 line, expected 5"),
        ({"node_labels": "3,,1\n" * 5}, "TOY_node_labels.txt, line 1: does not have 3 columns"),
        ({"node_labels": "-1\n0\n0\n0\n0\n"}, r"graph 1: x\[0, 0\] = -1 is not a category"),
    ],
)
def test_damaged_folders(tmp_path: Path, files: dict[str, str | None], message: str) -> None:
    folder = write(tmp_path / "a", **files)
    with pytest.raises(InputError, match=message) as caught:
        read(folder)
    assert str(folder) in str(caught.value)


def test_edges_in_one_direction_are_told(tmp_path: Path) -> None:
    """They were taken for directed without a word: distances and messages go one way then."""
    one_way = write(tmp_path / "a", A="1, 2\n3, 4\n5, 4\n", edge_labels=None)
    with pytest.warns(GradformerWarning, match=r"TOY_A\.txt: lists each edge in one direction, "):
        assert read(one_way).arrays.edge_index.T.tolist() == [[0, 1], [0, 1], [2, 1]]


def test_a_file_that_cannot_be_read_is_not_taken_for_absent(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", node_labels=None)
    (folder / "TOY_node_labels.txt").mkdir()
    with pytest.raises(InputError, match=r"TOY_node_labels\.txt cannot be read"):
        read(folder)


def test_mutag_as_a_users_folder(data_mirror: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(data_mirror / "TU" / "MUTAG.zip").extractall(tmp_path)
    arrays = read(tmp_path / "MUTAG").arrays
    assert (arrays.num_graphs, arrays.schema.node, arrays.schema.edge) == (188, (7,), (4,))
    assert np.bincount(arrays.y[:, 0].astype(int)).tolist() == [63, 125]
    assert arrays.edge_ptr[-1] == 7442


def test_read_says_what_it_reads(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read(tmp_path / "absent.csv")
    (tmp_path / "a.sdf").write_text("")
    with pytest.raises(InputError, match=r"a table with SMILES \(.csv.*JSON lines.*TU format"):
        read(tmp_path / "a.sdf")
    (tmp_path / "a.jsonl").write_text('{"num_nodes": 1, "edges": [], "y": 0.5}\n')
    assert read(tmp_path / "a.jsonl").arrays.num_graphs == 1
    with pytest.raises(ConfigError, match=r"smiles: no option for .*a.jsonl"):
        read(tmp_path / "a.jsonl", smiles="s")


def test_an_edge_with_two_labels_is_refused(tmp_path: Path) -> None:
    """The first of them was kept without a word; JSON lines refuse it too."""
    twice = {"A": FILES["A"] + "1, 2\n", "edge_labels": FILES["edge_labels"] + "1\n"}
    same, plain = read(write(tmp_path / "a", **twice)), read(write(tmp_path / "b"))
    np.testing.assert_array_equal(same.arrays.edge_attr, plain.arrays.edge_attr)
    other = write(tmp_path / "c", **{**twice, "edge_labels": FILES["edge_labels"] + "0\n"})
    with pytest.raises(InputError, match=r"TOY_A\.txt, line 7: edge 1, 2 is listed twice with"):
        read(other)
