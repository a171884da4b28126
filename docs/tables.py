"""Write the tables of README and docs from what they are about: ``python docs/tables.py``.

A number that was not measured is not there. Results are runs under ``results/studies/table1`` and
``results/studies/nodes`` (``gradformer reproduce``), speeds what the scripts in ``benchmarks/``
wrote to ``results/benchmarks``, options those of the code.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import fields
from pathlib import Path
from typing import Any

from gradformer.report.scales import significant
from gradformer.studies import STUDIES
from gradformer.studies.paper import printed
from gradformer.studies.rivals import RIVALS
from gradformer.studies.runner import kept_plan, look
from gradformer.studies.tables import markdown_table, value
from gradformer.training.metrics import metric_name
from gradformer.training.sections import DataOptions, TrainOptions

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
PAGES = [ROOT / page for page in ("README.md", "docs/speed.md", "docs/recipes.md")]
PRINTED, NO_NETWORK, SEEDS = "the paper prints", "no network", 10
ABSENT = "*No record yet.*"
COLUMNS = (
    "ours",
    "ours + λ, sp",
    "SDPA, no mask",
    "eager, dense",
    "compiled, dense",
    "FlexAttention",
    "FlexAttention, d 16",
)
"""Of the attention benchmark; its record has more."""
LONGEST = 6
"""Kernels of a step that are named; its record has 25."""


def results_table(folder: Path = RESULTS) -> str:
    """A row for each dataset, a column for each model; the paper's Gradformer comes first.

    The best of our means is bold where there are several.
    """
    root, columns = folder / "studies", dict[str, bool]()  # name → whether there is a number
    rows = defaultdict[str, dict[str, str]](dict)
    means = defaultdict[str, dict[str, float]](dict)  # higher is better
    for study in (STUDIES["table1"], STUDIES["nodes"]):
        if (plan := kept_plan(study, root)) is None:
            continue
        for one in look(study, study.cells(plan.datasets, plan.models), plan, root):
            name = NO_NETWORK if one.cell.model in RIVALS else one.cell.row
            columns[name] = columns.get(name, False) or one.outcome is not None
            if one.outcome is not None:
                arrow = "↓" if one.outcome["lower_is_better"] else "↑"
                data = f"{one.cell.column}, {metric_name(one.outcome['metric'])} {arrow}"
                row, mean = rows[data], one.outcome["test"]["mean"]
                means[data][name] = -mean if arrow == "↓" else mean
                row[PRINTED] = printed(study.name, "gradformer", one.cell.column) or "–"
                seeds = len(one.outcome["test"]["values"])
                row[name] = value(one.outcome) + ("" if seeds == SEEDS else f" ({seeds} seeds)")
    if not rows:
        return ABSENT
    for data, own in means.items():
        for name in own if len(own) > 1 else ():
            if own[name] == max(own.values()):
                mean, *rest = rows[data][name].split(" (")
                rows[data][name] = " (".join([f"**{mean}**", *rest])
    names = [PRINTED, *(name for name, known in columns.items() if known)]
    body = [[data, *(row.get(name, "–") for name in names)] for data, row in rows.items()]
    return markdown_table((["data", *names], body))


def speed_table(folder: Path = RESULTS) -> str:
    """Training steps and the operation alone, each with its peers from the same run."""
    parts = []
    for kind, make in (("training", _training), ("attention", _attention)):
        for path in sorted((folder / "benchmarks").glob(f"{kind}*.json")):
            parts.append(make(json.loads(path.read_text(encoding="utf-8"))))
    return "\n\n".join(parts) if parts else ABSENT


def _training(record: dict[str, Any]) -> str:
    by_case = defaultdict(list)
    for row in record["rows"]:
        by_case[row["case"]].append(row)
    lines = [
        f"Milliseconds of one training step of one model ({_source(record, 'training')}; the "
        "authors' way is re-created in its essentials: PyG batches, dense padded attention):\n",
        "| case | who | ms | times as fast |",
        "|---|---|---:|---:|",
    ]
    for case, rows in by_case.items():
        peer = next((row["ms"] for row in rows if row["who"] == "authors' way"), None)
        for row in rows:
            ratio = "–" if peer is None else significant(peer / row["ms"])
            who = row["who"].replace(", 1 trials", "").replace(" trials", " trials side by side")
            lines.append(f"| {case} | {who} | {significant(row['ms'])} | {ratio} |")
    return "\n".join(lines)


def _attention(record: dict[str, Any]) -> str:
    known = {who for rows in record["cases"].values() for who in rows}
    columns = [who for who in COLUMNS if who in known]
    lines = [
        "Milliseconds of the attention alone, forward and backward, replayed as a CUDA graph "
        f"({_source(record, 'attention')}): N nodes, H heads of d channels. Ours + λ, sp: with "
        "gradients of λ and start points; SDPA without a mask is another, simpler function.\n",
        f"| case | {' | '.join(columns)} |",
        f"|---|{'---:|' * len(columns)}",
    ]
    for case, rows in record["cases"].items():
        cells = [_time(rows.get(who)) for who in columns]
        lines.append(f"| {case} | {' | '.join(cells)} |")
    return "\n".join(lines)


def steps_table(folder: Path = RESULTS) -> str:
    """What one trial's captured step is made of: kernels, how long the GPU works, on what."""
    record = _record(folder, "training")
    if record is None:
        return ABSENT
    lines = [
        "| case | kernels | GPU busy | GiB | of the busy time |",
        "|---|---:|---:|---:|---|",
    ]
    for row in record["rows"]:
        if "profile" not in row:
            continue
        busy = 1e3 * row["ms"] * row["busy"]
        parts = [f"`{one['kernel']}` {one['us'] / busy:.0%}" for one in row["profile"][:LONGEST]]
        lines.append(
            f"| {row['case']} | {row['kernels']:,} | {row['busy']:.0%} | {row['memory_gib']:.2f} "
            f"| {', '.join(parts)} |"
        )
    return "\n".join(lines)


def start_table(folder: Path = RESULTS) -> str:
    """Seconds until trials are ready in a process that has to compile every kernel."""
    record = _record(folder, "cold_start")
    if record is None:
        return ABSENT
    cores, source = record["cores"], _source(record, "training")
    lines = [
        "Seconds from the start of a process with no kernel compiled until the training steps of "
        f"its trials are recorded ({source}, {cores} cores):\n",
        "| case | trials | seconds |",
        "|---|---:|---:|",
    ]
    lines += [f"| {r['case']} | {r['trials']} | {r['seconds']:.1f} |" for r in record["rows"]]
    return "\n".join(lines)


def padding_table(folder: Path = RESULTS) -> str:
    """A step with the capacity of all its epoch's batches, and with each batch's own."""
    record = _record(folder, "padding")
    if record is None:
        return ABSENT
    lines = [
        f"Milliseconds of a step ({_source(record, 'padding')}):\n",
        "| data | nodes: capacity / mean | edges: capacity / mean | ms | own capacities: ms |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in record["rows"]:
        cells = (row["nodes"], row["edges"], row["ms"], row["ms_own_capacity"])
        lines.append(f"| {row['data']} | {' | '.join(f'{cell:.2f}' for cell in cells)} |")
    return "\n".join(lines)


def cpu_table(folder: Path = RESULTS) -> str:
    """A step on a CPU beside PyG's GPSConv."""
    record = _record(folder, "cpu")
    if record is None:
        return ABSENT
    lines = [
        f"Milliseconds of a training step on {record['threads']} threads, medians of steps that "
        f"alternate ({_source(record, 'cpu')}; load of the machine {record['load']:.1f}):\n",
        "| data | layers | convolution | GPSConv of PyG with | PyG | ours | times as fast |",
        "|---|---:|---|---|---:|---:|---:|",
    ]
    for row in record["rows"]:
        data = row["case"].split("-")[0]
        lines.append(
            f"| {data} | {row['layers']} | {row['local']} | {row['pyg_conv']} "
            f"| {row['pyg_ms']:.0f} | {row['ours_ms']:.0f} | {significant(row['ratio'])} |"
        )
    return "\n".join(lines)


def models_table(folder: Path = RESULTS) -> str:
    """A training step of every model, a group of columns for each dataset."""
    record = _record(folder, "models")
    if record is None:
        return ABSENT
    found = {(row["model"], row["dataset"]): row for row in record["rows"]}
    models, datasets = (dict.fromkeys(key[place] for key in found) for place in (0, 1))
    head = [f"{dataset}: {name}" for dataset in datasets for name in ("layers", "parameters", "ms")]
    lines = [
        f"Milliseconds of one training step ({_source(record, 'models')}). Every model has the "
        "options of its recipe, and all have the batch size of Gradformer's:\n",
        f"| model | {' | '.join(head)} |",
        f"|---|{'---:|' * len(head)}",
    ]
    for model in models:
        cells = [cell for dataset in datasets for cell in _step(found.get((model, dataset)))]
        lines.append(f"| {model} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _step(row: dict[str, Any] | None) -> tuple[str, str, str]:
    """Layers, parameters and time of a model's row, and what the others are not: eager, older."""
    if row is None:
        return "–", "–", "–"
    time = "fails" if row["ms"] is None else significant(row["ms"])
    how = " (eager)" if row["eager"] is not None and row["ms"] is not None else ""
    older = f" ({row['commit']})" if "commit" in row else ""
    return str(row["layers"]), f"{row['parameters']:,}", time + how + older


def _time(row: dict[str, Any] | None) -> str:
    if row is None:
        return "–"
    if "failed" in row:
        return "fails"
    return significant(row["graph"]) if "graph" in row else f"{significant(row['eager'])} (eager)"


def _record(folder: Path, name: str) -> dict[str, Any] | None:
    path = folder / "benchmarks" / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found or None


def _source(record: dict[str, Any], name: str) -> str:
    device = record.get("device_name", record["device"])
    version = record["versions"]["torch"] if "versions" in record else record["torch"]
    commits = dict.fromkeys(record.get("commits", {"": record.get("commit")}).values())
    made = " and ".join(f"commit {one[:7]}" for one in commits if one)
    return f"{device}, torch {version}, `benchmarks/{name}.py`{made and f', {made}'}"


def options_table() -> str:
    """Options of data and training with their defaults."""
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for section, kind in (("data", DataOptions), ("train", TrainOptions)):
        for each in fields(kind):
            default = str(each.default).lower()
            text = each.metadata["help"]
            lines.append(f"| `{section}.{each.name}` | `{default}` | {text} |")
    return "\n".join(lines)


def fill(text: str, folder: Path = RESULTS) -> str:
    """``text`` with its marked blocks made anew."""
    makers = {
        "results": lambda: results_table(folder),
        "speed": lambda: speed_table(folder),
        "steps": lambda: steps_table(folder),
        "models": lambda: models_table(folder),
        "start": lambda: start_table(folder),
        "padding": lambda: padding_table(folder),
        "cpu": lambda: cpu_table(folder),
        "options": options_table,
    }

    def make(found: re.Match[str]) -> str:
        name = found[1]
        return f"<!-- {name} -->\n{makers[name]()}\n<!-- /{name} -->"

    return re.sub(r"<!-- (\w+) -->\n.*?<!-- /\1 -->", make, text, flags=re.DOTALL)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(fill(page.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"{page.name} is filled")
