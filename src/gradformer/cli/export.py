"""``gradformer export``: a trained model to give away."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gradformer.cli.options import RunFolder, out_option


def export(
    folder: RunFolder,
    out: Annotated[Path | None, out_option(help="Folder to make (default: RUN-export).")] = None,
    trial: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Which trial (default: the best by validation)."),
    ] = None,
    program: Annotated[
        bool,
        typer.Option(
            "--program",
            help="Also write program.pt2, of a Gradformer: torch.export, graphs of any size, "
            "no gradformer needed.",
        ),
    ] = False,
) -> None:
    """Write one model as a small folder: weights (safetensors), recipe, what its inputs look like.

    The folder is a run of its own: predict, evaluate, embed and explain take it.

    Example: [bold]gradformer export runs/mine -o mine-model[/bold]

    Example: [bold]gradformer export runs/mine -o mine-program --program[/bold]
    """
    from gradformer.training.export import best_trial
    from gradformer.training.export import export as write
    from gradformer.training.run import Run

    run = Run.load(folder)
    named = folder.resolve() if folder.name in ("", "..") else folder
    out = out or Path(f"{named}-export")
    given = write(run, out, best_trial(run) if trial is None else trial, program)
    typer.echo(given.folder)
