"""The numbers of ``paper.yaml`` are those of the paper's source, row by row."""

from __future__ import annotations

import re

import pytest

from gradformer.studies import STUDIES
from gradformer.studies.paper import printed, tables
from tests.conftest import shared_path

NAMES = {"lgi_gt": "LGI-GT", "graphgps": "GraphGPS", "gradformer": "[Oo]urs"}
NAMES |= {"gatedgcn": "GatedGCN", "graphormer": "Graphormer", "graphtrans": "GraphTrans"}
NAMES |= {"deepgraph": "DeepGraph"}


def rows_of(label: str) -> list[str]:
    """The rows of a table without what only sets type: a mean is followed by ``footnote``, if it
    has one, ``±`` and its std."""
    source = shared_path("paper", "gradformer_ijcai24.tex").read_text(encoding="utf-8")
    end = source.index(rf"\label{{{label}}}")
    table = source[source.rindex(r"\begin{table", 0, end) : end]
    table = re.split(r"\\toprule|\\hline", table, maxsplit=1)[1]
    table = re.sub(r"\\begin\{tcolorbox\}.*?\\end\{tcolorbox\}", "", table, flags=re.DOTALL)
    table = re.sub(r"\\color\[HTML\]\{\w+\}|\\cite\{\S+?\}", "", table)
    table = re.sub(r"\\(textbf|underline|tiny|quad)\b|\\multicolumn\{1\}\{l\}|\^", "", table)
    table = re.sub(r"\*+", " footnote ", table)
    table = re.sub(r"[{}$~]", "", table).replace(r"\pm", "±")
    return [" ".join(row.split()) for row in table.split(r"\\") if "&" in row]


def numbers(row: str) -> list[str]:
    found = re.findall(r"(\d+\.\d+)( footnote)?\s*(?:_\s*±\s*(\d+\.\d+))?", row)
    return [(f"{mean} ± {std}" if std else mean) + mark for mean, mark, std in found]


@pytest.mark.parametrize("table", tables())
def test_rows_are_the_papers(table: str) -> None:
    rows = rows_of(tables()[table]["label"])
    source = [numbers(row) for row in rows if numbers(row)]
    typed = []
    for name, row in tables()[table]["rows"].items():
        values = [re.sub(r"\(.+\)", "footnote", value) for value in row.values()]
        size = {"deep": 3, "low-resource": 4}.get(table, len(values))
        for first in range(0, len(values), size):
            part = values[first : first + size]
            typed.append(part)
            model = name.split(" ")[0]
            title = "w/o" if " without" in name else NAMES.get(model, model.upper())
            assert any(numbers(r) == part and re.search(title, r) for r in rows), (name, part)
    assert len(typed) == len(source)


def test_columns_are_cells() -> None:
    """What is typed can stand beside something: no column or row is misspelt."""
    for table, content in tables().items():
        study = STUDIES[table]
        models = {row.split(" ")[0] for row in content["rows"]}
        cells = study.cells(study.datasets, sorted(models))
        known = {(cell.printed, cell.column) for cell in cells}
        for row, columns in content["rows"].items():
            for column in columns:
                assert (row, column) in known
                assert printed(table, row, column) == columns[column]
