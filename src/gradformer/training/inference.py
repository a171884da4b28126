"""What a finished run is asked: predictions, scores on other data, and embeddings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from gradformer.errors import ConfigError, InputError, at_least, choice
from gradformer.graphs.arrays import Schema
from gradformer.graphs.assemble import place_names
from gradformer.graphs.batch import Batch
from gradformer.graphs.cards import named
from gradformer.graphs.collate import Collator
from gradformer.graphs.datasets import open_card
from gradformer.graphs.labels import Labels
from gradformer.graphs.splits import Split
from gradformer.graphs.store import Store
from gradformer.graphs.targets import is_labelled
from gradformer.graphs.user_data import UserData, refuse_options
from gradformer.model.base import GraphModel
from gradformer.training.ambient import undisturbed
from gradformer.training.data import Part, TrainingData, benchmark
from gradformer.training.distributed import find_device
from gradformer.training.metrics import metrics_of, scores
from gradformer.training.origins import again, recoded
from gradformer.training.outputs import by_batch, model_outputs
from gradformer.training.wording import chances, deviation

if TYPE_CHECKING:
    from gradformer.training.run import Run


@dataclass(frozen=True)
class Predictions:
    """What the trials of a run say about some graphs.

    Shapes: ``trials`` [trials, rows, outputs] (probabilities of classes, or values in the user's
    units); ``value`` and ``spread`` [rows, outputs], their mean and standard deviation. Rows are
    graphs, or nodes for a model of nodes, in the order given.
    """

    trials: NDArray[np.float64]
    data: UserData | None = field(default=None, repr=False)

    @property
    def value(self) -> NDArray[np.float64]:
        return self.trials.mean(axis=0)

    @property
    def spread(self) -> NDArray[np.float64]:
        return deviation(self.trials)


@dataclass(frozen=True)
class Embeddings:
    """States of the model of one trial.

    Shapes: graphs [graphs, ·] what enters the head (for a model of nodes the mean of their
    states); nodes [nodes, width] final states; node_ptr [graphs + 1] where each graph begins.
    """

    graphs: NDArray[np.float32]
    nodes: NDArray[np.float32]
    node_ptr: NDArray[np.int64]
    data: UserData | None = None


def open_data(
    run: Run, data: Any, mirror: str | Path | None = None, **reading: Any
) -> tuple[Store, UserData | None]:
    """Graphs as the run's model takes them: all of a benchmark by name, or what ``Run.pack``
    takes."""
    if (card := named(data)) is not None:
        refuse_options(reading, f"the benchmark {data}")
        store = open_card(card, mirror, run.structure)
        run.expect(store.schema, card.name)
        return recoded(store, run.codebook), None
    return run.pack(data, **reading)


@undisturbed
def predict(
    run: Run,
    data: Any,
    *,
    mirror: str | Path | None = None,
    device: str | torch.device = "cpu",
    batch_size: int = 64,
    **reading: Any,
) -> Predictions:
    """What every trial predicts for ``data``: a path, PyG, NetworkX, SMILES, a store, or all graphs
    of a benchmark by name."""
    trials, where = run.usable(), find_device(device)
    store, user = open_data(run, data, mirror, **reading)
    collator, graphs = Collator(store, where), np.arange(store.num_graphs)
    found = []
    for trial in trials:
        rows = _rows(run, trial, collator, graphs, batch_size)
        found.append(_in_units(run, trial, rows))
    return Predictions(np.stack(found), user)


def _in_units(run: Run, trial: int, rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Logits to probabilities, regressions to the user's units."""
    scale, values = run.scale(trial), chances(rows, run.schema.task)
    return values if scale is None else scale.invert(values)


def _rows(
    run: Run, trial: int, collator: Collator, graphs: NDArray[np.int64], batch_size: int
) -> NDArray[np.float32]:
    """What the model of a trial gives for ``graphs``."""
    model = run.model(trial).to(collator.device)
    return model_outputs(model, collator, graphs, batch_size, run.recipe.train.precision)


@undisturbed
def evaluate(
    run: Run,
    on: Any = None,
    part: Part = "test",
    *,
    mirror: str | Path | None = None,
    device: str | torch.device = "cpu",
    batch_size: int = 64,
    **reading: Any,
) -> list[dict[str, float]]:
    """Every metric of every trial, on a part of the run's own data, of a benchmark, or on new data.

    New data (a path, or objects as :func:`predict` takes them) are scored whole.
    """
    found = _answers(run, on, part, mirror, device, batch_size, **reading)
    task = run.schema.task
    return [scores(rows, y, task, run.scale(k)) for k, (rows, y) in zip(run.usable(), found)]


@undisturbed
def evaluate_targets(
    run: Run, on: Any = None, part: Part = "test", **options: Any
) -> dict[str, list[dict[str, float]]]:
    """:func:`evaluate`, with its options, for every target by itself; NaN where no row has a label
    of it."""
    names, task = run.labels.targets, run.schema.task
    found = list(_answers(run, on, part, **options))
    if len(names) == 1:
        return {names[0]: [scores(rows, y, task) for rows, y in found]}
    return {
        name: [scores(rows[:, [k]], y[:, [k]], task, missing=True) for rows, y in found]
        for k, name in enumerate(names)
    }


def _answers(
    run: Run,
    on: Any,
    part: Part,
    mirror: str | Path | None = None,
    device: str | torch.device = "cpu",
    batch_size: int = 64,
    **reading: Any,
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """What each trial answers, in the user's units, and what is right."""
    choice("part", part, get_args(Part))
    trials, where = run.usable(), find_device(device)
    data = _labelled(run, on, part, mirror, reading)
    collator = data.collator(where)
    for trial in trials:
        items = getattr(data.split(run.result(trial)["seed"]), part)
        rows = _rows(run, trial, collator, data.graphs(items), batch_size)
        rows = rows[items] if data.over == "nodes" else rows
        scale = run.scale(trial)
        yield (rows if scale is None else scale.invert(rows)), data.labels(items)


@undisturbed
def embed(
    run: Run,
    data: Any,
    trial: int = 0,
    *,
    mirror: str | Path | None = None,
    device: str | torch.device = "cpu",
    batch_size: int = 64,
    **reading: Any,
) -> Embeddings:
    """Embeddings of ``data`` by the model of one trial."""
    at_least("batch_size", batch_size, 1)
    where = find_device(device)
    model = run.model(trial).to(where)
    store, user = open_data(run, data, mirror, **reading)

    def states(model: GraphModel, batch: Batch) -> tuple[NDArray[Any], NDArray[Any]]:
        found = model.states(batch)
        nodes = found[: batch.num_nodes].float().cpu().numpy()  # graph tokens come after them
        if run.schema.level == "graph":
            return model.embedding(found, batch).float().cpu().numpy(), nodes
        sizes = batch.layout.node_ptr.diff().cpu().numpy()
        first = batch.layout.node_ptr[:-1].cpu().numpy()
        return np.add.reduceat(nodes, first) / sizes[:, None], nodes

    ids, precision = np.arange(store.num_graphs), run.recipe.train.precision
    found = by_batch(states, model, Collator(store, where), ids, batch_size, precision)
    graphs, nodes = map(np.concatenate, zip(*found))
    return Embeddings(graphs, nodes, np.asarray(store.arrays["node_ptr"]), user)


def _labelled(
    run: Run, on: Any, part: Part, mirror: str | Path | None, reading: dict[str, Any]
) -> TrainingData:
    """The data to score on."""
    if on is None:
        refuse_options(reading, "the run's own data")
        return again(run, mirror)
    if (card := named(on)) is not None:
        refuse_options(reading, f"the benchmark {on}")
        data = benchmark(replace(run.recipe, dataset=card.name), mirror)
        run.expect(data.schema, card.name)
        _expect_targets(run, data.schema, card.name)
        return replace(data, store=recoded(data.store, run.codebook))
    if part != "test":
        raise ConfigError(f"part: new data are scored whole, there is no {part}; leave it out")
    store, _ = run.pack(on, labelled=True, **reading)
    where = on if isinstance(on, str | Path) else "the data"
    wanted = ", ".join(run.labels.targets)
    if "y" not in store.arrays:
        raise InputError(
            f"{where}: does not hold every target to score against, which the run calls {wanted}; "
            "add them, or ask for predictions, which need none"
        )
    if not is_labelled(store.arrays["y"]).any():
        raise InputError(
            f"{where}: no row has a value of {wanted} to score against; add them, or ask for "
            "predictions, which need none"
        )
    _expect_targets(run, store.schema, "the graphs")
    if isinstance(on, UserData):
        _expect_words(run, on.reading.labels)
    everything = np.arange(store.num_graphs)
    none = np.zeros(0, np.int64)
    whole = Split(train=none, val=none, test=everything)
    return TrainingData(store, lambda seed: whole, metrics_of(run.schema.task)[0])


def _expect_targets(run: Run, given: Schema, where: str) -> None:
    """Raise unless targets of schema ``given`` are what the run has learned."""

    def words(schema: Schema) -> str:
        return f"{schema.level} {schema.task} of width {schema.outputs}"

    if words(given) != words(run.schema):
        raise InputError(
            f"{where}: targets are {words(given)}, the run has learned {words(run.schema)}; "
            "predictions can be made, and not be scored"
        )


def _expect_words(run: Run, given: Labels) -> None:
    """Raise unless labels that were read without the run have its targets and classes, in order.
    Targets without names, as those of a benchmark, are taken by their place."""
    own = run.labels
    unnamed = tuple(place_names(len(own.targets)))
    named = run.reading is not None and unnamed not in (own.targets, given.targets)
    for what, theirs, ours, counts in (
        ("targets", given.targets, own.targets, named),
        ("classes", given.classes, own.classes, True),
    ):
        if counts and theirs != ours:
            raise InputError(
                f"the graphs: {what} are {theirs}, the run has learned {ours}; give the file or "
                "the list itself, or read it with like=run.reading"
            )
