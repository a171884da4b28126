"""What a run writes down: one JSON object a line, and the same curves for TensorBoard.

These are written here, not by TensorBoard's own writer, whose thread reports a full disk by a
traceback.
"""

from __future__ import annotations

import gzip
import json
import os
import platform
import subprocess
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from gradformer.errors import InputError, counted, warn
from gradformer.graphs.atomic import flush
from gradformer.training.distributed import processes
from gradformer.training.files import (
    REMADE,
    RESUMABLE,
    append,
    plain,
    read_json,
    replace_file,
    writing,
)

_LIBRARIES = ("gradformer", "torch", "torch_geometric", "triton", "numpy", "numba", "safetensors")
RECORD = "record.jsonl"
_DIGITS = 9  # tell any two float32 numbers apart
_RESULT = {"trial", "seed", "status", "metric", "epochs", "val", "test", "scale"}
_ATTEMPT = {"rung", "candidate", "settings", "epochs", "metric", "val", "std"}
_NEEDED = {"epoch": {"trial", "epoch"}, "result": _RESULT, "attempt": _ATTEMPT}


class Recorder:
    """Appends to ``record.jsonl``: a ``run`` line, then ``epoch`` and ``result`` lines."""

    def __init__(self, path: Path, tensorboard: bool = False) -> None:
        self.path = path
        with writing(path, RESUMABLE):
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115
        self._board = path.parent / "tensorboard" if tensorboard else None
        self._curves: dict[int, Curves] = {}

    def write(self, kind: str, **values: Any) -> None:
        line = json.dumps(plain({"kind": kind, **values}), ensure_ascii=False)
        with writing(self.path, RESUMABLE):
            append(self._file, f"{line}\n".encode())

    def epoch(self, trial: int, record: Mapping[str, Any]) -> None:
        """The values of one epoch of a trial."""
        self.write("epoch", trial=trial, **plain(dict(record), _DIGITS))
        if self._board is None:
            return
        try:
            if trial not in self._curves:
                self._curves[trial] = Curves(self._board / f"trial-{trial}", record["epoch"])
            self._curves[trial].add(record)
        except OSError as error:
            board, self._board = self._board, None
            warn(
                f"{board}: cannot be written ({error.strerror or error}); the run goes on without "
                "curves for TensorBoard"
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


class Curves:
    """An event file in ``folder``; it withdraws what earlier files hold from ``epoch`` on."""

    def __init__(self, folder: Path, epoch: int) -> None:
        from tensorboard.compat.proto.event_pb2 import SessionLog

        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"events.out.tfevents.{time.time_ns():019d}"  # read in the order of names
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115
        self._write(file_version="brain.Event:2")
        self._write(step=epoch, session_log=SessionLog(status=SessionLog.START))

    def add(self, record: Mapping[str, Any]) -> None:
        """The values of an epoch."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in _scalars(record)]
        self._write(step=record["epoch"], summary=Summary(value=values))

    def close(self) -> None:
        self._file.close()

    def _write(self, **values: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        buffer = BytesIO()
        RecordWriter(buffer).write(Event(wall_time=time.time(), **values).SerializeToString())
        append(self._file, buffer.getvalue())


def _scalars(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name in ("loss", "lr", "graphs_per_second"):
        if name in record:
            yield name, record[name]
    for name, value in record.get("val", {}).items():
        yield f"val/{name}", value
    for layer, starts in enumerate(record.get("starts", [])):
        for head, value in enumerate(starts):
            yield f"start/{layer}/{head}", value


def truncate(path: Path, epochs: Mapping[int, int]) -> None:
    """Forget what happened after the checkpoints: ``epochs`` done by each trial.

    Result lines are dropped too (whoever continues writes them again), and a line that a killed
    process left unfinished. A compressed record is made a plain one again.
    """
    kept = [
        entry
        for entry in read_record(path)
        if entry["kind"] not in ("epoch", "result")
        or (entry["kind"] == "epoch" and entry["epoch"] <= epochs.get(entry["trial"], 0))
    ]
    lost = sum(epochs.values()) - sum(entry["kind"] == "epoch" for entry in kept)
    if lost > 0:
        warn(f"{path}: has lost {counted(lost, 'epoch')} of training, which its curves leave out")
    lines = [json.dumps(entry, ensure_ascii=False) + "\n" for entry in kept]
    replace_file(path, "".join(lines), RESUMABLE)
    with writing(compressed(path)):
        compressed(path).unlink(missing_ok=True)


def compress(path: Path) -> None:
    """Keep the record of a run that has ended in a sixth of the room, as ``record.jsonl.gz``."""
    with writing(path):
        if not path.exists():
            return
        replace_file(compressed(path), gzip.compress(path.read_bytes(), mtime=0))
        path.unlink()


def compressed(path: Path) -> Path:
    """Where a compressed record lies."""
    return path.with_name(f"{path.name}.gz")


def _content(path: Path) -> bytes:
    """The bytes of a record, compressed or not; none where there is no record."""
    if path.exists():
        return path.read_bytes()
    return gzip.decompress(compressed(path).read_bytes()) if compressed(path).exists() else b""


def read_record(path: Path) -> list[dict[str, Any]]:
    """The lines of a record. An unfinished last line is left out; so are damaged lines, which are
    warned of."""
    try:
        text = _content(path).decode(errors="replace")
    except (OSError, EOFError, zlib.error) as error:
        what = f"cannot be read ({getattr(error, 'strerror', None) or error})"
        raise InputError(f"{path}: {what}; mend the permissions, or move it away") from None
    found = [(number, _entry(line)) for number, line in enumerate(text.split("\n"), 1) if line]
    damaged = [number for number, entry in found if entry is None and number <= text.count("\n")]
    if damaged:
        which = ", ".join(map(str, damaged[:5])) + " …" * (len(damaged) > 5)
        warn(f"{path}: damaged lines are left out: {which}; restore it if there is a copy")
    return [entry for _, entry in found if entry is not None]


def _entry(line: str) -> dict[str, Any] | None:
    """What a line holds; None if it is no line of a record."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    kind = entry.get("kind") if isinstance(entry, dict) else None
    whole = isinstance(kind, str) and _NEEDED.get(kind, set()) <= entry.keys()
    return entry if whole else None


def read_result(path: Path) -> dict[str, Any]:
    """``result.json``, the outcome of a trial."""
    found: dict[str, Any] = read_json(path, _RESULT, REMADE)
    return found


def read_results(path: Path) -> dict[str, Any]:
    """``results.json``, that of all trials."""
    found: dict[str, Any] = read_json(path, ("metric", "val", "test", "trials"), REMADE)
    return found


def header(record: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The line that began a run: recipe, data, environment, time; empty if it is not there."""
    return next((line for line in record if line["kind"] == "run"), {})


def environments(record: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Where a run began, and then where it was continued, each as :func:`environment` gave it."""
    return [line["environment"] for line in record if "environment" in line]


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, device and commit: what a number depends on besides its recipe."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    return {
        "python": platform.python_version(),
        "versions": {library: installed(library) for library in _LIBRARIES},
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


def installed(library: str) -> str | None:
    """The version of a library; None where it is not installed."""
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
