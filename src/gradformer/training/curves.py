"""The curves of a trial for TensorBoard, written epoch by epoch.

Written here, not by TensorBoard's own writer, whose thread reports a full disk by a traceback.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

from gradformer.training.files import append


class Curves:
    """An event file in ``folder``; what earlier ones hold from ``epoch`` on is taken back."""

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
