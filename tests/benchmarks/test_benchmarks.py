"""The benchmarks that need no GPU run, and write their records."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "benchmarks"


def run(tmp_path: Path, script: str, *options: str) -> dict[str, Any]:
    record = tmp_path / "record.json"
    command = [sys.executable, str(FOLDER / script), *options, "--json", str(record)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return dict(json.loads(record.read_text()))


def test_models(tmp_path: Path) -> None:
    options = ("--datasets", "zinc", "--models", "gradformer", "gcn", "--steps", "2")
    found = run(tmp_path, "models.py", *options)
    assert [row["model"] for row in found["rows"]] == ["gradformer", "gcn"]
    assert all(row["ms"] > 0 and row["parameters"] > 300_000 for row in found["rows"])
    assert found["versions"]["torch"]
    assert found["cores"] >= 1


def test_cpu(tmp_path: Path) -> None:
    (row,) = run(tmp_path, "cpu.py", "--cases", "nci1", "--steps", "1")["rows"]
    assert row["ours_ms"] > 0
    assert row["ratio"] == row["pyg_ms"] / row["ours_ms"]
    assert (row["threads"], row["side_by_side"]) == (1, 2)
    assert row["side_by_side_ms"] > 0
