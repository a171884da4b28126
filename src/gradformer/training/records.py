"""What a run writes down: one JSON object a line, and the same curves for TensorBoard."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from gradformer.errors import warn
from gradformer.graphs.atomic import flush
from gradformer.training.curves import Curves
from gradformer.training.distributed import processes
from gradformer.training.files import RESUMABLE, append, plain, replace_file, writing

_LIBRARIES = ("gradformer", "torch", "torch_geometric", "triton", "numpy", "numba", "safetensors")
_DIGITS = 9  # tell any two float32 numbers apart


class Recorder:
    """Appends to ``record.jsonl``: a ``run`` line, then ``epoch`` and ``result`` lines."""

    def __init__(self, path: Path, tensorboard: bool = False) -> None:
        self.path = path
        with writing(path, RESUMABLE):
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115
        self._tensorboard = tensorboard
        self._curves: dict[int, Curves] = {}

    def write(self, kind: str, **values: Any) -> None:
        line = json.dumps(plain({"kind": kind, **values}), ensure_ascii=False)
        with writing(self.path, RESUMABLE):
            append(self._file, f"{line}\n".encode())

    def epoch(self, trial: int, record: Mapping[str, Any]) -> None:
        """The values of one epoch of a trial."""
        self.write("epoch", trial=trial, **plain(dict(record), _DIGITS))
        if self._tensorboard:
            try:
                self._curves_of(trial, int(record["epoch"])).add(record)
            except OSError as error:
                self._tensorboard = False
                warn(
                    f"{self._board}: cannot be written ({error.strerror or error}); the run goes "
                    "on without curves for TensorBoard"
                )

    def sync(self) -> None:
        """Bring everything written to the disk: called before a checkpoint refers to it."""
        with writing(self.path, RESUMABLE):
            flush(self.path)

    def close(self) -> None:
        """Nothing more is written."""
        self._file.close()
        for curves in self._curves.values():
            curves.close()

    @property
    def _board(self) -> Path:
        return self.path.parent / "tensorboard"

    def _curves_of(self, trial: int, epoch: int) -> Curves:
        if trial not in self._curves:
            self._curves[trial] = Curves(self._board / f"trial-{trial}", epoch)
        return self._curves[trial]


def truncate(path: Path, epochs: Mapping[int, int]) -> None:
    """Forget what happened after the checkpoints: ``epochs`` done by each trial.

    Result lines are dropped too (whoever continues writes them again), and a line that a killed
    process left unfinished.
    """
    kept = [
        json.dumps(entry, ensure_ascii=False)
        for entry in read_record(path)
        if entry["kind"] not in ("epoch", "result")
        or (entry["kind"] == "epoch" and entry["epoch"] <= epochs.get(entry["trial"], 0))
    ]
    replace_file(path, "".join(line + "\n" for line in kept), RESUMABLE)


def read_record(path: Path) -> list[dict[str, Any]]:
    """The lines of a record, less one that was never finished."""
    entries = []
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    for line in text.split("\n"):
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(entry, dict) and "kind" in entry:
            entries.append(entry)
    return entries


def header(record: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The line that began a run: recipe, data, environment, time; empty if it is not there."""
    return next((line for line in record if line["kind"] == "run"), {})


def environments(record: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Where a run began, and then where it was continued, each as :func:`environment` gave it."""
    return [line["environment"] for line in record if line["kind"] in ("run", "resume")]


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, device and commit: what a number depends on besides its recipe."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    return {
        "python": platform.python_version(),
        "versions": {library: _version(library) for library in _LIBRARIES},
        "device": device.type,
        "device_name": name,
        "threads": torch.get_num_threads(),
        "processes": processes(),
        "commit": _commit(),
    }


def _processor() -> str:
    """The model of the CPU; where the system does not tell it, the architecture."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    models = (line.partition(":")[2] for line in text.split("\n") if line.startswith("model name"))
    return next(models, "").strip() or platform.processor() or platform.machine()


def _version(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the source: told by ``GRADFORMER_COMMIT``, or asked of its repository."""
    if told := os.environ.get("GRADFORMER_COMMIT"):
        return told
    try:
        done = subprocess.run(
            ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
