"""Write the tables of the README from the records in ``results/``: ``python docs/tables.py``.

A number that was not measured is not there. ``results/`` holds runs (folders with ``recipe.yaml``
and ``results.json``) and what ``benchmarks/training.py`` and ``benchmarks/attention.py`` wrote.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
README = ROOT / "README.md"
# Gradformer's rows of the paper's tables; percent where the metric is a share.
PAPER = {
    "nci1": "86.01 ± 1.47",
    "proteins": "77.50 ± 1.86",
    "mutag": "88.00 ± 2.45",
    "collab": "82.01 ± 1.06",
    "imdb-binary": "77.10 ± 0.54",
    "pattern": "86.89 ± 0.07",
    "cluster": "78.55 ± 0.16",
    "molhiv": "79.15 ± 0.89",
    "zinc": "0.069 ± 0.002",
    "cora": "81.69 ± 1.21",
    "citeseer": "71.62 ± 2.80",
    "actor": "33.63 ± 0.75",
}
ABSENT = "*No record yet.*"


def results_table(folder: Path = RESULTS) -> str:
    """One line for each measured run, the paper's Gradformer beside ours."""
    rows = []
    for path in sorted(folder.rglob("results.json")):
        if not (path.parent / "recipe.yaml").is_file():
            continue
        recipe = yaml.safe_load((path.parent / "recipe.yaml").read_text(encoding="utf-8"))
        outcome = json.loads(path.read_text(encoding="utf-8"))
        if outcome["test"]["mean"] is None:
            continue
        dataset, model = recipe["dataset"], recipe["model"]["name"]
        paper = PAPER.get(dataset, "–") if model == "gradformer" else "–"
        where = path.parent.relative_to(folder.parent).as_posix()
        rows.append(
            f"| {dataset} | {model} | {_metric(outcome)} | {_value(outcome)} | {paper} | "
            f"{len(outcome['test']['values'])} | [record]({where}) |"
        )
    if not rows:
        return ABSENT
    head = "| dataset | model | metric | test | paper | seeds | |\n|---|---|---|---:|---:|---:|---|"
    return "\n".join([head, *rows])


def speed_table(folder: Path = RESULTS) -> str:
    """Training steps and the operation alone, each with its peers from the same run."""
    parts = [
        text
        for name, make in (("training.json", _training), ("attention.json", _attention))
        for text in [_from(folder / name, make)]
        if text
    ]
    return "\n\n".join(parts) if parts else ABSENT


def _from(path: Path, make: Any) -> str:
    return make(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else ""


def _training(record: dict[str, Any]) -> str:
    by_case = defaultdict(list)
    for row in record["rows"]:
        by_case[row["case"]].append(row)
    lines = [
        f"Milliseconds of one training step of one model, {record['device']}, torch "
        f"{record['torch']} (`benchmarks/training.py`):\n",
        "| case | who | ms | times as fast |",
        "|---|---|---:|---:|",
    ]
    for case, rows in by_case.items():
        peer = next((row["ms"] for row in rows if row["who"] == "authors' way"), None)
        for row in rows:
            ratio = "–" if peer is None else f"{peer / row['ms']:.1f}"
            lines.append(f"| {case} | {row['who']} | {row['ms']:.3f} | {ratio} |")
    return "\n".join(lines)


def _attention(record: dict[str, Any]) -> str:
    lines = [
        f"Milliseconds of the attention alone, forward and backward, {record['device']} "
        "(`benchmarks/attention.py`):\n",
        "| case | who | ms | peak MiB |",
        "|---|---|---:|---:|",
    ]
    for case, rows in record["cases"].items():
        for who, row in rows.items():
            if "failed" in row:
                lines.append(f"| {case} | {who} | fails | |")
                continue
            lines.append(
                f"| {case} | {who} | {row.get('graph', row['eager']):.4f} | {row['peak']:.1f} |"
            )
    return "\n".join(lines)


def _metric(outcome: dict[str, Any]) -> str:
    return f"{outcome['metric']} {'↓' if outcome['lower_is_better'] else '↑'}"


def _value(outcome: dict[str, Any]) -> str:
    """Errors as they are, shares in percent."""
    scale, places = (1, 4) if outcome["lower_is_better"] else (100, 2)
    mean, std = outcome["test"]["mean"], outcome["test"]["std"]
    text = f"{scale * mean:.{places}f}"
    return text if std is None else f"{text} ± {scale * std:.{places}f}"


def fill(text: str, folder: Path = RESULTS) -> str:
    """``text`` with its marked blocks made anew."""
    for name, table in (("results", results_table(folder)), ("speed", speed_table(folder))):
        block = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        assert block.search(text), f"README.md has no block {name}"
        text = block.sub(lambda found, new=table: f"{found[1]}{new}\n{found[2]}", text)
    return text


if __name__ == "__main__":
    README.write_text(fill(README.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{README.name} is filled from {RESULTS.name}/")
