"""Tables of SMILES: columns, tasks, missing values, bad rows, and reading alike at prediction."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gradformer import progress
from gradformer.errors import ConfigError, GradformerWarning, InputError
from gradformer.graphs.molecules import from_smiles
from gradformer.graphs.objects import from_objects, from_smiles_list
from gradformer.graphs.store import content_hash
from gradformer.graphs.table_files import open_table
from gradformer.graphs.tables import read_parts, read_table
from gradformer.graphs.user_data import Reading, RowChecks

pytest.importorskip("rdkit")


def write(folder: Path, text: str, name: str = "data.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_regression_with_a_missing_value(tmp_path: Path) -> None:
    data = read_table(write(tmp_path, "smiles,y\nCCO,1.5\nCC,\nc1ccccc1,-2\n"))
    assert data.reading.labels.task == "regression"
    assert data.arrays.schema.outputs == 1
    np.testing.assert_array_equal(data.arrays.y, np.float32([[1.5], [np.nan], [-2]]))
    assert data.arrays.sizes.tolist() == [3, 2, 6]
    assert data.rows.tolist() == [2, 3, 4]
    assert data.smiles == ("CCO", "CC", "c1ccccc1")
    x, edge_index, edge_attr = from_smiles("c1ccccc1")
    np.testing.assert_array_equal(data.arrays.x[5:], x)
    np.testing.assert_array_equal(data.arrays.edge_index[:, 6:], edge_index)
    np.testing.assert_array_equal(data.arrays.edge_attr[6:], edge_attr)


@pytest.mark.parametrize(
    ("header", "rows", "task", "classes"),
    [
        ("y", ["toxic", "safe", "toxic", ""], "binary", (("safe", "toxic"),)),
        ("y", ["0", "1", "1.0", "NaN"], "binary", (("0", "1"),)),
        ("y", ["low", "mid", "high", "mid"], "multiclass", (("high", "low", "mid"),)),
        ("y", ["10", "9", "2", "2", "9", "10"], "multiclass", (("2", "9", "10"),)),
        ("y", ["1", "2", "3", "4"], "regression", ()),
        ("y", ["0.5", "1", "1", "0.5"], "regression", ()),
        ("a,b", ["0,1", "0,0", ",1", "0,1"], "multilabel", (("0", "1"), ("0", "1"))),
        ("a,b", ["0,1.5", "1,2.5", ",1", "0,"], "regression", ()),
    ],
)
def test_the_task_is_found(
    tmp_path: Path, header: str, rows: list[str], task: str, classes: object
) -> None:
    text = f"smiles,{header}\n" + "".join(f"CCO,{row}\n" for row in rows)
    labels = read_table(write(tmp_path, text), target=header.split(",")).reading.labels
    assert (labels.task, labels.classes) == (task, classes)


def test_a_stated_task_wins(tmp_path: Path) -> None:
    path = write(tmp_path, "smiles,y\nC,0\nCC,1\nCCC,1\n")
    assert read_table(path, task="regression").arrays.schema.task == "regression"
    classes = read_table(path, task="multiclass").arrays
    assert (classes.schema.outputs, classes.y.tolist()) == (2, [0, 1, 1])
    with pytest.raises(ConfigError, match="did you mean 'regression'"):
        read_table(path, task="regresion")


def test_classes_are_numbered_by_their_words_and_may_be_missing(tmp_path: Path) -> None:
    data = read_table(write(tmp_path, "smiles,y\nC,low\nC,\nC,high\nC,mid\n"))
    assert data.arrays.y.tolist() == [1, -1, 0, 2]
    assert data.reading.labels.classes == (("high", "low", "mid"),)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("smiles,y\nCCO,1\nCC(,2\n", {}, "line 3: column 'smiles': SMILES 'CC(' cannot be parsed"),
        ("smiles,y\nCCO,1\n,2\n", {}, "line 3: column 'smiles' is empty"),
        ("smiles,y\nCCO,1\nCC\n", {}, "line 3: 1 field, the header has 2"),
        ("smiles,y\nC,1.5\nC,2.5\n\nC,n.a.\n", {}, "line 5: column 'y': 'n.a.' is not a number"),
        (
            "smiles,y\nC,1.5\nC,2\nC,1e99\n",
            {},
            "line 4: column 'y': '1e99' is not a number that fits",
        ),
        ("smiles,y\nC,1\nC,2\n", {"target": "z"}, "no column 'z'; the columns are: smiles, y"),
        ("smiles,y\nC,1\n", {"smiles": "s"}, "no column 's'; the columns are: smiles, y"),
        ("a,y\nC,1\n", {}, "say which column holds the SMILES"),
        ("smi,a_smiles,b_smiles\nC,C,C\n", {}, "say which column holds the SMILES"),
        ("smiles,y\nC,1\n", {"target": []}, "no target column was named; the columns are"),
        ("smiles,y,set\nC,1,train\nC,2\n", {"target": "y"}, "line 3: 2 fields, the header has 3"),
        ("smiles,y,z\nC,1,2\n", {}, "say which column is to be learned"),
        ("smiles,y,y\nC,1,2\n", {"target": "y"}, "more than one column 'y'"),
        (",smiles,y,z\n0,C,1,2\n", {}, "the columns are: '', smiles, y, z"),
        ("smiles y\nC 1\n", {}, "are: smiles y (commas, semicolons or tabs separate them)"),
        ("smiles;y\nC,1\nC;2\n", {}, "line 2: 1 field, the header has 2"),
        ("smiles,y\nC,1\n", {"target": ["y", "y"]}, "a target column is named twice: y, y"),
        ("smiles,y\nC,\nC,NA\n", {}, "column 'y' has no values"),
        ("smiles,y\nC,a\nC,a\n", {}, "column 'y' has one class only, 'a'; give rows of another"),
        ('smiles,"a, b",c\nC,1,2\n', {}, "the columns are: smiles, 'a, b', c"),
        ("smiles,y,z\nCC,a,b\n", {"target": ["y", "z"]}, "y (classes), z (classes)"),
        ("smiles,y\n", {}, "holds no data"),
        ("", {}, "is empty"),
        ('smiles,y\nC,"1\n', {}, "line 2: not a well-formed table: unexpected end of data; quotes"),
        ('"smiles,y\nC,1\n', {}, "line 1: not a well-formed table"),
        ("smiles,y,part\nC,1,train\nC,2,tets\n", {"target": "y", "split_column": "part"}, "'tets'"),
    ],
)
def test_errors_name_file_line_column_and_reason(
    tmp_path: Path, text: str, options: dict[str, Any], message: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        read_table(path, **options)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_names_are_not_taken_for_classes(tmp_path: Path) -> None:
    text = "smiles,id\n" + "".join(f"C,mol{i}\n" for i in range(30))
    with pytest.raises(InputError, match="as 'mol0', which looks like names"):
        read_table(write(tmp_path, text))


def test_a_column_without_a_name_is_no_target(tmp_path: Path) -> None:
    """pandas writes the numbers of the rows so, a spreadsheet an empty last column."""
    for text in (",smiles,y\n0,C,1.5\n1,CC,2.5\n", "smiles,y,\nC,1.5,\nCC,2.5,\n"):
        assert read_table(write(tmp_path, text)).reading.labels.targets == ("y",)


def test_the_column_of_molecules_is_found_by_its_name(tmp_path: Path) -> None:
    for name in ("SMILES", "mol_smiles", "Smi", "smile"):
        assert read_table(write(tmp_path, f"y,{name}\n1.5,C\n2.5,CC\n")).reading.smiles == name
    exact = write(tmp_path, "old_smiles,smiles,y\nO,C,1.5\nO,CC,2.5\n")
    assert read_table(exact, target="y").smiles == ("C", "CC")


def test_bad_rows_are_listed_not_dropped(tmp_path: Path) -> None:
    text = 'smiles,y,note\nCCO,1.5,"two\nlines"\nCC(,2.5,\nC,x,\nCC,3,\nC,1\n'
    data = read_table(write(tmp_path, text), target="y", skip_invalid=True)
    assert data.rows.tolist() == [2, 6]
    assert [row for row, _ in data.skipped] == [4, 5, 7]
    assert data.arrays.y.tolist() == [[1.5], [3.0]]
    assert data.smiles == ("CCO", "CC")
    with pytest.raises(InputError, match="of 1 line none is valid"):
        read_table(write(tmp_path, "smiles,y\nC(,1\n"), skip_invalid=True)


def test_a_split_column_that_is_not_used_is_told(tmp_path: Path) -> None:
    text = "smiles,y,Set,note\nCC,1,train,test\nCCC,2,Valid,yes\nCCCC,3,test,train\n"
    path = write(tmp_path, text)
    with pytest.warns(
        GradformerWarning, match=r"column 'Set' names the parts .* --split-column Set"
    ):
        data = read_table(path, target="y")
    read_table(path, like=data.reading)
    read_table(path, target="y", split_column="Set")
    read_table(write(tmp_path, "smiles,y,way\nCC,1,train\nCCC,2,train\n"), target="y")


def test_a_split_column(tmp_path: Path) -> None:
    text = "smiles,y,part\nC,1.5,Train\nCC,2.5,valid\nCCC,3,test\nCO,4,train\n"
    data = read_table(write(tmp_path, text), split_column="part")
    assert data.reading.labels.targets == ("y",)
    assert data.arrays.split.tolist() == [[0], [1], [2], [0]]


def test_new_data_are_read_like_the_training_data(tmp_path: Path) -> None:
    trained = read_table(write(tmp_path, "mol,y\nC,low\nCC,high\nCCC,low\n"), smiles="mol").reading
    like = Reading.from_dict(json.loads(json.dumps(trained.to_dict())))
    assert like == trained

    unlabelled = read_table(write(tmp_path, "id,mol\n1,CO\n2,C\n"), like=like)
    assert unlabelled.arrays.y is None
    assert unlabelled.arrays.schema == trained.schema

    labelled = read_table(write(tmp_path, "mol,y\nCO,low\nC,\n"), like=like)
    np.testing.assert_array_equal(labelled.arrays.y, np.float32([[1], [np.nan]]))

    with pytest.raises(InputError, match=r"line 3: column 'y': 'mid' is not one of .*\(high, low"):
        read_table(write(tmp_path, "mol,y\nCO,low\nC,mid\n"), like=like)
    path = write(tmp_path, "y,MOL,new\nmid,CO,CC\n")
    other_words = read_table(path, like=like, labelled=False)
    assert (other_words.arrays.y, other_words.smiles) == (None, ("CO",))
    assert read_table(path, smiles="new", like=like, labelled=False).smiles == ("CC",)
    without_names = replace(like, smiles=None)
    assert read_table(write(tmp_path, "smi\nCO\n"), like=without_names).smiles == ("CO",)
    with pytest.raises(InputError, match=r"holds molecules as SMILES, but .* on graphs"):
        read_table(path, like=replace(like, kind="graphs"))
    with pytest.raises(InputError, match=r"no column 'mol'.*--smiles NAME.*are: smiles"):
        read_table(write(tmp_path, "smiles\nCO\n"), like=like)


def test_a_damaged_reading_is_refused() -> None:
    with pytest.raises(InputError, match="damaged"):
        Reading.from_dict({"kind": "smiles", "node": [2]})


def test_a_table_and_a_list_are_read_as_by_one_process(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Each row has its own molecule, whatever is wrong with those before it."""
    path = tmp_path / "data.csv"
    rows = ["CCO,1", "CC(,2", "C,3,4", "c1ccccc1,5", "", ",6", "CCC,7", "CCCC,eight", "CN,9"]
    path.write_text("\n".join(["smiles,y", *rows]) + "\n")
    listed: list[Any] = ["CCO", 3, "CC(", "c1ccccc1", "C"]

    def read() -> list[Any]:
        table = read_table(path, task="regression", skip_invalid=True)
        molecules = from_smiles_list(listed, y=[1.0, 2.0, 3.0, 4.5, 5.0], skip_invalid=True)
        with pytest.raises(InputError) as table_error:
            read_table(path)
        with pytest.raises(InputError) as list_error:
            from_smiles_list(listed)
        found = [
            (data.rows.tolist(), data.skipped, data.smiles, content_hash(data.arrays))
            for data in (table, molecules)
        ]
        return [*found, str(table_error.value), str(list_error.value)]

    alone = read()
    assert [kept for kept, *_ in alone[:2]] == [[2, 5, 8, 10], [0, 3, 4]]
    assert alone[2].startswith(f"{path}, line 3: column 'smiles': SMILES 'CC(' cannot")
    started = request.getfixturevalue("helpers")
    assert read() == alone
    assert len(started) == 8
    assert all(helper.returncode is not None for helper in started)


def test_parts_of_a_table_are_what_the_whole_is_made_of(tmp_path: Path) -> None:
    like = read_table(write(tmp_path, "smiles,y\nCCO,1.5\nCC,2\n", "train.csv")).reading
    words = ["CC(", "C", "CC", "no", "CCC", "CCCC", "CCCCC", "x"]
    path = write(tmp_path, "\n".join(["smiles", *words]) + "\n")
    whole = read_table(path, like=like, skip_invalid=True)
    table, rows = open_table(path), RowChecks(str(path), "line", skip_invalid=True)
    parts = list(read_parts(table, rows, 2, like=like))
    assert [part.rows.tolist() for part in parts] == [[3, 4], [6, 7], [8]]
    assert [part.smiles for part in parts] == [("C", "CC"), ("CCC", "CCCC"), ("CCCCC",)]
    assert tuple(rows.skipped) == whole.skipped
    assert [row for row, _ in rows.skipped] == [2, 5, 9]
    np.testing.assert_array_equal(np.concatenate([p.arrays.x for p in parts]), whole.arrays.x)
    rows = RowChecks(str(path), "line", skip_invalid=True)
    with pytest.raises(InputError, match="of 1 line none is valid; the first, line 2"):
        next(read_parts(replace(table, rows=table.rows[:1]), rows, 2, like=like))


def test_an_error_in_a_part_ends_the_bar_before_it_is_said(tmp_path: Path) -> None:
    like = read_table(write(tmp_path, "smiles,y\nCCO,1.5\nCC,2\n", "train.csv")).reading
    path = write(tmp_path, "smiles,y\nC,word\nCC,1\nCCC,2\n")
    rows = RowChecks(str(path), "line", skip_invalid=False)
    with pytest.raises(InputError, match="line 2") as caught:
        next(read_parts(open_table(path), rows, 1, like=like))
    assert progress._bars == 0
    assert caught.tb is not None  # which holds what was not ended


def test_names_of_columns_may_be_numbers_in_pandas() -> None:
    frame = pd.DataFrame([["CCO", 1.5, "C"], ["CC", 2.5, "N"]], columns=[0, 1, "canonical_smiles"])
    data = from_objects(frame, smiles=0, target=1)
    assert data.smiles == ("CCO", "CC")
    assert data.reading.labels.targets == ("1",)
    assert from_objects(frame, smiles=0, target=[1]).reading == data.reading
