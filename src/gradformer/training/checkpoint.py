"""Checkpoints: a trial between two steps, as files that any later process continues from.

``<trial>/checkpoints/epoch-00003-step-00000120/`` holds ``tensors.safetensors`` (weights, averaged
weights, weights of the best epoch, both vectors of the optimizer, losses of the epoch so far,
counters of the model) and ``state.json`` (the rest, and a checksum of the tensors).
``<trial>/checkpoints/latest`` names the folder to continue from. The folder is written under
another name, synced, renamed; the pointer follows; then the checkpoint before it is removed. The
same state gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from safetensors.numpy import save as write_arrays
from safetensors.torch import load as read_tensors
from torch import Tensor

from gradformer.errors import InputError
from gradformer.graphs.atomic import appearing
from gradformer.training.files import RESUMABLE, read_json, replace_file, writing
from gradformer.training.trial import Progress, Trial
from gradformer.training.weights import counters

FORMAT = 1
_ANEW = "or remove the folder 'checkpoints' to train this trial from the start"
REMEDY = f"restore the file, {_ANEW}"


def save_checkpoint(folder: Path, trial: Trial) -> None:
    """Write the state of ``trial`` under ``folder``, the trial's own."""
    place = folder / "checkpoints"
    step = int(trial.step.count)
    target = place / f"epoch-{trial.progress.epoch:05d}-step-{step:08d}"
    tensors = write_arrays(_arrays(trial))
    state = {
        "format": FORMAT,
        "step": step,
        "seed": trial.seed,
        "progress": asdict(trial.progress),
        "sha256": hashlib.sha256(tensors).hexdigest(),
    }
    with writing(target, RESUMABLE):
        if _latest(place) == target:
            return
        if target.exists():  # renamed by a process that was killed before it moved the pointer
            shutil.rmtree(target)
        with appearing(target) as unfinished:
            (unfinished / "tensors.safetensors").write_bytes(tensors)
            (unfinished / "state.json").write_text(json.dumps(state, indent=1) + "\n")
    replace_file(place / "latest", f"{target.name}\n", RESUMABLE)
    _tidy(place, target)


def has_checkpoint(folder: Path) -> bool:
    """Whether a trial was ever saved under ``folder``."""
    return (folder / "checkpoints" / "latest").exists()


def load_checkpoint(folder: Path, trial: Trial) -> bool:
    """Bring ``trial`` to the state under ``folder``; False if there is no checkpoint."""
    place = folder / "checkpoints"
    source = _latest(place)
    if source is None:
        return False
    state = _read_state(source / "state.json")
    path = source / "tensors.safetensors"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); {REMEDY}") from None
    if hashlib.sha256(data).hexdigest() != state["sha256"]:
        raise InputError(f"{path}: damaged, its checksum is another; {REMEDY}")
    if state["seed"] != trial.seed:
        of = f"of seed {state['seed']}, expected {trial.seed}"
        raise InputError(f"{source / 'state.json'}: {of}; {REMEDY}")
    _restore(trial, read_tensors(data), path)
    trial.step.count.fill_(state["step"])
    trial.progress = Progress(**state["progress"])
    _tidy(place, source)
    return True


def _read_state(path: Path) -> dict[str, Any]:
    """What :func:`save_checkpoint` writes beside the tensors, with all its keys."""
    state = read_json(path, remedy=REMEDY)
    if not isinstance(state, dict) or not isinstance(state.get("progress", {}), dict):
        raise InputError(f"{path}: not the state of a trial; {REMEDY}")
    if state.get("format") != FORMAT:
        came = f"format {state.get('format')}, this version reads {FORMAT}"
        raise InputError(f"{path}: {came}; {REMEDY}")
    expected = {"step", "seed", "sha256", *(f"progress.{each.name}" for each in fields(Progress))}
    found = {*state, *(f"progress.{name}" for name in state.get("progress", ()))}
    if wrong := expected ^ (found - {"format", "progress"}):
        raise InputError(f"{path}: missing or unknown: {', '.join(sorted(wrong))}; {REMEDY}")
    return state


def _tidy(place: Path, keep: Path) -> None:
    """Remove all checkpoints but one, and what was never finished."""
    with writing(place, RESUMABLE):
        for old in place.iterdir():
            if old.is_dir() and old != keep:
                shutil.rmtree(old, ignore_errors=True)


def _latest(place: Path) -> Path | None:
    """The folder that the pointer names, None if there is no pointer."""
    pointer = place / "latest"
    try:
        name = pointer.read_text(errors="replace").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{pointer}: cannot be read ({error.strerror}); {REMEDY}") from None
    if name not in [path.name for path in place.iterdir()]:
        into = "write the name of the folder beside it into it"
        raise InputError(f"{pointer}: names no checkpoint; {into}, {_ANEW}")
    return place / name


def _vectors(trial: Trial) -> dict[str, Tensor]:
    """Everything that a trial changes, as vectors laid out like its weights."""
    step = trial.step
    vectors = {
        "weights": trial.weights.vector,
        "best": trial.best,
        "mean": step.optimizer.mean,
        "square": step.optimizer.square,
    }
    return vectors if step.average is None else {**vectors, "average": step.average}


def _counters(trial: Trial) -> dict[str, Tensor]:
    return {f"counters/{name}": tensor for name, tensor in counters(trial.model).items()}


def _arrays(trial: Trial) -> dict[str, NDArray[Any]]:
    """Host copies by name, ``<vector>/<tensor>``: a vector at a time, since tensors are many."""
    found = {
        f"{kind}/{name}": view.numpy()
        for kind, vector in _vectors(trial).items()
        for name, view in trial.weights.views(vector.detach().cpu()).items()
    }
    counted = {name: t.cpu().numpy() for name, t in _counters(trial).items()}
    losses = torch.stack(trial.losses).cpu() if trial.losses else torch.zeros(0)
    return {**found, **counted, "losses": losses.numpy()}


def _restore(trial: Trial, tensors: dict[str, Tensor], path: Path) -> None:
    kept = {
        f"{kind}/{name}": view
        for kind, vector in _vectors(trial).items()
        for name, view in trial.weights.views(vector).items()
    }
    counted = {n: t for n, t in _counters(trial).items() if n in tensors}  # older files have none
    for name, tensor in {**kept, **counted}.items():
        stored = tensors.get(name)
        if stored is None or stored.shape != tensor.shape:
            came = "missing" if stored is None else f"shaped {list(stored.shape)}"
            raise InputError(f"{path}: {name} is {came}, expected {list(tensor.shape)}; {REMEDY}")
        tensor.copy_(stored)
    trial.losses = list(tensors["losses"].to(trial.weights.vector.device).unbind())
