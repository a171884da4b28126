"""Options that several verbs share, one by one and in groups.

A group is a dataclass: one parameter of the verb, and as many of the command as it has fields.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import partial, wraps
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from gradformer.cli.complete import choices, data_names, model_names, preset_names
from gradformer.cli.training import option_word, smoke_settings
from gradformer.errors import ConfigError, OptionError

_own_data: Any = partial(typer.Option, rich_help_panel="Your own data")
_machine: Any = partial(typer.Option, rich_help_panel="Machine")
# Several verbs have these; each says what it means there.
out_option: Any = partial(typer.Option, "--out", "-o")
trials_option: Any = partial(typer.Option, "--trials", "-n", metavar="N", min=1)
data_argument: Any = partial(
    typer.Argument, metavar="DATASET|FILE", show_default=False, autocompletion=data_names
)

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
    _machine(
        "--data",
        envvar="GRADFORMER_DATA",
        help="Folder with raw files of benchmarks (default: downloaded once).",
    ),
]
Smiles = Annotated[
    str | None,
    _own_data(metavar="COLUMN", help="Column of the SMILES (default: found by its name)."),
]
SkipInvalid = Annotated[
    bool,
    _own_data("--skip-invalid", help="Leave out rows that cannot be read, and list them."),
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
Trial = Annotated[int, typer.Option(metavar="N", min=0, help="Trial whose model is used.")]
Quiet = Annotated[bool, _machine("--quiet", "-q", help="Show no progress.")]


@dataclass(frozen=True)
class Machine:
    """Where the work is done, and with which raw files."""

    mirror: Mirror = None
    device: Annotated[
        str,
        _machine(
            "--device",
            metavar="DEVICE",
            help="auto (a GPU where there is one), cpu, cuda or cuda:1.",
            autocompletion=choices("auto", "cpu", "cuda"),
        ),
    ] = "auto"


@dataclass(frozen=True)
class Inference(Machine):
    """How a trained model is used."""

    batch_size: Annotated[
        int,
        _machine("--batch-size", metavar="N", min=1, help="Graphs at once."),
    ] = 64


@dataclass(frozen=True)
class Training:
    """What is trained, by which recipe, and for how long."""

    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="NAME",
            help="A model, as `gradformer models` lists them (default: the recipe's, gradformer).",
            autocompletion=model_names,
        ),
    ] = None
    settings: Settings = None
    recipe: Annotated[
        Path | None,
        typer.Option("--recipe", help="YAML file to use in place of the package's recipe."),
    ] = None
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A variant that the recipe names: paper, authors or tuned (default: none, a "
            "benchmark's recipe follows the paper).",
            autocompletion=preset_names,
        ),
    ] = None
    weights: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Fine-tune: begin from the weights of a run, or of a trained model of the package "
            "(see `gradformer models`), and take its model.",
        ),
    ] = None
    budget: Annotated[
        float | None,
        typer.Option(
            min=0.0, metavar="MINUTES", help="Stop and save after so long; --resume continues."
        ),
    ] = None
    split: Annotated[
        str | None,
        _own_data(
            metavar="WAY",
            help="random, stratified, scaffold, column or kfold (ten folds: --trials 10); of a "
            "benchmark also fixed (default: the benchmark's; of your data column, stratified or "
            "random, the first that fits).",
            autocompletion=choices("random", "stratified", "scaffold", "column", "kfold", "fixed"),
        ),
    ] = None

    def changes(self, seed: int | None = None) -> list[str]:
        """What the user changes in the recipe, and last what the smoke switch does. Raises where
        ``--set`` and the option for that setting contradict each other."""
        from gradformer.training.fine_tuning import begin_from
        from gradformer.training.options import flat, setting

        options = {
            "model.name": ("--model", self.model),
            "train.weights": ("--weights", self.weights),
            "data.split": ("--split", self.split),
            "seed": ("--seed", seed),
        }
        for text in self.settings or []:
            ((name, value),) = flat(setting(text)).items()
            option, said = options.get(name, ("", None))
            if said is not None and str(said) != value:
                raise ConfigError(
                    f"--set {text}: {option} {said} says otherwise; leave one of the two out"
                )
        begun = begin_from(self.weights, self.model)
        values = ((name, options[name][1]) for name in ("data.split", "seed"))
        own = [f"{name}={value}" for name, value in values if value is not None]
        short = [text for text in smoke_settings() if not begun or not text.startswith("model.")]
        return [*begun, *(self.settings or []), *own, *short]


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
        _own_data(metavar="COLUMN", help="Column to learn; repeat it for several."),
    ] = None
    task: Annotated[
        str | None,
        _own_data(
            metavar="TASK",
            help="regression, binary, multiclass, multilabel or classification (default: found "
            "from the targets).",
            autocompletion=choices(
                "regression", "binary", "multiclass", "multilabel", "classification"
            ),
        ),
    ] = None
    level: Annotated[
        str | None,
        _own_data(
            metavar="LEVEL",
            help="graph or node: what is predicted (default: graph).",
            autocompletion=choices("graph", "node"),
        ),
    ] = None
    split_column: Annotated[
        str | None,
        _own_data(
            metavar="COLUMN", help="Column that says train, val or test; with --split column."
        ),
    ] = None
    skip_invalid: SkipInvalid = False


def ungrouped(verb: Callable[..., None]) -> Callable[..., None]:
    """``verb`` as typer takes it: each group is replaced by its fields."""
    hints = get_type_hints(verb, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    flat = []
    for name, given in inspect.signature(verb).parameters.items():
        members = {name: given.default}
        if name in groups:
            members = {field.name: field.default for field in fields(groups[name])}
            hints |= get_type_hints(groups[name], include_extras=True)
        flat += [
            Parameter(member, Parameter.KEYWORD_ONLY, default=default, annotation=hints[member])
            for member, default in members.items()
        ]

    @wraps(verb)
    def command(**given: Any) -> None:
        made = {
            name: group(**{field.name: given.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        try:
            verb(**given, **made)
        except OptionError as error:  # in the words of Python
            known = [option_word(name) for name in error.known if name in hints]
            raise OptionError(option_word(error.name), error.where, known) from None

    command.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    return command
