"""Options that several verbs share, and the smoke switch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from gradformer.cli.complete import choices, data_names, model_names

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")]
NewData = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="Table with SMILES, JSON lines of graphs, TU folder, or the name of a benchmark.",
        autocompletion=data_names,
    ),
]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        help="auto, cpu, cuda or cuda:1.",
        rich_help_panel="Machine",
        autocompletion=choices("auto", "cpu", "cuda"),
    ),
]
Mirror = Annotated[
    Path | None,
    typer.Option(
        "--data",
        envvar="GRADFORMER_DATA",
        help="Folder with raw files of benchmarks.",
        rich_help_panel="Machine",
    ),
]
BatchSize = Annotated[
    int, typer.Option("--batch-size", min=1, help="Graphs at once.", rich_help_panel="Machine")
]
Smiles = Annotated[
    str | None,
    typer.Option(
        help="Column of the SMILES (default: found by its name).", rich_help_panel="Your own data"
    ),
]
Target = Annotated[
    list[str] | None,
    typer.Option(
        help="Column to learn; repeat it for several.",
        rich_help_panel="Your own data",
    ),
]
Task = Annotated[
    str | None,
    typer.Option(
        help="regression, binary, multiclass, multilabel or classification (default: found).",
        autocompletion=choices(
            "regression", "binary", "multiclass", "multilabel", "classification"
        ),
        rich_help_panel="Your own data",
    ),
]
Level = Annotated[
    str | None,
    typer.Option(
        help="graph or node: what is predicted.",
        rich_help_panel="Your own data",
        autocompletion=choices("graph", "node"),
    ),
]
SplitColumn = Annotated[
    str | None,
    typer.Option(
        help="Column that says train, val or test; with --split column.",
        rich_help_panel="Your own data",
    ),
]
SkipInvalid = Annotated[
    bool,
    typer.Option(
        "--skip-invalid",
        help="Leave out rows that cannot be read, and list them.",
        rich_help_panel="Your own data",
    ),
]
Split = Annotated[
    str | None,
    typer.Option(
        help="random, stratified, scaffold or column; of a benchmark also fixed or kfold.",
        autocompletion=choices("random", "stratified", "scaffold", "column", "fixed", "kfold"),
        rich_help_panel="Your own data",
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="A model, as `gradformer models` lists them.",
        autocompletion=model_names,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        metavar="NAME=VALUE",
        help="Change one setting of the recipe; repeat it. For example: --set model.layers=6",
    ),
]
RecipeFile = Annotated[
    Path | None,
    typer.Option("--recipe", help="YAML file to use in place of the package's recipe."),
]


def reading_options(
    smiles: str | None = None,
    target: list[str] | None = None,
    task: str | None = None,
    level: str | None = None,
    split_column: str | None = None,
    skip_invalid: bool = False,
) -> dict[str, Any]:
    """What the user said of their data; what was left out is found by the reader."""
    given = {
        "smiles": smiles,
        "target": list(target) if target else None,
        "task": task,
        "level": level,
        "split_column": split_column,
        "skip_invalid": skip_invalid or None,
    }
    return {name: value for name, value in given.items() if value is not None}


def reading_words(reading: Mapping[str, Any]) -> list[str]:
    """:func:`reading_options` as words of a command line.

    >>> reading_words({"smiles": "mol", "target": ["a", "b"], "skip_invalid": True})
    ['--smiles', 'mol', '--target', 'a', '--target', 'b', '--skip-invalid']
    >>> reading_words({"skip_invalid": False})
    []
    """
    words = []
    for name, given in reading.items():
        for value in given if isinstance(given, list) else [given]:
            if value is not False:
                words += [f"--{name.replace('_', '-')}", *([] if value is True else [value])]
    return words


def smoke_settings() -> list[str]:
    """Settings that make any training short, where :func:`smoking` says so."""
    if not smoking():
        return []
    return ["train.epochs=1", "data.fraction=0.1", "model.layers=1", "train.batch_size=8"]


def use_mirror(folder: Path | None) -> None:
    """Take raw files from a folder by the environment alone: records name no folder of it."""
    if folder is not None:
        os.environ["GRADFORMER_DATA"] = str(folder)


def smoke_trials(trials: int | None) -> int | None:
    """At most two trials, where :func:`smoking` says so."""
    return min(trials or 2, 2) if smoking() else trials


def smoking() -> bool:
    """Whether GRADFORMER_SMOKE=1: every command does all it does, on little, for tests."""
    return os.environ.get("GRADFORMER_SMOKE") == "1"
