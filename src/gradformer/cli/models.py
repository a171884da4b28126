"""``gradformer models``: what there is to train."""

from __future__ import annotations

from typing import Annotated

import typer


def models(
    name: Annotated[
        str | None, typer.Argument(help="Show the options of this model instead.")
    ] = None,
) -> None:
    """List the models: parameters by default on ZINC, and what each was proven against.

    Example: [bold]gradformer models[/bold]

    Example: [bold]gradformer models gradformer[/bold]
    """
    from dataclasses import fields

    from rich.console import Console
    from rich.table import Table

    from gradformer.graphs.arrays import Schema
    from gradformer.model.base import MODELS, create_model, model_class

    if name is not None:
        config = model_class(name).Config()
        table = Table(title=f"--set model.OPTION=VALUE for {name}", title_justify="left")
        for column in ("option", "default", "meaning"):
            table.add_column(column)
        for entry in fields(config):
            value = str(getattr(config, entry.name))
            table.add_row(entry.name, value, str(entry.metadata.get("help", "")))
        Console().print(table)
        return
    model_class("gradformer")  # fills the registry
    schema = Schema(node=(28,), edge=(4,), level="graph", task="regression", outputs=1)
    table = Table(caption="parameters: default options, on ZINC", caption_justify="left")
    for column in ("model", "parameters", "layers", "width", "about", "reference"):
        right = column in ("parameters", "layers", "width")
        table.add_column(column, justify="right" if right else "left", no_wrap=column == "model")
    for known in sorted(MODELS, key=lambda model: (model != "gradformer", model)):
        made = create_model(known, schema)
        about = (type(made).__doc__ or "").strip().split("\n")[0]
        table.add_row(
            known,
            f"{sum(p.numel() for p in made.parameters()):,}",
            str(made.config.layers),
            str(made.config.width),
            about,
            made.reference,
        )
    Console().print(table)
