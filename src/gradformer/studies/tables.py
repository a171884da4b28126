"""What was measured as rows of text: the paper beside ours, differences, protocol, what is missing.

Every number comes from the files of the cells or from ``paper.yaml``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from gradformer.grouping import grouped
from gradformer.report.scales import signed
from gradformer.report.settings import machine, protocol
from gradformer.studies.differences import difference
from gradformer.studies.paper import printed
from gradformer.studies.study import Cell, Measured, Rows, Study
from gradformer.training.metrics import metric_label
from gradformer.training.records import environments

_SHOWN = ("device", "threads", "python", "torch", "triton", "gradformer", "commit")


def shown(outcome: dict[str, Any]) -> tuple[float, int]:
    """Factor and decimals of a printed value: shares in percent, errors as they are."""
    return (1.0, 4) if outcome["lower_is_better"] else (100.0, 2)


def value(outcome: dict[str, Any], part: str = "test") -> str:
    """Mean ± standard deviation of the values on a part.

    >>> value({"lower_is_better": False, "test": {"mean": 0.8601, "std": 0.0147}})
    '86.01 ± 1.47'
    """
    factor, places = shown(outcome)
    mean, std = outcome[part]["mean"], outcome[part]["std"]
    text = f"{factor * mean:.{places}f}"
    return text if std is None else f"{text} ± {factor * std:.{places}f}"


def results(study: Study, measured: Sequence[Measured], sizes: bool = True) -> Rows:
    """One row for each cell that has a result; columns without a value are left out.

    Where several models are compared, and with ``sizes``, it is said how large they are.
    """
    head = ["data", "model", "metric", "ours", "paper", "seeds", "parameters"]
    head.append("difference (95 % interval)")
    scored = [(one, one.outcome) for one in measured if one.outcome and not one.cell.cost]
    groups = grouped(((one.cell.column, one.cell.group), one) for one, _ in scored)
    sized = sizes and len({one.cell.model for one, _ in scored}) > 1
    rows = []
    for one, outcome in scored:
        cell = one.cell
        first = _leader(groups[cell.column, cell.group])
        rows.append(
            [
                cell.column,
                cell.row,
                metric_label(outcome["metric"]),
                value(outcome),
                printed(study.printed or study.name, cell.printed, cell.column) or "–",
                str(len(outcome["test"]["values"])),
                f"{count:,}" if sized and (count := parameters(outcome)) else "–",
                "–" if first is None else apart(first, one),
            ]
        )
    kept = [k for k in range(len(head)) if any(row[k] != "–" for row in rows)]
    return [head[k] for k in kept], [[row[k] for k in kept] for row in rows]


def _leader(some: Sequence[Measured]) -> Measured | None:
    """The run that the others of a group are set beside: the first of several seeds, else the
    first."""
    runs = [one for one in some if one.history is not None and len(some) > 1]
    several = [one for one in runs if len(one.known["test"]["values"]) > 1]
    return next(iter(several or runs), None)


def parameters(outcome: dict[str, Any]) -> int:
    """The size of a model; 0 of what has none."""
    return max(trial.get("parameters", 0) for trial in outcome["trials"])


def apart(first: Measured, other: Measured) -> str:
    """Other − first as text, with its confidence interval."""
    if other is first:
        return "others − this"
    runs = [one.history.run.folder for one in (first, other) if one.history is not None]
    if len(runs) == 2 and runs[0] == runs[1]:
        return "the same run"
    found = difference(first, other)
    if found is None:
        return "–"
    factor, places = shown(other.known)
    text = signed(factor * found.mean, places)
    if found.reach is not None:
        ends = (factor * (found.mean + sign * found.reach) for sign in (-1, 1))
        text += f" ({' … '.join(signed(end, places) for end in ends)})"
    return text


def missing(measured: Sequence[Measured], failed: dict[Cell, str]) -> list[str]:
    """A line for each reason, with the cells it holds for: rows on the columns they share."""
    reasons = grouped((failed.get(one.cell) or one.missing, one.cell) for one in measured)
    reasons.pop("", None)
    found = []
    for reason, cells in reasons.items():
        columns = grouped((cell.row, cell.column) for cell in cells)
        rows = grouped((" / ".join(names), row) for row, names in columns.items())
        text = "; ".join(f"{' / '.join(group)} on {names}" for names, group in rows.items())
        found.append(f"{reason} ({len(cells)} of {len(measured)}): {text}")
    return found


def protocols(measured: Sequence[Measured]) -> list[str]:
    """How the numbers came about: what holds for all, then the rest of each group of cells."""
    facts = [
        (one.cell, protocol(one.history))
        for one in measured
        if one.history is not None and one.history.header
    ]
    common = [
        fact for _, first in facts[:1] for fact in first if all(fact in own for _, own in facts)
    ]
    rest = _shared(
        (cell, _list([fact for fact in own if fact not in common])) for cell, own in facts
    )
    return [text for text in (_list(common), *rest) if text]


def _list(facts: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name}: {text}" for name, text in facts)


def machines(measured: Sequence[Measured]) -> list[str]:
    """Devices, versions and commits, said once for all cells that share them."""
    found = []
    for one in measured:
        if one.history is not None:
            around = machine(environments(one.history.record))
        else:
            around = machine([one.outcome["environment"]] if one.outcome else [])
        if around:
            words = (f"{name} {around[name]}" for name in _SHOWN if name in around)
            found.append((one.cell, ", ".join(words)))
    return _shared(found)


def _shared(said: Iterable[tuple[Cell, str]]) -> list[str]:
    """Each text once, after the cells it holds for; cells without a text are left out."""
    by_text = grouped((text, cell) for cell, text in said)
    if len(by_text) == 1:
        return list(by_text)
    found = []
    for text, cells in by_text.items():
        others = {cell.column for other in by_text.values() if other is not cells for cell in other}
        names = (f"{c.row} on {c.column}" if c.column in others else c.column for c in cells)
        if text:
            found.append(f"{'; '.join(dict.fromkeys(names))}: {text}")
    return found


def markdown_table(rows: Rows) -> str:
    """The spaces inside of a value do not break, so that it stays on one line of its cell."""
    head, body = rows
    lines = [head, ["---"] * len(head), *([unbroken(cell) for cell in line] for line in body)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def unbroken(text: str) -> str:
    """Signs between numbers, and arrows, tied to what they belong to.

    >>> unbroken("accuracy ↑"), unbroken("−0.44 (−1.72 … +0.85)")
    ('accuracy\\xa0↑', '−0.44 (−1.72\\xa0…\\xa0+0.85)')
    """
    return re.sub(r" (?=[±…−↑↓](?: |$)|σ)|(?<= [±…−]) ", "\N{NO-BREAK SPACE}", text)
