"""The numbers on the pages are those of the records, and the picture is what our code draws."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from statistics import mean

import pytest

from gradformer.studies.study import Measured, Plan, Study
from tests.conftest import ROOT, docs_script


@pytest.mark.parametrize(
    ("page", "blocks"),
    [
        ("README.md", ["results", "speed"]),
        ("docs/speed.md", ["speed", "variants", "steps", "cpu", "models"]),
        ("docs/recipes.md", ["options"]),
    ],
)
def test_the_tables_of_a_page_are_those_of_records_and_code(page: str, blocks: list[str]) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert docs_script("tables").fill(text) == text, "run: make tables"
    assert all(f"<!-- {name} -->\n" in text for name in blocks)


def test_no_record_names_the_folder_of_raw_files() -> None:
    """It is of one machine: elsewhere ``GRADFORMER_DATA`` says where they are."""
    kept = sorted((ROOT / "results").rglob("data.json"))
    assert kept
    assert [path for path in kept if json.loads(path.read_text())["origin"].get("mirror")] == []


def test_a_model_is_a_column_of_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen(study: Study, plan: Plan, root: Path) -> list[Measured]:
        cells = study.cells(plan.datasets, plan.models)
        return [Measured(cell, outcomes.get(cell.row)) for cell in cells]

    values = {"gradformer (paper)": [0.08] * 10, "gin": [0.07], "gcn": [0.2, 0.4]}
    outcomes = {
        row: {
            "metric": "mae",
            "lower_is_better": True,
            "test": {"mean": mean(found), "std": 0.001 if found[1:] else None, "values": found},
        }
        for row, found in values.items()
    }
    tables, plan = docs_script("tables"), Plan(("zinc",), ("gradformer", "gin", "gcn"))
    monkeypatch.setattr(tables, "look", seen)
    (tmp_path / "studies" / "table1").mkdir(parents=True)
    (tmp_path / "studies" / "table1" / "plan.json").write_text(json.dumps(asdict(plan)))
    head, _, row = tables.results_table(tmp_path).splitlines()
    models = ["gradformer (paper)", "gin", "gcn"]
    assert [name.strip() for name in re.sub("<.*?>", " ", head).split("|")[3:-1]] == models
    plain = re.sub("(<.*?>)+|\N{NO-BREAK SPACE}", " ", row)
    cells = [cell.strip() for cell in plain.split("|")[1:-1]]
    ours, gcn = "**0.0800** ± 0.0010", "0.3000 ± 0.0010 2 seeds"
    assert cells == ["zinc MAE ↓", "0.069 ± 0.002", ours, "0.0700 1 seed", gcn]


def test_records_become_rows(tmp_path: Path) -> None:
    tables, results = docs_script("tables"), tmp_path / "results"
    assert tables.speed_table(results) == tables.ABSENT
    steps = [("authors' way", 60.0), ("ours, 1 trials", 2.0)]
    record = {"device": "a GPU", "torch": "2"}
    record |= {"rows": [{"case": "zinc", "who": who, "ms": ms} for who, ms in steps]}
    (results / "benchmarks").mkdir(parents=True)
    (results / "benchmarks" / "training-zinc.json").write_text(json.dumps(record))
    assert "| zinc | ours | 2.00 | 30.0 |" in tables.speed_table(results)
    record = {"device": "a GPU", "torch": "2", "cases": {"one": {"ours": {"eager": 3.0}}}}
    record["commits"] = {"one": "a1", "two": "b2"}
    record["cases"]["two"] = {
        "ours": {"eager": 3.0, "graph": 2.0},
        "FlexAttention": {"failed": "no"},
    }
    (results / "benchmarks" / "attention.json").write_text(json.dumps(record))
    text = tables.speed_table(results)
    assert "| one | 3.00 (eager) | – |" in text
    assert "`benchmarks/attention.py`, commit a1 and commit b2)" in text
    assert "| two | 2.00 | fails |" in text
    assert "| one | 3.00 (eager) | – | – | – | – |" in tables.variants_table(results)


def test_models_become_rows(tmp_path: Path) -> None:
    tables = docs_script("tables")
    assert tables.models_table(tmp_path) == tables.ABSENT
    rows = [
        {"dataset": "zinc", "model": "gcn", "layers": 16, "parameters": 505079, "ms": 1.5},
        {"dataset": "zinc", "model": "gt", "layers": 9, "parameters": 5, "ms": 2.0, "eager": "no"},
        {"dataset": "cluster", "model": "gt", "layers": 9, "parameters": 5, "ms": None},
    ]
    record = {"device": "a GPU", "torch": "2", "rows": [{"eager": None} | row for row in rows]}
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "models.json").write_text(json.dumps(record))
    first, second = tables.models_table(tmp_path).splitlines()[-2:]
    assert first == "| gcn | 16 | 505,079 | 1.50 | – | – | – |"
    assert second == "| gt | 9 | 5 | 2.00 (eager) | 9 | 5 | fails |"


def test_what_a_step_is_made_of(tmp_path: Path) -> None:
    tables = docs_script("tables")
    assert tables.steps_table(tmp_path) == tables.ABSENT
    profile = [{"kernel": "one", "count": 2, "us": 450.0}, {"kernel": "two", "count": 1, "us": 9.0}]
    row = {"case": "zinc", "kernels": 1234, "busy": 0.9, "ms": 1.0, "memory_gib": 0.5}
    (tmp_path / "benchmarks").mkdir()
    record = {"rows": [{"case": "zinc"}, row | {"profile": profile}]}
    (tmp_path / "benchmarks" / "training.json").write_text(json.dumps(record))
    (line,) = tables.steps_table(tmp_path).splitlines()[2:]
    assert line == "| zinc | 1,234 | 90% | 0.50 | `one` 50%, `two` 1% |"


def test_starts_and_padding(tmp_path: Path) -> None:
    tables = docs_script("tables")
    assert tables.start_table(tmp_path) == tables.padding_table(tmp_path) == tables.ABSENT
    made = {"device": "a GPU", "torch": "2", "commit": "c3", "cores": 4}
    start = made | {"rows": [{"case": "cluster", "trials": 10, "seconds": 56.78}]}
    row = {"data": "collab", "nodes": 1.5, "edges": 2.0, "ms": 2.0, "ms_own_capacity": 1.5}
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "cold_start.json").write_text(json.dumps(start))
    (tmp_path / "benchmarks" / "padding.json").write_text(json.dumps(made | {"rows": [row]}))
    assert tables.start_table(tmp_path).endswith("| cluster | 10 | 56.8 |")
    assert "commit c3, 4 cores" in tables.start_table(tmp_path)
    assert tables.padding_table(tmp_path).endswith("| collab | 1.50 | 2.00 | 2.00 | 1.50 |")


def test_the_picture_is_ours() -> None:
    drawn = (ROOT / "docs" / "assets" / "decay.svg").read_text(encoding="utf-8")
    assert docs_script("picture").picture() == drawn, "run: make tables"
