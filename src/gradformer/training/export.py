"""A trained model as a folder of its own, to be given away."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from gradformer.errors import InputError
from gradformer.training.ambient import undisturbed
from gradformer.training.card import model_card
from gradformer.training.files import read_json, replace_file, replace_json, writing
from gradformer.training.folder import LOCK, RECIPE, WEIGHTS, filling, held, is_free
from gradformer.training.origins import dataset_name, refuse_attempt
from gradformer.training.program import export_program
from gradformer.training.run import Run
from gradformer.training.trials import summary


@undisturbed
def export(run: Run, out: str | Path, trial: int = 0, program: bool = False) -> Run:
    """Write the model of one trial into ``out``, a new folder or an empty one, all or nothing.

    It holds ``recipe.yaml``, ``data.json`` (what the inputs look like), ``results.json``,
    ``README.md`` (its card) and ``trials/0`` with ``model.safetensors``: a run of one trial that
    :meth:`Run.load` opens and that predicts, without checkpoints, records or any path of this
    machine. Of data it knows the benchmark's name, if it was one. ``program`` asks for
    ``program.pt2`` too, see :func:`~gradformer.training.program.export_program`.
    """
    out = Path(out)
    refuse_attempt(run)
    run.model(trial)  # raises where there is none
    is_new = _check_free(out)
    with held(out):
        try:
            _check_free(out)  # now that no other process exports there
            with filling(out) as unfinished:
                _write(run, unfinished, trial, program, out.absolute().name)
        finally:
            with suppress(OSError):  # a folder with the model is not empty
                (out / LOCK).unlink()
                if is_new:
                    out.rmdir()
    return Run.load(out)


def _check_free(out: Path) -> bool:
    """Raise unless there is nothing in ``out``; gives whether it is not there at all."""
    with writing(out):
        if not out.exists():
            return True
        if not is_free(out):
            raise InputError(f"{out}: exists already; choose another folder")
    return False


def _write(run: Run, out: Path, trial: int, program: bool, called: str) -> None:
    result = {**run.result(trial), "trial": 0}
    first, folds = run.recipe.seed, run.recipe.data.split == "kfold"
    name = Path(run.recipe.dataset).name
    if run.reading is not None:  # the name of a user's file may be that of a benchmark
        name = dataset_name(Path(name), run.recipe)
    recipe = replace(
        run.recipe,
        dataset=name,
        train=replace(run.recipe.train, weights=Path(run.recipe.train.weights).name),
        trials=1,
        seed=first if folds else first + trial,  # the first seed has dealt the folds
    )
    stored = read_json(run.folder / "data.json")
    if stored["origin"]["kind"] == "file":
        stored["origin"]["kind"] = "objects"  # nobody else has the file; all have a benchmark
    for place in ("path", "mirror", "options"):
        stored["origin"].pop(place, None)
    stored["origin"]["name"] = recipe.dataset
    weights = out / "trials" / "0" / WEIGHTS
    weights.parent.mkdir(parents=True)
    shutil.copyfile(run.place(trial) / WEIGHTS, weights)
    replace_json(weights.with_name("result.json"), result)
    replace_json(out / "data.json", stored)
    replace_json(out / "results.json", summary([result], result["metric"]))
    replace_file(out / "README.md", model_card(run, trial, called))
    if program:
        export_program(run, out / "program.pt2", trial)
    replace_file(out / RECIPE, recipe.to_yaml())


def best_trial(run: Run) -> int:
    """The trial with the best validation score; of those that have their weights, if any have."""
    results, kept = run.results, run.trials
    sign = 1 if results["lower_is_better"] else -1
    good = [trial for trial in results["trials"] if trial["test"] is not None]
    good = [trial for trial in good if trial["trial"] in kept] or good
    if not good:
        raise InputError(f"{run.folder}: no trial ended well, so there is nothing to export")
    best = min(good, key=lambda trial: sign * trial["val"][results["metric"]])
    return int(best["trial"])
