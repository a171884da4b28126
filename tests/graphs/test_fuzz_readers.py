"""Malformed files of every kind: whatever they hold, only our own errors come out.

Examples are drawn from a fixed seed, so that a run tells the same on every machine.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradformer.errors import GradformerError
from gradformer.graphs.jsonl import read_jsonl
from gradformer.graphs.molecules import from_smiles, scaffold
from gradformer.graphs.store import content_hash
from gradformer.graphs.tables import read_table
from gradformer.graphs.tu_folder import read_tu_folder
from gradformer.graphs.user_data import Reading, UserData

pytest.importorskip("rdkit")
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*32 bits round:gradformer.errors.GradformerWarning"
)


def fuzz(examples: int) -> Callable[[Any], Any]:
    return settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def survive(read: Callable[..., UserData], name: str, content: bytes, **options: Any) -> None:
    """Read the file strictly and leniently: each gives sound data or an error of ours.

    Lenient reading lists what strict reading refuses.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        strict = attempt(read, path, skip_invalid=False, **options)
        lenient = attempt(read, path, skip_invalid=True, **options)
    if strict is not None:
        assert strict.skipped == ()
        assert lenient is not None
        assert lenient.rows.tolist() == strict.rows.tolist()
    elif lenient is not None:
        assert lenient.skipped


def attempt(read: Callable[..., UserData], path: Path, **options: Any) -> UserData | None:
    """The data, sound and the same if read like themselves; None after an error of ours."""
    try:
        data = read(path, **options)
    except GradformerError:
        return None
    data.arrays.check("fuzz")
    assert data.arrays.y is not None
    assert not np.isinf(data.arrays.y).any()
    assert len(data.rows) == data.arrays.num_graphs > 0
    assert not {row for row, _ in data.skipped} & set(data.rows.tolist())
    like = Reading.from_dict(json.loads(json.dumps(data.reading.to_dict())))
    again = read(path, like=like, skip_invalid=options["skip_invalid"])
    if not any(reason.startswith("split") for _, reason in data.skipped):  # of new graphs unread
        assert content_hash(again.arrays) == content_hash(data.arrays)
    return data


GOOD_SMILES = ("C", "CCO", "c1ccccc1", "[Na+].[Cl-]", "C/C=C/C", "C1CC1", "[13CH4]", "*C")
SMILES = st.one_of(
    st.sampled_from(GOOD_SMILES),
    st.text("CNOcno[]()=#+-@/\\123456789%.*Hl:>$ ", max_size=12),
    st.text(max_size=6),
)
CELL = st.one_of(
    st.sampled_from(["", "0", "1", "1.0", "2", "-3.5", "1e9", "1e999", "nan", "inf", "yes", "no"]),
    st.text(max_size=5),
)


@fuzz(200)
@given(SMILES)
def test_smiles(smiles: str) -> None:
    for function in (from_smiles, scaffold):
        with suppress(GradformerError):
            function(smiles)


@st.composite
def tables(draw: Any) -> str:
    """A sound table with up to three of its cells or lines damaged."""
    columns = [
        st.sampled_from(GOOD_SMILES),
        draw(st.sampled_from([st.integers(0, 1), st.floats(-9, 9), st.sampled_from("abc")])),
        st.integers(0, 1),
    ]
    rows = draw(st.lists(st.tuples(*columns), min_size=4, max_size=8))
    lines = [["smiles", "y", "z"], *([str(cell) for cell in row] for row in rows)]
    for _ in range(draw(st.integers(0, 3))):
        line = lines[draw(st.integers(0, len(lines) - 1))]
        at = draw(st.integers(0, 2))
        line[at : at + 1] = draw(st.lists(SMILES if at == 0 else CELL, max_size=2))
    return "\n".join(",".join(line) for line in lines)


@fuzz(100)
@given(
    text=tables(),
    target=st.sampled_from(["y", "z", ["y", "z"]]),
    task=st.sampled_from([None, None, "regression", "classification", "multilabel"]),
)
def test_tables(text: str, target: Any, task: str | None) -> None:
    survive(read_table, "data.csv", text.encode("utf-8", "replace"), target=target, task=task)


@fuzz(60)
@given(
    content=st.binary(max_size=60),
    name=st.sampled_from(["a.csv", "a.tsv", "a.csv.gz", "a.parquet", "a.jsonl", "a.jsonl.gz"]),
)
def test_bytes_that_are_no_file_of_ours(content: bytes, name: str) -> None:
    survive(read_jsonl if "json" in name else read_table, name, content)


VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 5)
    | st.sampled_from([2**31, 2**63, 2**64, -(2**63), 10**400])
    | st.floats()
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=8,
)


@st.composite
def graph_lines(draw: Any) -> str:
    """Sound graphs with up to three of their keys, or of all characters, damaged."""
    number = draw(st.sampled_from([st.integers(0, 4), st.floats(-1, 1)]))
    targets = draw(st.sampled_from([st.integers(0, 1), st.floats(-9, 9), st.sampled_from("abc")]))
    per_node = draw(st.booleans())
    graphs = []
    for _ in range(draw(st.integers(2, 5))):
        nodes = draw(st.integers(1, 4))
        end = st.integers(0, nodes - 1)
        edges = draw(st.lists(st.tuples(end, end), unique_by=lambda pair: tuple(sorted(pair))))
        graph = {
            "num_nodes": nodes,
            "edges": edges,
            "x": [[draw(number), draw(number)] for _ in range(nodes)],
            "edge_attr": [draw(number) for _ in edges],
            "y": [draw(targets) for _ in range(nodes)] if per_node else draw(targets),
        }
        graphs.append(graph)
    for _ in range(draw(st.integers(0, 3))):
        graph = draw(st.sampled_from(graphs))
        key = draw(st.sampled_from([*graph, "directed", "split", "other"]))
        fate = draw(st.sampled_from(["replaced", "gone", "torn"]))
        if fate == "replaced":
            graph[key] = draw(VALUE)
        elif fate == "gone":
            graph.pop(key, None)
        elif isinstance(graph.get(key), list) and graph[key]:
            torn = list(graph[key])
            torn[draw(st.integers(0, len(torn) - 1))] = draw(VALUE)
            graph[key] = torn
    text = "\n".join(json.dumps(graph) for graph in graphs)
    cut = draw(st.sampled_from([0, 0, 1, 30]))
    return text[: len(text) - cut]


@fuzz(200)
@given(text=graph_lines() | VALUE.map(json.dumps), level=st.sampled_from(["graph", "node"]))
def test_json_lines(text: str, level: Any) -> None:
    survive(read_jsonl, "graphs.jsonl", text.encode(), level=level)


NUMBERS = st.lists(st.integers(-2, 6), max_size=6)


@st.composite
def tu_files(draw: Any) -> dict[str, bytes]:
    """A sound folder with some files replaced, damaged or taken away."""
    files = {
        "A": b"1, 2\n2, 1\n3, 4\n4, 3\n",
        "graph_indicator": b"1\n1\n2\n2\n",
        "graph_labels": b"1\n2\n",
        "node_labels": b"0\n1\n1\n0\n",
        "edge_labels": b"0\n0\n1\n1\n",
        "node_attributes": b"0.5, 1\n1, 2\n3, 4\n5, 6\n",
        "graph_attributes": b"0.5\n1.5\n",
    }
    for kind in draw(st.lists(st.sampled_from(sorted(files)), max_size=3, unique=True)):
        fate = draw(st.sampled_from(["gone", "numbers", "bytes", "edit", "huge"]))
        if fate == "gone":
            del files[kind]
        elif fate == "numbers":
            files[kind] = "\n".join(map(str, draw(NUMBERS))).encode()
        elif fate == "bytes":
            files[kind] = draw(st.binary(max_size=20))
        elif fate == "huge":
            files[kind] += draw(st.sampled_from([b"99999999999999999", b"9" * 30, b"1e39", b"nan"]))
        else:
            at = draw(st.integers(0, len(files[kind])))
            files[kind] = files[kind][:at] + draw(st.binary(max_size=2)) + files[kind][at + 1 :]
    return files


@fuzz(100)
@given(
    files=tu_files(),
    node=st.sampled_from([None, "labels", "attributes"]),
    task=st.sampled_from([None, "regression"]),
)
def test_tu_folders(files: dict[str, bytes], node: Any, task: str | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for kind, content in files.items():
            (Path(folder) / f"TOY_{kind}.txt").write_bytes(content)
        for skip_invalid in (False, True):
            attempt(read_tu_folder, Path(folder), node=node, task=task, skip_invalid=skip_invalid)
