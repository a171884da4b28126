"""Where data come from: what a user names, ready to train on; and of a run, the same again."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import numpy as np

from gradformer.errors import ConfigError, InputError
from gradformer.graphs.cards import find_card, is_card, named, tell_path
from gradformer.graphs.own import read
from gradformer.graphs.store import Store
from gradformer.graphs.tables import column_names
from gradformer.graphs.user_data import Inputs, UserData, refuse_options
from gradformer.recipes import recipe_names
from gradformer.structure.codebook import Codebook
from gradformer.structure.index import pair_index
from gradformer.training.data import TrainingData, benchmark, own_data
from gradformer.training.options import setting
from gradformer.training.recipe import Recipe, load_recipe

if TYPE_CHECKING:
    from gradformer.training.run import Run

OWN = "own"
"""The recipe for a user's own graphs."""


def recipe_name(data: Any) -> str:
    """The package's recipe for ``data``."""
    if not is_benchmark(data):
        if isinstance(data, str | Path) and not os.path.exists(data):
            if isinstance(data, Path) or os.sep in data or Path(data).suffix:
                raise InputError(f"{data} does not exist; name a file, a TU folder or a dataset")
            find_card(data)  # raises with the nearest name
        return OWN
    return str(data) if str(data) in recipe_names() else find_card(str(data)).name


def dataset_name(data: Any, recipe: Recipe) -> str:
    """What the recipe of a run calls its data: a file by its path; a benchmark by its own name,
    even if ``data`` names a recipe for it (``cluster-16``); objects as the recipe does.
    """
    if not isinstance(data, str | Path):
        return recipe.dataset
    if Path(data).name in ("", ".."):  # so that pages and cards can call the folder by its name
        return os.path.abspath(data)
    if not is_benchmark(data):  # with ./ where it would be taken for one
        return os.path.join(os.curdir, data) if is_card(str(data)) else str(data)
    return find_card(str(data)).name if is_card(str(data)) else load_recipe(str(data)).dataset


def refuse_dataset(settings: Iterable[str]) -> None:
    """Raise if ``settings`` name the data: a command has an argument for that."""
    for text in settings:
        if "dataset" in setting(text):
            raise ConfigError(
                f"--set {text}: the data are named by themselves, as in gradformer train mutag; "
                "leave it out"
            )


def prepare(
    data: Any,
    recipe: Recipe,
    mirror: str | Path | None,
    reading: dict[str, Any],
    begun: bool = False,
    inputs: Inputs | None = None,
) -> tuple[TrainingData, dict[str, Any]]:
    """The data to train on, or that a run has ``begun`` with, and how to find them again.

    ``inputs``: what a model that is trained further was trained on; None for a new model.
    """
    ready, origin = _read(data, recipe, mirror, reading, begun, inputs)
    if inputs is not None and inputs.codebook is not None:
        ready = replace(ready, store=recoded(ready.store, inputs.codebook))
    return ready, origin


def recoded(store: Store, codebook: Codebook) -> Store:
    """The same graphs, with the bytes of their pairs in the ``codebook`` of a model; unchanged if
    the store has another index, or none. A store in the cache stays as it is."""
    index, arrays = store.structure.index, store.arrays
    if index is None or store.codebook == codebook or codebook.name.split("-")[0] != index:
        return store
    edges = np.stack([arrays["source"], arrays["target"]])
    graphs = arrays["node_ptr"], arrays["edge_ptr"], edges, arrays.get("x")
    distance, _ = pair_index(index, *graphs, codebook=codebook)
    return replace(store, arrays={**arrays, "distance": distance}, codebook=codebook)


def _read(
    data: Any,
    recipe: Recipe,
    mirror: str | Path | None,
    reading: dict[str, Any],
    begun: bool,
    inputs: Inputs | None,
) -> tuple[TrainingData, dict[str, Any]]:
    """See :func:`prepare`."""
    if isinstance(data, TrainingData | UserData):
        refuse_options(reading, "data that are read already")
        ready = data if isinstance(data, TrainingData) else own_data(recipe, data, begun)
        return ready, {"kind": "objects"}
    if is_benchmark(data):
        refuse_options(reading, f"the benchmark {recipe.dataset}")
        return benchmark(recipe, mirror), {
            "kind": "benchmark",
            "mirror": None if mirror is None else str(Path(mirror).absolute()),
        }
    if not begun:
        _refuse_two_splits(recipe, reading)
    if isinstance(data, str | Path):
        if reading.get("target") is not None:  # as text, whatever type its names have
            reading = {**reading, "target": column_names(reading["target"])}
        return own_data(recipe, read(data, inputs=inputs, **reading), begun), {
            "kind": "file",
            "path": str(Path(data).absolute()),
            "options": reading,
        }
    from gradformer.graphs.objects import from_objects  # loads NetworkX and pandas

    user = from_objects(data, inputs=inputs, **reading)
    return own_data(recipe, user, begun), {"kind": "objects"}


def _refuse_two_splits(recipe: Recipe, reading: dict[str, Any]) -> None:
    """Raise if parts are named although the recipe draws them."""
    for name in ("split_column", "split"):
        if reading.get(name) is not None and recipe.data.split not in ("auto", "column"):
            raise ConfigError(
                f"{name}: names the parts, and data.split={recipe.data.split} draws them; leave "
                "one of the two out"
            )


def again(
    run: Run, mirror: str | Path | None = None, data: Any = None, **reading: Any
) -> TrainingData:
    """The data that a run was trained on; ``data`` are needed where they were Python objects, or a
    file that is in another place now."""
    origin = run.origin
    others = InputError(
        f"{run.folder}: the data are not those that the run began with; bring those back, or "
        "train anew with these (evaluate scores a run on other data with --on FILE)"
    )
    if data is None:
        if origin["kind"] == "objects":
            raise InputError(
                f"{run.folder}: the data it was trained on are not kept (Python objects, an "
                "exported model, or an attempt of a search); give data: --on FILE or on= to "
                "evaluate, data= to resume"
            )
        data = origin["path"] if origin["kind"] == "file" else run.recipe.dataset
        if origin["kind"] == "file" and not Path(data).exists():
            raise InputError(
                f"{data}: the data that {run.folder} was trained on are not there; bring them back "
                "to this place, or give them: gradformer train FILE --resume "
                f"{quote(str(run.folder))}, --on FILE or on= to evaluate, data= to resume"
            )
    elif (
        is_benchmark(data)  # else the benchmark of the run's recipe would be opened
        and dataset_name(data, load_recipe(recipe_name(data))) != run.recipe.dataset
    ):
        raise others
    if isinstance(data, str | Path):
        reading = {**origin.get("options", {}), **reading}
    mirror = mirror or origin.get("mirror")
    inputs = None if run.recipe.train.weights == "none" else known_inputs(run)
    material, _ = prepare(data, run.recipe, mirror, reading, begun=True, inputs=inputs)
    if material.store.content != origin["content"]:
        raise others
    return replace(material, metric=run.metric)


def refuse_attempt(run: Run) -> None:
    """Raise for an attempt of a search, to which the test part is closed: what its results call
    test is the validation part."""
    if run.origin.get("closed"):
        raise InputError(
            f"{run.folder}: an attempt of a search, which knows no test part; train its recipe "
            f"anew: gradformer train DATA --recipe {quote(str(run.folder / 'recipe.yaml'))}"
        )


def known_inputs(run: Run, name: str | None = None) -> Inputs:
    """What the model of a run has learned from; ``name`` is what the user calls the run."""
    seen = ((), ()) if run.reading is None else run.reading.seen
    return Inputs(run.schema.node, run.schema.edge, seen, name, run.codebook)


def is_benchmark(data: Any) -> bool:
    """Whether ``data`` is a name of the package: of a dataset, or of a recipe (``cluster-16``)."""
    if named(data) is not None:
        return True
    found = isinstance(data, str) and data in recipe_names() and data != OWN
    if found:
        tell_path(data)
    return found
