"""``gradformer models``: what there is to train."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from gradformer.cli.complete import model_names
from gradformer.cli.tables import fact_table, plain_table, show

if TYPE_CHECKING:
    from gradformer.model.base import GraphModel


def models(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Show this model and its options, or the card of a trained one.",
            autocompletion=model_names,
        ),
    ] = None,
) -> None:
    """List the models: parameters by default on ZINC, what each was proven against. Or one in full.

    Below them are the trained models that come with the package, for predict, evaluate and embed.

    Example: [bold]gradformer models[/bold]

    Example: [bold]gradformer models gradformer[/bold]

    Example: [bold]gradformer models molhiv[/bold]
    """
    from gradformer.model.base import all_models
    from gradformer.weights import published

    if name in published():
        typer.echo((published()[name] / "README.md").read_text(encoding="utf-8"), nl=False)
        return
    if name is not None:
        _show_options(name)
        return
    numbers = ("parameters", "layers", "width")
    table = plain_table("model", *numbers, "about; proven against", right=numbers)
    for known in sorted(all_models(), key=lambda model: (model != "gradformer", model)):
        made = _made(known)
        sizes = f"{_size(made):,}", str(made.config.layers), str(made.config.width)
        table.add_row(known, *sizes, f"{_about(made)}; {made.reference}")
    show(table)
    _show_trained()


def _show_trained() -> None:
    from gradformer.training.metrics import metric_label
    from gradformer.training.run import Run
    from gradformer.weights import published

    table = plain_table(
        "trained model", "data", "model", "test, one seed", right=("test, one seed",)
    )
    for name in published():
        run = Run.load(name)
        test = run.results["test"]["mean"]
        score = f"{metric_label(run.results['metric'])} {test:.4f}"
        table.add_row(name, run.recipe.dataset, run.recipe.model.name, score)
    typer.echo()
    show(table)


def _show_options(name: str) -> None:
    from dataclasses import fields

    made = _made(name)
    facts = fact_table(2)
    facts.add_row(name, _about(made))
    facts.add_row("parameters", f"{_size(made):,} by default on ZINC")
    facts.add_row("proven against", made.reference)
    show(facts)
    typer.echo()
    table = plain_table("--set model.…=", "default", "meaning")
    for entry in fields(made.config):
        value = str(getattr(made.config, entry.name))
        table.add_row(entry.name, value, str(entry.metadata.get("help", "")))
    show(table)


def _made(name: str) -> GraphModel:
    from gradformer.graphs.arrays import Schema
    from gradformer.model.base import create_model

    zinc = Schema(node=(28,), edge=(4,), level="graph", task="regression", outputs=1)
    return create_model(name, zinc)


def _size(model: GraphModel) -> int:
    return sum(p.numel() for p in model.parameters())


def _about(model: GraphModel) -> str:
    """What its text says up to the first semicolon or full stop."""
    return re.split(r"[;.](?:\s|$)", (type(model).__doc__ or "").strip())[0]
