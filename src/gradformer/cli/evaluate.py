"""``gradformer evaluate``: the scores of a run, on its own data or on others."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from gradformer.cli.complete import choices, data_names
from gradformer.cli.options import Inference, NewFile, RunFolder
from gradformer.cli.tables import print_title, ruled_table, show
from gradformer.errors import counted


def evaluate(
    folder: RunFolder,
    *,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="DATASET|FILE",
            help="Other data (default: the run's own).",
            autocompletion=data_names,
        ),
    ] = None,
    part: Annotated[
        str,
        typer.Option(
            help="train, val or test; a file is scored whole.",
            autocompletion=choices("train", "val", "test"),
        ),
    ] = "test",
    read: NewFile,
    by_target: Annotated[
        bool, typer.Option("--by-target", help="Score every target by itself.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: a list of trials.")] = False,
    use: Inference,
) -> None:
    """Score a run: every metric of its task, mean ± standard deviation over its trials.

    Example: [bold]gradformer evaluate runs/mine[/bold]

    Example: [bold]gradformer evaluate runs/mine --on new.csv --by-target[/bold]
    """
    from gradformer.graphs.cards import is_card
    from gradformer.training.files import plain
    from gradformer.training.run import Run

    run = Run.load(folder)
    score: Any = run.evaluate_targets if by_target else run.evaluate
    found = score(on, part=part, **vars(use), **read.options())
    if as_json:
        typer.echo(json.dumps(plain(found)))
        return
    whole = on is not None and not is_card(on)
    where = on or run.recipe.dataset
    print_title(str(folder), where if whole else f"{part} part of {where}")
    head, rows = _rows(found, by_target)
    table = ruled_table(*head)
    for row in rows:
        table.add_row(*row)
    show(table)


def _rows(found: Any, by_target: bool) -> tuple[list[str], list[list[str]]]:
    """Head and rows: one for each target, or for each metric."""
    from gradformer.report.scales import spread
    from gradformer.training.metrics import metric_label

    def texts(trials: list[dict[str, float]]) -> dict[str, str]:
        return {metric_label(m): spread([one[m] for one in trials]) for m in trials[0]}

    if not by_target:
        return ["metric", counted(len(found), "trial")], [*map(list, texts(found).items())]
    rows = {target: texts(trials) for target, trials in found.items()}
    (first, *_) = rows.values()
    return ["target", *first], [[name, *own.values()] for name, own in rows.items()]
