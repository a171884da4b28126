"""Fine-tuning: a model that begins with the trained weights of another run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gradformer.errors import ConfigError, InputError, warn
from gradformer.graphs.own import kind_of
from gradformer.graphs.user_data import Inputs
from gradformer.model.base import GraphModel
from gradformer.training.data import TrainingData, way_of
from gradformer.training.options import flat
from gradformer.training.origins import is_benchmark, known_inputs
from gradformer.training.recipe import Recipe
from gradformer.training.run import Run
from gradformer.weights import published


def begin_from(source: str | os.PathLike[str] | None, model: str | None = None) -> list[str]:
    """Settings that make a recipe begin from a run, or from a model of the package by its name: all
    options of its model, and where its weights are. No other ``model`` can be asked for."""
    if source is None:
        return []
    if model is not None:
        raise ConfigError(f"weights: those of {source} bring their model; leave out model {model}")
    run = _open(source)
    names = {folder: name for name, folder in published().items()}
    options = flat({"model": run.recipe.to_dict()["model"]})
    settings = [f"{name}={'none' if value is None else value}" for name, value in options.items()]
    return [*settings, f"train.weights={names.get(run.folder, run.folder.absolute())}"]


def inputs_before(recipe: Recipe, data: Any) -> Inputs | None:
    """What the run that ``recipe`` begins from was trained on, so that new ``data`` are read in the
    same way; None if the recipe begins from no run."""
    source = recipe.train.weights
    if source == "none":
        return None
    run = _open(source)
    if isinstance(data, str | Path) and not is_benchmark(data) and kind_of(Path(data)) == "tu":
        run.like("tu", str(data))  # raises if the model knows labels by other numbers
    return known_inputs(run, source)


def refuse_own_weights(recipe: Recipe, folder: Path) -> None:
    """Raise if a new run in ``folder`` would replace the run that it begins from: its later trials
    would then begin from itself."""
    source = recipe.train.weights
    if source != "none" and _open(source).folder.resolve() == folder.resolve():
        raise ConfigError(
            f"train.weights: {folder} is the run to begin from, and would be replaced; choose "
            "another folder for the new one (--out, out=)"
        )


def take_weights(model: GraphModel, source: str, number: int) -> None:
    """Put the weights of a run into ``model``, whose weights were just drawn.

    Trial k takes those of the run's trial k; if the run has none, those of its others in turn.
    Tensors with a row for each output stay as drawn, unless both have one task and as many outputs.
    """
    run = _open(source)
    before, now = run.schema, model.schema
    if (before.node, before.edge) != (now.node, now.edge):
        raise InputError(
            f"train.weights: {source} knows nodes {before.node} and edges {before.edge}, and the "
            f"data have {now.node} and {now.edge}; begin from a run on data with the same features "
            "(of fewer categories give the file or the list itself, to be read as that run's was)"
        )
    given, drawn = run.model(_taken(run, number)).state_dict(), model.state_dict()
    if (before.task, before.outputs) != (now.task, now.outputs):
        given |= {name: drawn[name] for name in _by_output(run) & drawn.keys()}
    for name in {**given, **drawn}:
        old, new = (tensors[name].shape if name in tensors else None for tensors in (given, drawn))
        if old != new:
            remedy = (
                "leave model.* as that run has it: gradformer train DATA --weights RUN takes it "
                "over"
                if before.level == now.level
                else f"it is one of {before.level}s: begin from a run on {now.level}s"
            )
            raise ConfigError(
                f"train.weights: the model of {source} has another shape ({name}); {remedy}"
            )
    model.load_state_dict(given)


def tell_seen(recipe: Recipe, data: TrainingData, numbers: Sequence[int]) -> None:
    """Warn of trials, by their ``numbers``, that begin from a trial with another split of the same
    data: it has learned from graphs on which they are tested."""
    run = _open(recipe.train.weights)
    if run.origin.get("content") != data.store.content:
        return

    def way(recipe: Recipe, about: Mapping[str, Any]) -> tuple[str, int | None]:
        """How data are split; folds are dealt by the first seed."""
        name = way_of(recipe, about)
        return name, recipe.seed if name == "kfold" else None

    def has_other_test(number: int) -> bool:
        """Whether the test parts differ: then the other trial has learned from this one's."""
        here, there = recipe.seed + number, run.result(_taken(run, number))["seed"]
        return here != there and not np.array_equal(data.split(here).test, data.split(there).test)

    same_way = way(recipe, data.about) == way(run.recipe, run.origin)
    other = [str(number) for number in numbers if not same_way or has_other_test(number)]
    if other:
        warn(
            f"train.weights: {recipe.train.weights} was trained on another split of the same data "
            f"than trial {', '.join(other)} here: it has learned from graphs that are tested, and "
            "that score is too good; begin from a run with the same seeds and the same split, or "
            "on other data"
        )


def _taken(run: Run, number: int) -> int:
    """The trial of a run whose weights trial ``number`` takes."""
    trials = run.usable()
    return number if number in trials else trials[number % len(trials)]


def _by_output(run: Run) -> set[str]:
    """The tensors of a run's model whose shape depends on the number of outputs."""
    schemas = run.schema, replace(run.schema, outputs=run.schema.outputs + 1)
    one, other = (run.recipe.model.make(each, run.codebook).state_dict() for each in schemas)
    return {name for name in one if one[name].shape != other[name].shape}


def _open(source: str | os.PathLike[str]) -> Run:
    try:
        return Run.load(source)
    except InputError as error:
        raise InputError(f"train.weights: {error}") from None
