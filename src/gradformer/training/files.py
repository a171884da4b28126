"""Files of a run: written whole or not at all, and errors that say what to do."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO

from gradformer.errors import ConfigError, InputError
from gradformer.graphs.atomic import flush, lock

ELSEWHERE = ", or choose another place"
RESUMABLE = ", then continue with --resume (from the last checkpoint, if there is one)"
DAMAGED = "the run is damaged: restore this file, or move the run away and train again"
REMADE = "restore this file, or delete it and say --resume, which makes it again"
STREAMS = {"/dev/stdout": 1, "/dev/stderr": 2}


@contextmanager
def writing(path: Path, then: str = ELSEWHERE) -> Iterator[None]:
    """Turn a failure of the disk into one line; what was there before is still there."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror or error}); make room or mend the "
            f"permissions{then}"
        ) from error


def expect_place(path: Path, *endings: str, source: str | None = None) -> None:
    """Raise, before work that lasts, if :func:`replace_file` cannot write ``path``, if the name of
    a file has none of the ``endings``, or if the file is ``source``, which would be lost."""
    if source and os.path.exists(path) and os.path.realpath(source) == os.path.realpath(path):
        raise ConfigError(f"--out {path}: is the file that is read; name another")
    if os.path.isdir(path):
        raise InputError(f"{path}: is a folder; name a file to write")
    if _is_stream(path):
        return
    if endings and path.suffix.lower() not in endings:
        raise ConfigError(f"--out {path}: expected a name that ends in {' or '.join(endings)}")
    folder = next(above for above in Path(os.path.realpath(path)).parents if os.path.exists(above))
    with writing(path):
        if not folder.is_dir():
            raise NotADirectoryError(f"{folder} is no folder")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(f"{folder} may not be written to")


def _is_stream(path: Path) -> bool:
    """Whether ``path`` is written to, and not replaced."""
    return str(path) in STREAMS or (os.path.exists(path) and not os.path.isfile(path))


def replace_file(path: Path, content: str | bytes, then: str = ELSEWHERE) -> None:
    """Write ``path`` so that, whenever the process ends, it holds the old or the new content.

    Folders on the way to it are made. What a link leads to is replaced and the link stays; a pipe,
    a device and /dev/stdout, whatever it leads to, are written to. Processes that write the same
    file take turns. ``then`` is what to do once the disk is mended.
    """
    if os.path.isdir(path):
        raise InputError(f"{path}: is a folder; name a file to write")
    try:
        data = content.encode() if isinstance(content, str) else content
    except UnicodeEncodeError:  # Python allows file names that are no UTF-8
        what = "the name of a file or folder in it is not UTF-8; rename that"
        raise InputError(f"{path}: cannot be written, since {what}") from None
    if _is_stream(path):
        place = STREAMS.get(str(path), path)  # by number, so as to go on where it is
        with writing(path, then), open(place, "wb", closefd=place is path) as file:
            file.write(data)
        return
    target = Path(os.path.realpath(path))
    unfinished = target.with_name(f".{target.name}.unfinished")
    with writing(path, then):
        target.parent.mkdir(parents=True, exist_ok=True)
        with _taken(unfinished) as file:
            try:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                unfinished.replace(target)
            except OSError:
                unfinished.unlink(missing_ok=True)
                raise
        flush(target.parent)


@contextmanager
def _taken(path: Path) -> Iterator[IO[bytes]]:
    """``path`` opened to be written anew and then renamed, while no other process has it open so.

    While a process waits for the lock, another may have renamed the file that it waits for: then
    it opens ``path`` again.
    """
    while True:
        with open(path, "ab") as file:
            with suppress(OSError):  # a disk without locks
                lock(file)
            if _names(path, file):
                file.truncate(0)
                yield file
                return


def _names(path: Path, file: IO[bytes]) -> bool:
    """Whether ``path`` is still a name of the open ``file``."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def replace_json(path: Path, value: Any, then: str = ELSEWHERE) -> None:
    """:func:`replace_file` with JSON; NaN, which JSON lacks, is written as null."""
    replace_file(path, json.dumps(plain(value), indent=1, ensure_ascii=False) + "\n", then)


def append(file: BinaryIO, data: bytes) -> None:
    """Write all of ``data``, also to a file without a buffer, which cannot fail when closed.

    A full disk takes a part of the data, and refuses the rest.
    """
    while data:
        data = data[file.write(data) :]


@contextmanager
def reading(path: Path, remedy: str = DAMAGED) -> Iterator[None]:
    """Turn whatever a damaged file of a run leads to into one line."""
    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be read ({reason}); {remedy}") from None


def read_json(path: Path, needed: Collection[str] = (), remedy: str = DAMAGED) -> Any:
    """The content of a JSON file of a run; an object with at least the keys ``needed``."""
    with reading(path, remedy):
        value = json.loads(path.read_text(encoding="utf-8"))
        if needed and not (isinstance(value, dict) and value.keys() >= {*needed}):
            raise ValueError(f"it has not all of {', '.join(sorted(needed))}")
        return value


def plain(value: Any, digits: int | None = None, words: bool = False) -> Any:
    """``value`` with None, or a word such as inf, in the place of every number that is not finite.

    Other numbers keep all their digits, or so many:

    >>> plain({"loss": 1.382678254699707, "starts": [float("nan"), -math.inf, math.inf]}, digits=9)
    {'loss': 1.38267825, 'starts': [None, None, None]}
    >>> plain({"clip": math.inf}, words=True)
    {'clip': 'inf'}
    """
    if isinstance(value, dict):
        return {key: plain(item, digits, words) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, digits, words) for item in value]
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return str(value) if words else None
    return value if digits is None else float(f"{value:.{digits}g}")
