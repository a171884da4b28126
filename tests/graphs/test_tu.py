"""The text format of the TU collection, and tables of numbers in text files."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gradformer.errors import InputError
from gradformer.graphs.sources.text import floats, integers
from gradformer.graphs.sources.tu import read_tu, tu_graphs


def tu_files(**changes: str | None) -> Callable[[str], bytes | None]:
    files = {
        "A": "1, 2\n2, 1\n2, 2\n1, 2\n4, 3\n3, 4\n",
        "graph_indicator": "1\n1\n2\n2\n2\n",
        "graph_labels": "-1\n1\n",
        "node_labels": "3\n4\n3\n6\n3\n",
        "edge_labels": "1\n1\n0\n1\n0\n0\n",
        "node_attributes": "0.5, 1\n1, 2\n3, 4.5e1\n5, 6\n7, 8\n",
    }
    merged = {**files, **changes}
    return lambda kind: merged[kind].encode() if merged.get(kind) is not None else None


def test_tu_drops_loops_and_repeats_and_counts_from_zero() -> None:
    arrays = read_tu("T", tu_files()).check("T")
    assert arrays.edge_index.tolist() == [[1, 0, 1, 0], [0, 1, 0, 1]]
    assert arrays.node_ptr.tolist() == [0, 2, 5]
    assert arrays.edge_ptr.tolist() == [0, 2, 4]
    assert arrays.x[:, 0].tolist() == [0, 1, 0, 3, 0]
    assert arrays.edge_attr[:, 0].tolist() == [1, 1, 0, 0]
    assert arrays.y.tolist() == [0, 1]
    assert (arrays.schema.node, arrays.schema.edge, arrays.schema.outputs) == ((4,), (2,), 2)
    attributes = tu_graphs("T", tu_files(edge_labels=None), node="attributes")
    assert attributes.x[2].tolist() == [3, 45]
    assert attributes.edge_attr is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"A": None}, "T_A.txt is missing"),
        ({"A": "1, 2\n2, x\n"}, "T_A.txt, line 2: holds something"),
        ({"A": "1, 2\n\n2\n"}, "T_A.txt, line 3: does not have 2 columns"),
        ({"graph_indicator": "1\n1 2\n"}, "T_graph_indicator.txt, line 2: does not have 1 column$"),
        ({"A": "1, 2\n1, 3\n"}, "T_A.txt, line 2: edge 1, 3 does not join"),
        ({"A": "1, 9\n"}, "T_A.txt, line 1: edge 1, 9"),
        ({"A": "0, 1\n"}, "T_A.txt, line 1: edge 0, 1"),
        ({"graph_indicator": "1\n2\n1\n2\n2\n"}, "T_graph_indicator.txt, line 3"),
        ({"graph_indicator": "1\n1\n2\n2\n3\n"}, "T_graph_indicator.txt, line 5"),
        ({"node_labels": "1\n2\n"}, "T_node_labels.txt has 2 lines, expected 5"),
        ({"graph_labels": "1.5\n1\n"}, "T_graph_labels.txt, line 1"),
    ],
)
def test_tu_names_the_bad_line(changes: dict[str, str | None], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_tu("T", tu_files(**changes))


def test_tables_of_numbers() -> None:
    assert integers(b"1, -2\r\n\n 3\t4", 2, "f").tolist() == [[1, -2], [3, 4]]
    assert integers(b"", 3, "f").shape == (0, 3)
    assert floats(b"1,2.5\n-3e2,4\n", "f").tolist() == [[1, 2.5], [-300, 4]]
    for text in (b"1 2 3", b"--1 2", b"1-1 2", b"1 2\n- 3", b"1" * 19 + b" 2", b"1.0 2", b"\xff 1"):
        with pytest.raises(InputError, match="f, line"):
            integers(text, 2, "f")
    for text in (b"1,2\n3", b"1,a", b"1,\n"):
        with pytest.raises(InputError, match="f, line"):
            floats(text, "f")
