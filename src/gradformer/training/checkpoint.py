"""Checkpoints: a trial between two steps, as one file that any later process continues from.

``<trial>/checkpoint.safetensors`` holds weights, averaged weights, weights of the best epoch, both
vectors of the optimizer, losses of the epoch so far and counters of the model; ``state``, the rest
as JSON; and ``sha256``, a checksum of all these. A new one takes the place of the old at once. The
same state gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save as write_arrays
from safetensors.torch import load as read_tensors
from torch import Tensor

from gradformer.errors import InputError
from gradformer.training.files import RESUMABLE, reading, replace_file
from gradformer.training.trial import Progress, Trial
from gradformer.training.weights import counters

FORMAT = 2
FILE = "checkpoint.safetensors"
_ANEW = "to train this trial from the start"
REMEDY = f"restore the file, or remove it {_ANEW}"


def save_checkpoint(folder: Path, trial: Trial) -> None:
    """Write the state of ``trial`` into ``folder``, the trial's own."""
    state = {
        "format": FORMAT,
        "step": int(trial.step.count),
        "seed": trial.seed,
        "progress": asdict(trial.progress),
    }
    arrays = {**_arrays(trial), "state": np.frombuffer(json.dumps(state).encode(), np.uint8)}
    arrays["sha256"] = np.frombuffer(_checksum(arrays), np.uint8)
    replace_file(folder / FILE, write_arrays(arrays), RESUMABLE)


def has_checkpoint(folder: Path) -> bool:
    """Whether a trial was ever saved in ``folder``."""
    return (folder / FILE).exists()


def load_checkpoint(folder: Path, trial: Trial) -> bool:
    """Bring ``trial`` to the state in ``folder``; False if there is no checkpoint."""
    path, earlier = folder / FILE, folder / "checkpoints"
    if not path.exists():
        if earlier.is_dir():
            way = f"continue with that, or remove the folder {_ANEW}"
            raise InputError(f"{earlier}: an earlier version of gradformer wrote it; {way}")
        return False
    with reading(path, REMEDY):
        data = path.read_bytes()
    try:
        tensors = read_tensors(data)
    except SafetensorError as error:
        raise InputError(f"{path}: damaged ({error}); {REMEDY}") from None
    known = tensors.pop("sha256", torch.zeros(0))
    if bytes(known.tolist()) != _checksum({name: t.numpy() for name, t in tensors.items()}):
        raise InputError(f"{path}: damaged, its checksum is another; {REMEDY}")
    state = json.loads(bytes(tensors["state"].tolist()))
    for name, expected in (("format", FORMAT), ("seed", trial.seed)):
        if state[name] != expected:
            raise InputError(f"{path}: of {name} {state[name]}, expected {expected}; {REMEDY}")
    _restore(trial, tensors, path)
    trial.step.count.fill_(state["step"])
    trial.progress = Progress(**state["progress"])
    return True


def _checksum(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape}".encode())
        digest.update(arrays[name].tobytes())
    return digest.digest()


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


def _restore(trial: Trial, tensors: Mapping[str, Tensor], path: Path) -> None:
    kept = {
        f"{kind}/{name}": view
        for kind, vector in _vectors(trial).items()
        for name, view in trial.weights.views(vector).items()
    }
    for name, tensor in {**kept, **_counters(trial)}.items():
        stored = tensors.get(name)
        if stored is None or stored.shape != tensor.shape:
            came = "missing" if stored is None else f"shaped {list(stored.shape)}"
            raise InputError(f"{path}: {name} is {came}, expected {list(tensor.shape)}; {REMEDY}")
        tensor.copy_(stored)
    trial.losses = list(tensors["losses"].to(trial.weights.vector.device).unbind())
