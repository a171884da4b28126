"""A trained model as a program of ``torch.export``: one graph in, its prediction out, any size."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from gradformer.attention import use_engine
from gradformer.attention.layout import Group, Layout, Rows
from gradformer.errors import ConfigError
from gradformer.graphs.batch import Batch, Edges, link
from gradformer.model.base import GraphModel
from gradformer.training.files import replace_file
from gradformer.training.run import Run

_NODES = Dim("nodes", min=2, max=2**15)
_EDGES = Dim("edges", min=2, max=2**30)
_DYNAMIC = {
    "distance": {0: _NODES, 1: _NODES},
    "edge_index": {1: _EDGES},
    "x": {0: _NODES},
    "edge_attr": {0: _EDGES},
    "rwse": {0: _NODES},
    "lap": {0: _NODES},
}


class OneGraph(nn.Module):
    """A model that takes one graph as plain tensors, and answers in the user's units.

    Shapes: distance [n, n] uint8; edge_index [2, e] int64; x [n, ·]; edge_attr [e, ·];
    rwse, lap [n, k] float32. The answer is [1, outputs], or [n, outputs] for a model of nodes:
    probabilities of classes, or values.
    """

    def __init__(
        self, model: GraphModel, mean: list[float] | None = None, std: list[float] | None = None
    ) -> None:
        super().__init__()
        self.model = model
        self.task = model.schema.task
        outputs = model.schema.outputs
        self.register_buffer("mean", torch.tensor(mean or [0.0] * outputs))
        self.register_buffer("std", torch.tensor(std or [1.0] * outputs))
        self.mean: Tensor
        self.std: Tensor

    def forward(
        self,
        distance: Tensor,
        edge_index: Tensor,
        x: Tensor | None = None,
        edge_attr: Tensor | None = None,
        rwse: Tensor | None = None,
        lap: Tensor | None = None,
    ) -> Tensor:
        edges, order = _edges(edge_index, distance.shape[0])
        encodings = {name: v for name, v in (("rwse", rwse), ("lap", lap)) if v is not None}
        batch = Batch(
            _layout(distance.shape[0]),
            edges,
            x,
            None if edge_attr is None else edge_attr[order],
            distance.reshape(-1),
            encodings,
        )
        y: Tensor = self.model(batch)
        if self.task == "multiclass":
            return y.softmax(dim=1)
        return y * self.std + self.mean if self.task == "regression" else y.sigmoid()


def export_program(run: Run, path: str | Path, trial: int = 0) -> ExportedProgram:
    """Write the model of a trial as ``path`` (.pt2), with graphs of any size as its input.

    ``torch.export.load(path).module()`` takes the tensors of :class:`OneGraph` by name. Raises a
    :class:`ConfigError` for a model that ``torch.export`` cannot trace.
    """
    if run.structure.index is None:
        raise ConfigError(
            f"program: {run.recipe.model.name} takes no pairs; export it without --program"
        )
    model = run.model(trial).requires_grad_(False)
    scale = run.result(trial)["scale"] or {}
    inputs = example_inputs(run)
    shapes = {name: _DYNAMIC[name] for name in inputs}
    try:
        with use_engine("reference"), torch.no_grad(), _silent():
            program = torch.export.export(
                OneGraph(model, **scale).eval(), (), inputs, dynamic_shapes=shapes, strict=False
            )
    except Exception as error:  # tracing fails in as many ways as there are models
        reason = str(error).strip().split("\n")[0]
        name = run.recipe.model.name
        raise ConfigError(
            f"program: torch.export cannot trace {name} ({type(error).__name__}: {reason}); "
            "export it without --program"
        ) from error
    file = io.BytesIO()
    torch.export.save(program, file)
    replace_file(Path(path), file.getvalue())
    return program


@contextmanager
def _silent() -> Iterator[None]:
    """Keep torch from printing and logging a whole graph where it fails: the error says enough."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)


def example_inputs(run: Run) -> dict[str, Tensor]:
    """Inputs of the shapes that the run's model takes, for a ring of seven nodes."""
    n = 7
    place = torch.arange(n)
    hops = (place[:, None] - place).abs()
    forward = torch.stack([place, (place + 1) % n])
    inputs = {
        "distance": torch.minimum(hops, n - hops).byte(),
        "edge_index": torch.cat([forward, forward.flip(0)], dim=1),
    }
    for name, rows, columns in (("x", n, run.schema.node), ("edge_attr", 2 * n, run.schema.edge)):
        if isinstance(columns, int):
            if columns:
                inputs[name] = torch.zeros(rows, columns)
        elif columns:
            inputs[name] = torch.zeros(rows, len(columns), dtype=torch.int64)
    for name in ("rwse", "lap"):
        if width := getattr(run.structure, name):
            inputs[name] = torch.zeros(n, width)
    return inputs


def _layout(n: int) -> Layout:
    """One graph of n nodes, made without reading anything back."""
    none = torch.zeros(1, dtype=torch.int32)
    node_ptr = torch.cat([none, torch.full((1,), n, dtype=torch.int32)])
    layout = Layout(node_ptr, none.long(), none, capacity=n, largest=n)
    place = torch.arange(n)
    pairs = (place[:, None] * n + place)[None]
    real = torch.ones(1, n, dtype=torch.bool)
    group = Group(none.long(), place[None], real, pairs, pairs)
    layout.__dict__["groups"] = [group]  # a cached property, which would read sizes back
    return layout


def _edges(edge_index: Tensor, n: int) -> tuple[Edges, Tensor]:
    """Edges sorted by target, and the order that sorts them."""
    order = torch.argsort(edge_index[1], stable=True)
    source, target = edge_index[:, order].int().unbind()
    place = torch.arange(edge_index.shape[1], dtype=torch.int32)
    return link(source, target, n, n, Rows(torch.zeros_like(place), place)), order
