"""Files that hold tables: separators, decimal marks, compression, parquet, and damaged ones."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.graphs.test_tables import write

from gradformer.errors import InputError
from gradformer.graphs.table_files import open_table
from gradformer.graphs.tables import read_table

pytest.importorskip("rdkit")


def test_delimiters_compression_and_parquet_agree(tmp_path: Path) -> None:
    frame = pd.DataFrame({"SMILES": ["CCO", "C", "CC"], "y": [0.5, np.nan, 3.0], "z": [1, 0, 1]})
    paths = [
        tmp_path / name
        for name in ("a.csv", "a.tsv", "B.CSV.GZ", "s.csv", "i.parquet", "d.parquet", "a.parquet")
    ]
    frame.to_csv(paths[0], index=False)
    frame.to_csv(paths[1], index=False, sep="\t")
    paths[2].write_bytes(gzip.compress(b"\xef\xbb\xbf" + paths[0].read_bytes()))
    frame.to_csv(paths[3], index=False, sep=";", lineterminator="\r\n")
    pytest.importorskip("pyarrow")
    frame.set_index("SMILES").to_parquet(paths[4])
    frame.set_index("SMILES", drop=False).to_parquet(paths[5])
    frame.to_parquet(paths[6])
    first, *others = (read_table(path, target=["y", "z"]) for path in paths)
    for other in others:
        assert other.reading == first.reading
        np.testing.assert_array_equal(other.arrays.y, first.arrays.y)
        np.testing.assert_array_equal(other.arrays.x, first.arrays.x)
    assert others[-1].rows.tolist() == [1, 2, 3]
    assert open_table(paths[-1]).header == ["SMILES", "y", "z"], "numbers of rows are no column"


def test_a_cell_may_be_of_any_length(tmp_path: Path) -> None:
    """Python's reader of tables takes 131,072 letters, and called others a question of quotes."""
    path = write(tmp_path, f"smiles,y,sequence\nC,1.5,{'MK' * 100_000}\nCC,2.5,M\n")
    assert read_table(path, target="y").rows.tolist() == [2, 3]


def test_what_is_missing_in_parquet_is_an_empty_cell(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    whole = pd.array([7, None], "Int64")
    days = pd.to_datetime(["2024-08-03", None])
    frame = pd.DataFrame({"smiles": ["C", None], "whole": whole, "y": [0.5, np.nan], "day": days})
    frame.to_parquet(tmp_path / "a.parquet")
    (_, first), (_, second) = open_table(tmp_path / "a.parquet").rows
    assert first == ["C", "7", "0.5", "2024-08-03 00:00:00"]
    assert second == ["", "", "", ""]


def test_decimal_commas_between_semicolons(tmp_path: Path) -> None:
    data = read_table(write(tmp_path, "smiles;y\nCCO;1,5\nCC;-2\nC;\nCCC;3,5E-1\n"))
    assert data.reading.labels.task == "regression"
    np.testing.assert_array_equal(data.arrays.y, np.float32([[1.5], [-2], [np.nan], [0.35]]))
    quoted = read_table(write(tmp_path, '"smiles";"IC50, nM"\n"CCO";"1,5"\n"CC";"2,5"\n'))
    assert quoted.reading.labels.targets == ("IC50, nM",)


def test_the_decimal_mark_is_that_of_the_table(tmp_path: Path) -> None:
    marks = {"1,5;2": True, "1.5;2": False, "CCO;2.5e-05": False, "1,5;v1.0": True, "1,5,": False}
    for row, commas in marks.items():
        header = "a;b\n" if ";" in row else "a,b,c\n"
        assert open_table(write(tmp_path, f"{header}{row}\n")).has_commas() == commas, row


def test_a_first_line_that_tells_a_spreadsheet_the_separator_is_no_header(tmp_path: Path) -> None:
    data = read_table(write(tmp_path, "sep=;\r\nsmiles;y\r\nCCO;1,5\r\nCC;2,5\r\n"))
    assert data.rows.tolist() == [3, 4]
    assert data.arrays.y is not None
    assert data.arrays.y.tolist() == [[1.5], [2.5]]


def test_the_separator_is_seen_whatever_names_and_the_file_s_own_name_hold(tmp_path: Path) -> None:
    lines = ["id;smiles;MW (g/mol), dry", "", "1;CCO;1,5", "  ", "2;CC;2,5"]
    semicolons = read_table(write(tmp_path, "\n".join(lines)), target="MW (g/mol), dry")
    tabs = read_table(write(tmp_path, "smiles\ty, z\nCCO\t1.5\nCC\t2.5\n"))
    lines = ["", " ", '"smiles";"y, of ""a"", b,', 'or c"', "CCO;1,5", "CC;2,5"]
    over_two = read_table(write(tmp_path, "\n".join(lines)))
    named = tmp_path / "a.tsv.gz"  # where commas are more than tabs
    named.write_bytes(gzip.compress(b"smiles\t1, 2, 3, 4\ty\nCCO\t,,,\t1.5\nCC\t,,,\t2.5\n"))
    by_name = read_table(named, target="y")
    for data, rows in ((semicolons, [3, 5]), (tabs, [2, 3]), (over_two, [5, 6]), (by_name, [2, 3])):
        assert data.rows.tolist() == rows
        assert data.arrays.y is not None
        assert data.arrays.y.tolist() == [[1.5], [2.5]]


def test_a_mark_of_utf8_is_known_also_in_a_packed_file(tmp_path: Path) -> None:
    text = "\ufeffsmiles,y\nCC,1\n".encode()
    for name, content in (("t.csv", text), ("t.csv.gz", gzip.compress(text))):
        (tmp_path / name).write_bytes(content)
        table = open_table(tmp_path / name)
        assert (table.header, table.marked) == (["smiles", "y"], True)
    assert not open_table(write(tmp_path, "smiles,y\nCC,1\n")).marked


def test_a_row_of_one_empty_cell_is_a_row(tmp_path: Path) -> None:
    """pandas writes a missing value so, where a blank line would be no row."""
    table = open_table(write(tmp_path, 'smiles\nCCO\n""\n\n  \nCC\n'))
    assert table.rows == [(2, ["CCO"]), (3, [""]), (6, ["CC"])]
    assert open_table(write(tmp_path, "smiles,y\n ,1\n")).rows == [(2, [" ", "1"])]


def test_damaged_files(tmp_path: Path) -> None:
    for name, content, message in (
        ("a.csv.gz", b"\x1f\x8b\x08 no", r"a.csv.gz cannot be read: Compressed file ended bef"),
        ("a.parquet", b"PAR1 no", "cannot be read as parquet"),
        ("a.parquet", b"smiles,y\nC,1\n", "let its name end in .csv or .tsv if it is text"),
        ("a.csv", b"smiles,y\nC,1\nC\xff,2\n", "line 3: not UTF-8"),
        ("a.csv", b"smiles,y\nC\x00,1\n", "line 2: a zero byte, not text; save it as UTF-8"),
        ("a.csv", b"\x00\nsmiles,y\nC,1\n", "line 1: a zero byte, not text; save it as UTF-8"),
        ("a.csv", "smiles,y\nC,1\n".encode("utf-16"), "seems to be UTF-16 text; save it as UTF-8"),
        ("a.csv", b"PK\x03\x04\x14\x00", r"seems to be a spreadsheet \(.xlsx\)"),
        ("a.csv", b"PAR1\x15\x00", "seems to be a parquet file; let its name end in .parquet"),
        ("a.csv", b"\x1f\x8b\x08\x00", "seems to be packed by gzip; let its name end in .gz"),
        ("a.xlsx", b"", "is not a table"),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(InputError, match=message):
            read_table(path)
    with pytest.raises(InputError, match=r"absent\.csv cannot be read: No such file or directory$"):
        read_table(tmp_path / "absent.csv")


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pyarrow", "fastparquet"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=r"pip install 'gradformer\[parquet\]'"):
        read_table(write(tmp_path, "", "a.parquet"))


def test_whole_numbers_of_parquet_stay_as_they_are_beside_a_gap(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    numbers = [2**53 + 1, None, 12345]
    table = pa.table({"smiles": ["C", "CC", "CCC"], "id": pa.array(numbers, pa.int64())})
    parquet.write_table(table, tmp_path / "a.parquet")
    rows = open_table(tmp_path / "a.parquet").rows
    assert [cells[1] for _, cells in rows] == ["9007199254740993", "", "12345"]


@pytest.mark.parametrize(
    ("name", "text", "header"),
    [
        ("a.tsv.csv", "smiles,y\nC,1\n", ["smiles", "y"]),
        ("A.TSV", "smiles\tx,y,z\nC\t1,2,3\n", ["smiles", "x,y,z"]),
    ],
)
def test_the_last_ending_of_a_name_tells_the_separator(
    tmp_path: Path, name: str, text: str, header: list[str]
) -> None:
    assert open_table(write(tmp_path, text, name)).header == header
