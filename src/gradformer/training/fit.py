"""From data to a run, in one call; and from a run that was stopped to its end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any

import torch

from gradformer.attention.kernels.tiles import precision
from gradformer.errors import ConfigError, InputError, at_least, warn
from gradformer.graphs.splits import FOLDS
from gradformer.training.ambient import undisturbed
from gradformer.training.data import TrainingData
from gradformer.training.distributed import by_first, find_device, from_first, joined
from gradformer.training.files import RESUMABLE, plain, read_json, replace_file, replace_json
from gradformer.training.fine_tuning import begin_from, inputs_before, refuse_own_weights
from gradformer.training.folder import RECIPE, check_free, filling, held, tidy
from gradformer.training.keepsakes import save_examples
from gradformer.training.options import flat
from gradformer.training.origins import (
    again,
    dataset_name,
    prepare,
    recipe_name,
    refuse_attempt,
    refuse_dataset,
)
from gradformer.training.recipe import Recipe, load_recipe
from gradformer.training.records import header
from gradformer.training.run import Run, ended_trials
from gradformer.training.trials import Trials, summary, train_all


@undisturbed
def fit(
    data: Any,
    *,
    recipe: Recipe | str | Path | None = None,
    model: str | None = None,
    preset: str | None = None,
    settings: Iterable[str] = (),
    weights: str | os.PathLike[str] | None = None,
    trials: int | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    mirror: str | Path | None = None,
    device: str = "auto",
    tensorboard: bool = True,
    quiet: bool = False,
    until: float | None = None,
    **reading: Any,
) -> Run:
    """Train on ``data`` and give back the run.

    Args:
        data: a benchmark or recipe by name; the path of a table, a JSON-lines file or a TU folder;
            a list of PyG ``Data``, NetworkX graphs or SMILES; a ``DataFrame`` with a column of
            SMILES; or :class:`TrainingData`.
        recipe: a complete recipe, or a YAML file with one in place of the package's for this data.
        model: another model for the recipe that is read, see :func:`load_recipe`.
        preset: one of its presets.
        settings: changes to the recipe, ``a.b=c``.
        weights: a run or its folder, or a model of the package by its name, to begin from: its
            model is trained further.
        trials: number of seeds.
        out: the folder to make; ``runs/<dataset>-<model>-<time>`` if not given.
        overwrite: replace a run that is there.
        mirror: folder with raw files of benchmarks, else ``GRADFORMER_DATA``.
        device: ``auto``, ``cpu``, ``cuda``.
        tensorboard: write TensorBoard files.
        quiet: show no progress.
        until: when to stop and save (:class:`StoppedError`), on the monotonic clock.
        reading: how to read ``data``: ``smiles``, ``target``, ``y``, ``task``, ``skip_invalid`` …
    """
    settings = [settings] if isinstance(settings, str) else settings
    settings = [*begin_from(weights, model), *settings]
    recipe = _recipe_for(data, recipe, model, preset, settings)
    if trials is not None:
        recipe = replace(recipe, trials=trials)
    _refuse_uneven_folds(recipe)
    where = find_device(device)
    with joined(where), _precision(recipe.train.precision):
        folder = Path(from_first(_new_name(recipe, out)))
        by_first(check_free, folder, overwrite)
        refuse_own_weights(recipe, folder)
        before = inputs_before(recipe, data)
        material, origin = prepare(data, recipe, mirror, reading, False, before)
        whole = Trials(  # options that do not fit are refused before a folder is touched
            folder, recipe, material, where, anew=True, tensorboard=tensorboard
        )
        with held(folder):
            by_first(_begin, folder, recipe, material, origin, overwrite)
            return _train([whole], until, quiet)[0]


def _refuse_uneven_folds(recipe: Recipe) -> None:
    """Raise if some folds would be tested once more than others, and count more in the mean."""
    rounds, more = divmod(recipe.trials, FOLDS)
    if recipe.data.split == "kfold" and rounds and more:
        raise ConfigError(
            f"trials: got {recipe.trials}, and kfold has {FOLDS} folds: {more} of them would be "
            f"tested once more than the others, and count more; take {rounds * FOLDS} or "
            f"{(rounds + 1) * FOLDS}"
        )


def _recipe_for(
    data: Any,
    recipe: Recipe | str | Path | None,
    model: str | None,
    preset: str | None,
    settings: Sequence[str],
) -> Recipe:
    if isinstance(data, str | Path):
        refuse_dataset(settings)
    if not isinstance(recipe, Recipe):
        source = recipe_name(data) if recipe is None else str(recipe)
        recipe = load_recipe(source, model=model, preset=preset, settings=settings)
    elif model is not None or preset is not None:
        raise ConfigError("recipe: give either a recipe, or a model and a preset")
    else:
        recipe = recipe.change(*settings)
    return replace(recipe, dataset=dataset_name(data, recipe))


@undisturbed
def resume(
    folder: str | os.PathLike[str],
    data: Any = None,
    *,
    trials: int | None = None,
    mirror: str | Path | None = None,
    device: str = "auto",
    tensorboard: bool = True,
    quiet: bool = False,
    until: float | None = None,
    **reading: Any,
) -> Run:
    """Continue a run to exactly what it would have been without the stop.

    ``data``, and ``reading`` as in :func:`fit` (``y``, ``task`` …), are needed only where the run
    was given Python objects, or a file that is in another place now. With more ``trials`` than it
    was begun with, seeds are added, to what the run would have been with so many from the start. If
    only the record is kept, without ``trials/``, its results stand: only new seeds are trained.
    """
    run = Run.load(folder)
    if run.folder != Path(folder):
        raise InputError(f"{folder}: a model of the package is no run to continue; train anew")
    refuse_attempt(run)
    _refuse_edits(run)
    if trials is not None:
        at_least("trials", trials, 0)
        if trials < run.recipe.trials:
            raise ConfigError(
                f"trials: got {trials}, and {run.folder} has {run.recipe.trials}: seeds can only "
                "be added"
            )
        if trials > run.recipe.trials:
            run = replace(run, recipe=replace(run.recipe, trials=trials))
            _refuse_uneven_folds(run.recipe)
    ended = ended_trials(run, run.record)
    bare = [result for trial, result in ended.items() if not run.place(trial).exists()]
    if len(bare) == run.recipe.trials:
        raise InputError(
            f"{run.folder}: all trials have ended, and only their results are kept: "
            "there are no weights in trials/, and nothing to continue; add seeds with more "
            "--trials, or train anew: gradformer train DATA --recipe "
            f"{quote(str(run.folder / RECIPE))} --out NEW"
        )
    where = find_device(device)
    with joined(where), _precision(run.recipe.train.precision), held(run.folder):
        by_first(tidy, run.folder)
        material = again(run, mirror, data, **reading)
        if run.origin["kind"] == "file" and isinstance(data, str | Path):
            by_first(_move_data, run, data)
        by_first(_keep_results, run, bare)
        whole = Trials(run.folder, run.recipe, material, where, tensorboard=tensorboard)
        by_first(replace_file, run.folder / RECIPE, run.recipe.to_yaml(), RESUMABLE)
        return _train([whole], until, quiet)[0]


@dataclass(frozen=True)
class Job:
    """A recipe to be trained on prepared data, in a folder that is new or was begun by it."""

    folder: Path
    recipe: Recipe
    data: TrainingData


@undisturbed
def fit_together(
    jobs: Sequence[Job], *, device: str = "auto", until: float | None = None
) -> list[Run]:
    """Train several recipes on one device with the trials of all side by side.

    Each is begun, or continued where it was, and gives the bits that it gives alone; all have the
    same ``train.precision``. Nothing is shown.
    """
    where = find_device(device)
    (precision,) = {job.recipe.train.precision for job in jobs}
    with joined(where), _precision(precision), ExitStack() as folders:
        runs = [Trials(job.folder, job.recipe, job.data, where, tensorboard=False) for job in jobs]
        for job in jobs:
            folders.enter_context(held(job.folder))
            if not from_first((job.folder / RECIPE).is_file()):
                by_first(_begin, job.folder, job.recipe, job.data, {"kind": "objects"})
        return _train(runs, until, quiet=True)


def _begin(
    folder: Path,
    recipe: Recipe,
    data: TrainingData,
    origin: dict[str, Any],
    overwrite: bool = False,
) -> None:
    """Write what a run is, before anything is trained."""
    check_free(folder, overwrite)  # now that no other process can begin there
    with filling(folder) as new:
        replace_json(new / "data.json", data.described(origin))
        save_examples(new, data, recipe.seed)
        replace_file(new / RECIPE, recipe.to_yaml())


def _refuse_edits(run: Run) -> None:
    """Raise if ``recipe.yaml`` was edited, but for more trials: those of a run share a recipe."""
    record = run.record
    began = flat(header(record).get("recipe", {}))
    now = flat(plain(run.recipe.to_dict()))  # as a record has it
    began["trials"] = max(run.recipe.trials, 1 + max(ended_trials(run, record), default=0))
    for name, value in began.items():
        if now.get(name, value) != value:
            raise ConfigError(
                f"{run.folder / RECIPE}: {name} is {now[name]}, and the run began with {value}; "
                "put it back, or train anew with the recipe as it is: gradformer train DATA "
                f"--recipe {quote(str(run.folder / RECIPE))} --out NEW"
            )


def _move_data(run: Run, path: str | Path) -> None:
    """Write down where the data are now, for all that will ask for them."""
    stored = read_json(run.folder / "data.json")
    stored["origin"]["path"] = str(Path(path).absolute())
    replace_json(run.folder / "data.json", stored, RESUMABLE)


def _keep_results(run: Run, results: Sequence[dict[str, Any]]) -> None:
    """Give trials that have ended their folder back, so that they are not trained again."""
    for result in results:
        path = run.place(result["trial"]) / "result.json"
        replace_json(path, {name: v for name, v in result.items() if name != "kind"}, RESUMABLE)
    if results:
        warn(
            f"{run.folder}: has the results but not the weights of {len(results)} of its trials; "
            "these results stand, and only the other trials will predict"
        )


def _train(runs: Sequence[Trials], until: float | None, quiet: bool) -> list[Run]:
    train_all(runs, until, quiet)
    for run in runs:
        outcome = summary(run.results(), run.trials[0].data.metric)
        by_first(replace_json, run.folder / "results.json", outcome, RESUMABLE)
    return [Run.load(run.folder) for run in runs]


def _new_name(recipe: Recipe, out: str | Path | None) -> str:
    if out is not None:
        return str(out)
    dataset = Path(recipe.dataset).name.split(".")[0] or "data"
    return f"runs/{dataset}-{recipe.model.name}-{time.strftime('%Y%m%d-%H%M%S')}"


@contextmanager
def _precision(name: str) -> Iterator[None]:
    """Products of float32 in tf32 only where the recipe says so."""
    try:
        before = torch.get_float32_matmul_precision()
    except RuntimeError:  # torch's newer switches disagree with this one
        before = "high" if precision() == "tf32" else "highest"
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
