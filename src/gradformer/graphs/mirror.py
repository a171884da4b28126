"""Where raw files come from: a mirror on disk, or PyG's download into the cache.

A mirror is any folder with the paths that the cards list. It is named by ``--data`` or
``GRADFORMER_DATA``; without one, files are fetched once into ``<cache>/raw``, which has the same
layout.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import sys
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from gradformer.errors import InputError, warn
from gradformer.graphs.cards import Card


def cache_folder() -> Path:
    """Where downloads and stores are kept: ``GRADFORMER_CACHE``, else ~/.cache/gradformer."""
    named = os.environ.get("GRADFORMER_CACHE")
    try:
        return Path(named).expanduser() if named else Path.home() / ".cache" / "gradformer"
    except RuntimeError:  # no HOME, and a user whom the system does not know
        raise InputError(
            "the home folder is not known, so neither is the cache in it; name one with "
            "GRADFORMER_CACHE"
        ) from None


@dataclass(frozen=True)
class RawFiles:
    """The files of one dataset under ``root``; ``sums`` are their sha256 as found, by path."""

    root: Path
    sums: dict[str, str]
    unknown: tuple[str, ...] = ()

    def read(self, path: str) -> bytes:
        """The content of a file, unpacked if its name ends in .gz."""
        try:
            content = (self.root / path).read_bytes()
            return gzip.decompress(content) if path.endswith(".gz") else content
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{self.root / path} cannot be read: {error}") from None

    def read_member(self, archive: str, member: str) -> bytes | None:
        """The content of one file in a zip; None if it is not there. Folders in it are ignored."""
        try:
            with zipfile.ZipFile(self.root / archive) as zipped:
                for name in zipped.namelist():
                    if name.rpartition("/")[2] == member:
                        return zipped.read(name)
        except (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
            raise InputError(f"{self.root / archive} cannot be read: {error}") from None
        return None


def raw_files(
    card: Card, data: str | os.PathLike[str] | None = None, *, may_fetch: bool = True
) -> RawFiles:
    """Find the files of ``card`` and check their sums.

    If no mirror is named they are in the cache; if they are not, they are fetched, unless
    ``may_fetch`` is false: then that is an error.

    A file that differs from the card is used, warned about, and listed in ``unknown``.
    """
    named = data or os.environ.get("GRADFORMER_DATA")
    root = Path(os.path.expanduser(named)) if named else cache_folder() / "raw"
    if card.published and (root / card.published).is_file():
        warn(f"{card.name}: no checksum of {card.published} is known; the file's own is recorded")
        return RawFiles(root, {card.published: _sum(root / card.published)})
    if named:
        or_not = ", or leave --data and GRADFORMER_DATA out to have it fetched" * may_fetch
        _require_files(card, root, f"the mirror {root}; put it there{or_not}")
    elif may_fetch:
        fetch(card, root)
    else:
        _require_files(card, root, f"the cache {root}; gradformer data fetch {card.name} gets it")
    sums = {path: _sum(root / path) for path in sorted(card.files)}
    unknown = tuple(path for path, found in sums.items() if found != card.files[path])
    if unknown:
        warn(
            f"{card.name}: checksum of {', '.join(unknown)} under {root} differs from the card; "
            "the files are used and the difference is recorded"
        )
    return RawFiles(root, sums, unknown)


def fetch(card: Card, root: Path) -> None:
    """Download what is missing of ``card`` into ``root``; each file appears when it is complete."""
    for path, address in card.download.items():
        whole_folder = path.endswith("/")
        wanted = [file for file in card.files if file.startswith(path)] if whole_folder else [path]
        if all((root / file).is_file() for file in wanted):
            continue
        from torch_geometric.data import download_url  # importing PyG takes seconds

        print(f"{card.name}: fetching {address} into {root / path}", file=sys.stderr)
        _make_folder(root)
        try:
            with tempfile.TemporaryDirectory(dir=root) as waiting:
                got = Path(download_url(address, waiting, log=False, filename="file"))
                if whole_folder:
                    _unpack(got, root / path)
                else:
                    _move(got, root / path)
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise InputError(
                f"{card.name}: {address} could not be fetched ({error}); offline, put "
                f"{', '.join(wanted)} under a folder and name it with --data or GRADFORMER_DATA"
            ) from None


def _make_folder(root: Path) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{root} cannot be made ({error.strerror}); name another folder with GRADFORMER_CACHE"
        ) from None


def _require_files(card: Card, root: Path, where: str) -> None:
    for path in card.files:
        if not (root / path).is_file():
            raise InputError(f"{card.name}: {path} is missing from {where}")


def _sum(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack a zip beside it, and then move its files, without their top folder, to ``folder``."""
    unpacked = archive.with_name("unpacked")
    with zipfile.ZipFile(archive) as zipped:
        inside = [name for name in zipped.namelist() if ".." not in Path(name).parts]
        zipped.extractall(unpacked, inside)
    for path in unpacked.rglob("*"):
        _, *inner = path.relative_to(unpacked).parts
        if inner and path.is_file():
            _move(path, folder.joinpath(*inner))


def _move(file: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    os.replace(file, place)
