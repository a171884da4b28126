"""``gradformer embed``: graphs and nodes as vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gradformer.cli.options import Inference, NewData, NewFile, RunFolder, Trial, out_option
from gradformer.errors import counted


def embed(
    folder: RunFolder,
    data: NewData,
    *,
    out: Annotated[
        Path, out_option(help="File to write: .npz, or .csv for the graphs alone.")
    ] = Path("embeddings.npz"),
    trial: Trial = 0,
    read: NewFile,
    use: Inference,
) -> None:
    """Write embeddings of graphs and of nodes.

    The .npz has [bold]graphs[/bold] (graphs × width: what enters the model's head),
    [bold]nodes[/bold] (nodes × width: final states), [bold]node_ptr[/bold] (where the nodes of each
    graph begin) and [bold]rows[/bold] (the line of each graph in the file, where a
    header is line 1).

    Example: [bold]gradformer embed runs/mine new.csv -o embeddings.npz[/bold]
    """
    import io

    import numpy as np

    from gradformer.training.files import expect_place, replace_file
    from gradformer.training.run import Run

    expect_place(out, ".npz", ".csv", source=data)
    found = Run.load(folder).embed(data, trial=trial, **vars(use), **read.options())
    rows = np.arange(len(found.graphs)) if found.data is None else found.data.rows
    if out.suffix.lower() == ".csv":
        names = [f"e{k}" for k in range(found.graphs.shape[1])]
        lines = [",".join(["row", *names])]
        for row, vector in zip(rows.tolist(), found.graphs.tolist()):
            lines.append(",".join([str(row), *(f"{value:.6g}" for value in vector)]))
        replace_file(out, "\n".join(lines) + "\n")
    else:
        file = io.BytesIO()
        np.savez(file, graphs=found.graphs, nodes=found.nodes, node_ptr=found.node_ptr, rows=rows)
        replace_file(out, file.getvalue())
    size = f"{counted(len(found.graphs), 'graph')}, {counted(len(found.nodes), 'node')}"
    typer.echo(f"{size} in {out}")
