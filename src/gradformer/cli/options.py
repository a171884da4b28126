"""Options that several verbs share, one by one and in groups (see :mod:`gradformer.cli.groups`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from gradformer.cli.complete import choices, data_names, model_names

RunFolder = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="Folder of a run, or a trained model of the package (see `gradformer models`).",
    ),
]
NewData = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="Table with SMILES, JSON lines of graphs, TU folder, or the name of a benchmark.",
        autocompletion=data_names,
    ),
]
Mirror = Annotated[
    Path | None,
    typer.Option(
        "--data",
        envvar="GRADFORMER_DATA",
        help="Folder with raw files of benchmarks (default: downloaded once).",
        rich_help_panel="Machine",
    ),
]
Smiles = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column of the SMILES (default: found by its name).",
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
        metavar="WAY",
        help="random, stratified, scaffold, column or kfold (ten folds: --trials 10); of a "
        "benchmark also fixed (default: the benchmark's; of your data column, stratified or "
        "random, the first that fits).",
        autocompletion=choices("random", "stratified", "scaffold", "column", "kfold", "fixed"),
        rich_help_panel="Your own data",
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="NAME",
        help="A model, as `gradformer models` lists them (default: the recipe's, gradformer).",
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
Budget = Annotated[
    float | None,
    typer.Option(
        min=0.0, metavar="MINUTES", help="Stop and save after so long; --resume continues."
    ),
]
RecipeFile = Annotated[
    Path | None,
    typer.Option("--recipe", help="YAML file to use in place of the package's recipe."),
]
Trial = Annotated[int, typer.Option(metavar="N", min=0, help="Trial whose model is used.")]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Show no progress.", rich_help_panel="Machine"),
]


@dataclass(frozen=True)
class Machine:
    """Where the work is done, and with which raw files."""

    mirror: Mirror = None
    device: Annotated[
        str,
        typer.Option(
            "--device",
            metavar="DEVICE",
            help="auto (a GPU where there is one), cpu, cuda or cuda:1.",
            rich_help_panel="Machine",
            autocompletion=choices("auto", "cpu", "cuda"),
        ),
    ] = "auto"


@dataclass(frozen=True)
class Inference(Machine):
    """How a trained model is used."""

    batch_size: Annotated[
        int,
        typer.Option(
            "--batch-size", metavar="N", min=1, help="Graphs at once.", rich_help_panel="Machine"
        ),
    ] = 64


class _Reading:
    def options(self) -> dict[str, Any]:
        """What the user said of their file; what was left out is found by the reader."""
        return {name: value for name, value in vars(self).items() if value not in (None, False, [])}


@dataclass(frozen=True)
class NewFile(_Reading):
    """How graphs are read that a trained model is used on."""

    smiles: Smiles = None
    skip_invalid: SkipInvalid = False


@dataclass(frozen=True)
class TrainingFile(_Reading):
    """How graphs are read that a model is trained on."""

    smiles: Smiles = None
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Column to learn; repeat it for several.",
            rich_help_panel="Your own data",
        ),
    ] = None
    task: Annotated[
        str | None,
        typer.Option(
            metavar="TASK",
            help="regression, binary, multiclass, multilabel or classification (default: found "
            "from the targets).",
            autocompletion=choices(
                "regression", "binary", "multiclass", "multilabel", "classification"
            ),
            rich_help_panel="Your own data",
        ),
    ] = None
    level: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL",
            help="graph or node: what is predicted (default: graph).",
            rich_help_panel="Your own data",
            autocompletion=choices("graph", "node"),
        ),
    ] = None
    split_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column that says train, val or test; with --split column.",
            rich_help_panel="Your own data",
        ),
    ] = None
    skip_invalid: SkipInvalid = False
