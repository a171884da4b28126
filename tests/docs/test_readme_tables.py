"""The README's numbers are those of the records, and its picture is what our code draws."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

from tests.conftest import ROOT


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_readme_is_filled_from_the_records() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert _script("tables").fill(text) == text, "run: make tables"


def test_records_become_rows(tmp_path: Path) -> None:
    tables = _script("tables")
    assert tables.results_table(tmp_path / "results") == tables.ABSENT
    run = tmp_path / "results" / "zinc"
    run.mkdir(parents=True)
    (run / "recipe.yaml").write_text("dataset: zinc\nmodel: {name: gradformer}\n")
    outcome = {"metric": "mae", "lower_is_better": True}
    outcome |= {"test": {"mean": 0.08, "std": 0.001, "values": [0.079, 0.081]}}
    (run / "results.json").write_text(json.dumps(outcome))
    row = tables.results_table(tmp_path / "results").splitlines()[-1]
    assert "0.0800 ± 0.0010" in row
    assert "0.069 ± 0.002" in row
    assert "(results/zinc)" in row
    record = {"device": "a GPU", "torch": "2", "rows": []}
    record["rows"] += [{"case": "zinc", "who": "authors' way", "ms": 60.0}]
    record["rows"] += [{"case": "zinc", "who": "ours, 1 trials", "ms": 2.0}]
    (tmp_path / "results" / "training.json").write_text(json.dumps(record))
    assert "| zinc | ours, 1 trials | 2.000 | 30.0 |" in tables.speed_table(tmp_path / "results")


def test_the_picture_is_ours() -> None:
    drawn = (ROOT / "docs" / "assets" / "decay.svg").read_text(encoding="utf-8")
    assert _script("picture").picture() == drawn, "run: make tables"
