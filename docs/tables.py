"""Write the tables of README and docs from what they are about: ``python docs/tables.py``.

A number that was not measured is not there. Results are runs under ``results/studies/table1`` and
``results/studies/nodes`` (``gradformer reproduce``), speeds what the scripts in ``benchmarks/``
wrote to ``results/benchmarks``, options those of the code.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from gradformer.errors import counted
from gradformer.report.scales import significant
from gradformer.studies import STUDIES
from gradformer.studies.looking import kept_plan, look
from gradformer.studies.paper import printed
from gradformer.studies.rivals import RIVALS
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
VARIANTS = (
    "ours",
    "ours + dropout",
    "ours + λ, sp + dropout",
    "ours + table, 12 distances",
    "ours + table, 64 distances",
)
"""Of the same, what else training may ask of the operation."""
LONGEST = 6
"""Kernels of a step that are named; its record has 25."""
STEP = ("layers", "parameters", "ms")
"""Of each model and dataset."""

Record = dict[str, Any]
"""Of a benchmark, or a row of it."""


def results_table(folder: Path = RESULTS) -> str:
    """A row for each dataset, a column for each model; the paper's Gradformer comes first.

    The best of our means is bold where there are several, each over several seeds. Spreads stand
    below the means, so that the table is no wider than a page (830 pixels at GitHub).
    """
    root, columns = folder / "studies", dict[str, bool]()  # name → whether there is a number
    rows = defaultdict[str, dict[str, str]](dict)
    means = defaultdict[str, dict[str, float]](dict)  # higher is better
    for study in (STUDIES["table1"], STUDIES["nodes"]):
        if (plan := kept_plan(study, root)) is None:
            continue
        for one in look(study, plan, root):
            name = NO_NETWORK if one.cell.model in RIVALS else one.cell.row
            columns[name] = columns.get(name, False) or one.outcome is not None
            if one.outcome is not None:
                arrow = "↓" if one.outcome["lower_is_better"] else "↑"
                data = f"{one.cell.column}, {metric_name(one.outcome['metric'])} {arrow}"
                row, mean = rows[data], one.outcome["test"]["mean"]
                row[PRINTED] = printed(study.name, "gradformer", one.cell.column) or "–"
                seeds = len(one.outcome["test"]["values"])
                of = "" if seeds == SEEDS else f", {counted(seeds, 'seed')}"
                row[name] = value(one.outcome) + of
                if seeds > 1:
                    means[data][name] = -mean if arrow == "↓" else mean
    if not rows:
        return ABSENT
    for data, own in means.items():
        for name in own if len(own) > 1 else ():
            if own[name] == max(own.values()):
                mean, *rest = rows[data][name].split(" ", 1)
                rows[data][name] = " ".join([f"**{mean}**", *rest])
    names = [PRINTED, *(name for name, known in columns.items() if known)]
    head = [f"<sub>{name.replace(' (', '<br>(')}</sub>" for name in ("data", *names)]
    body = [[data, *(row.get(name, "–") for name in names)] for data, row in rows.items()]
    return markdown_table((head, [[_narrow(cell) for cell in row] for row in body]))


def _narrow(cell: str) -> str:
    """What follows the mean, or the name of the data, in small lines below it."""
    first, *below = cell.replace(" ±", ", ±").split(", ")
    lines = re.sub(r"(?<=[±\d]) ", "\N{NO-BREAK SPACE}", "<br>".join(below))
    return f"{first}<br><sub>{lines}</sub>" if below else first


def speed_table(folder: Path = RESULTS) -> str:
    """Training steps and the operation alone, each with its peers from the same run."""
    parts = []
    for kind, make in (("training", _training), ("attention", _attention)):
        for path in sorted((folder / "benchmarks").glob(f"{kind}*.json")):
            parts.append(make(json.loads(path.read_text(encoding="utf-8"))))
    return "\n\n".join(parts) if parts else ABSENT


def _training(record: Record) -> str:
    peers = {row["case"]: row["ms"] for row in record["rows"] if row["who"] == "authors' way"}
    rows = []
    for row in record["rows"]:
        case, ms = row["case"], row["ms"]
        who = row["who"].replace(", 1 trials", "").replace(" trials", " trials side by side")
        ratio = significant(peers[case] / ms) if case in peers else "–"
        rows.append([case, who, significant(ms), ratio])
    return _table(
        ["case", "who", "ms:", "times as fast:"],
        rows,
        f"Milliseconds of one training step of one model ({_source(record, 'training')}; the "
        "authors' way is re-created in its essentials: PyG batches, dense padded attention):",
    )


def _attention(record: Record) -> str:
    known = {who for rows in record["cases"].values() for who in rows}
    columns = [who for who in COLUMNS if who in known]
    return _table(
        ["case", *(f"{who}:" for who in columns)],
        [[case, *(_time(rows.get(who)) for who in columns)]
         for case, rows in record["cases"].items()],
        "Milliseconds of the attention alone, forward and backward, replayed as a CUDA graph "
        f"({_source(record, 'attention')}): N nodes, H heads of d channels. Ours + λ, sp: with "
        "gradients of λ and start points; SDPA without a mask is another, simpler function.",
    )  # fmt: skip


def _of_record(name: str) -> Callable[[Callable[[Record], str]], Callable[[Path], str]]:
    """A table of one benchmark's record, by the folder that has it or has none."""

    def mark(make: Callable[[Record], str]) -> Callable[[Path], str]:
        def table(folder: Path = RESULTS) -> str:
            path = folder / "benchmarks" / f"{name}.json"
            return make(json.loads(path.read_text("utf-8"))) if path.is_file() else ABSENT

        return table

    return mark


@_of_record("attention")
def variants_table(record: Record) -> str:
    """The operation alone, with dropout and with gradients of whole tables."""
    rows = [
        [case, *(_time(rows.get(who)) for who in VARIANTS)]
        for case, rows in record["cases"].items()
    ]
    return _table(["case", *(f"{who}:" for who in VARIANTS)], rows)


@_of_record("training")
def steps_table(record: Record) -> str:
    """What one trial's captured step is made of: kernels, how long the GPU works, on what."""
    rows = []
    for row in record["rows"]:
        if "profile" in row:
            busy = 1e3 * row["ms"] * row["busy"]
            longest = row["profile"][:LONGEST]
            parts = [f"`{one['kernel']}` {one['us'] / busy:.0%}" for one in longest]
            cells = [f"{row['kernels']:,}", f"{row['busy']:.0%}", f"{row['memory_gib']:.2f}"]
            rows.append([row["case"], *cells, ", ".join(parts)])
    return _table(["case", "kernels:", "GPU busy:", "GiB:", "of the busy time"], rows)


@_of_record("cold_start")
def start_table(record: Record) -> str:
    """Seconds until trials are ready in a process that has to compile every kernel."""
    return _table(
        ["case", "trials:", "seconds:"],
        [[r["case"], str(r["trials"]), f"{r['seconds']:.1f}"] for r in record["rows"]],
        "Seconds from the start of a process with no kernel compiled until the training steps of "
        f"its trials are recorded ({_source(record, 'training')}, {record['cores']} cores):",
    )


@_of_record("padding")
def padding_table(record: Record) -> str:
    """A step with the capacity of all its epoch's batches, and with each batch's own."""
    head = ["nodes: capacity / mean:", "edges: capacity / mean:", "ms:", "own capacities: ms:"]
    names = ("nodes", "edges", "ms", "ms_own_capacity")
    rows = [[row["data"], *(f"{row[name]:.2f}" for name in names)] for row in record["rows"]]
    return _table(["data", *head], rows, f"Milliseconds of a step ({_source(record, 'padding')}):")


@_of_record("cpu")
def cpu_table(record: Record) -> str:
    """A step on a CPU beside PyG's GPSConv."""
    head = ["data", "layers:", "convolution", "GPSConv of PyG with", "threads: PyG / ours:"]
    rows = []
    for row in record["rows"]:
        names = [row["case"].split("-")[0], str(row["layers"]), row["local"], row["pyg_conv"]]
        times = [f"{row['pyg_ms']:.0f}", f"{row['ours_ms']:.0f}", significant(row["ratio"])]
        threads = f"{row['pyg_threads']} / {row['threads']}"
        beside = row["side_by_side_ms"]
        rows.append([*names, threads, *times, "–" if beside is None else f"{beside:.0f}"])
    more = ["PyG:", "ours:", "times as fast:", f"{record['cores']} trials side by side: each:"]
    return _table(
        [*head, *more],
        rows,
        f"Milliseconds of a training step on {record['cores']} cores, medians of steps that "
        f"alternate ({_source(record, 'cpu')}; load of the machine {record['load']:.1f}):",
    )


@_of_record("models")
def models_table(record: Record) -> str:
    """A training step of every model, a group of columns for each dataset."""
    found = {(row["model"], row["dataset"]): row for row in record["rows"]}
    models, datasets = (dict.fromkeys(key[place] for key in found) for place in (0, 1))
    return _table(
        ["model", *(f"{data}: {name}:" for data in datasets for name in STEP)],
        [[model, *(cell for data in datasets for cell in _step(found.get((model, data))))]
         for model in models],
        f"Milliseconds of one training step ({_source(record, 'models')}). Every model has the "
        "options of its recipe, and all have the batch size of Gradformer's:",
    )  # fmt: skip


def _step(row: Record | None) -> tuple[str, str, str]:
    """What :data:`STEP` names of a model's row, and that it is eager, where it is."""
    if row is None:
        return "–", "–", "–"
    time = "fails" if row["ms"] is None else significant(row["ms"])
    how = " (eager)" if row["eager"] is not None and row["ms"] is not None else ""
    return str(row["layers"]), f"{row['parameters']:,}", time + how


def _time(row: Record | None) -> str:
    if row is None:
        return "–"
    if "failed" in row:
        return "fails"
    return significant(row["graph"]) if "graph" in row else f"{significant(row['eager'])} (eager)"


def _source(record: Record, name: str) -> str:
    device = record.get("device_name", record["device"])
    version = record["versions"]["torch"] if "versions" in record else record["torch"]
    commits = dict.fromkeys(record.get("commits", {"": record.get("commit")}).values())
    made = " and ".join(f"commit {one[:7]}" for one in commits if one)
    return f"{device}, torch {version}, `benchmarks/{name}.py`{made and f', {made}'}"


def _table(columns: list[str], rows: list[list[str]], above: str = "") -> str:
    """A table under a sentence; names of columns that end in a colon have numbers below them."""
    marks = "|".join("---:" if name.endswith(":") else "---" for name in columns)
    lines = [[name.removesuffix(":") for name in columns], *rows]
    head, *body = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([*([f"{above}\n"] if above else []), head, f"|{marks}|", *body])


def options_table() -> str:
    """Options of data and training with their defaults."""
    rows = [
        [f"`{section}.{each.name}`", f"`{str(each.default).lower()}`", each.metadata["help"]]
        for section, kind in (("data", DataOptions), ("train", TrainOptions))
        for each in fields(kind)
    ]
    return _table(["option", "default", "meaning"], rows)


def fill(text: str) -> str:
    """``text`` with its marked blocks made anew."""
    makers: dict[str, Callable[[Path], str]] = {
        "results": results_table,
        "speed": speed_table,
        "variants": variants_table,
        "steps": steps_table,
        "models": models_table,
        "start": start_table,
        "padding": padding_table,
        "cpu": cpu_table,
        "options": lambda _: options_table(),
    }

    def make(found: re.Match[str]) -> str:
        name = found[1]
        return f"<!-- {name} -->\n{makers[name](RESULTS)}\n<!-- /{name} -->"

    return re.sub(r"<!-- (\w+) -->\n.*?<!-- /\1 -->", make, text, flags=re.DOTALL)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(fill(page.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"{page.name} is filled")
