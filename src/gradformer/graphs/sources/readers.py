"""Which reader a card names, and how it gets at its files."""

from __future__ import annotations

from collections.abc import Callable

from gradformer.errors import choice
from gradformer.graphs import sbm
from gradformer.graphs.arrays import GraphArrays
from gradformer.graphs.cards import Card
from gradformer.graphs.mirror import RawFiles
from gradformer.graphs.sources.actor import read_actor
from gradformer.graphs.sources.molhiv import read_molhiv
from gradformer.graphs.sources.peptides import read_peptides
from gradformer.graphs.sources.planetoid import read_planetoid
from gradformer.graphs.sources.sbm_file import read_sbm_file
from gradformer.graphs.sources.tu import read_tu
from gradformer.graphs.sources.zinc import read_zinc

READERS_VERSION = 1
"""Raise it when a reader or generator gives other arrays for the same files."""

Reader = Callable[[Card, RawFiles], GraphArrays]


def read_card(card: Card, files: RawFiles) -> GraphArrays:
    """The graphs of ``card``."""
    return _READERS[choice(f"{card.name}: reader", card.reader, _READERS)](card, files)


def _tu(card: Card, files: RawFiles) -> GraphArrays:
    name = card.options["name"]
    return read_tu(name, lambda kind: files.read_member(f"TU/{name}.zip", f"{name}_{kind}.txt"))


def _zinc(_: Card, files: RawFiles) -> GraphArrays:
    def read(name: str) -> bytes | None:
        """Pickles come from the archive, whose checksum was taken; the original one has no index,
        which is then beside it."""
        inside = files.read_member("ZINC/molecules.zip", name)
        beside = inside is None and name.endswith(".index")
        if beside and (files.root / "ZINC" / name).is_file():
            return files.read(f"ZINC/{name}")
        return inside

    return read_zinc(read)


def _planetoid(card: Card, files: RawFiles) -> GraphArrays:
    name = card.options["name"]
    folder = f"Planetoid/{name}/raw/ind.{name.lower()}"
    return read_planetoid(name.lower(), lambda kind: files.read(f"{folder}.{kind}"))


def _under(folder: str, read: Callable[[Callable[[str], bytes]], GraphArrays]) -> Reader:
    """``read`` of files that lie in one folder of the mirror."""
    return lambda _, files: read(lambda path: files.read(f"{folder}/{path}"))


def _sbm(draw: Callable[..., GraphArrays], vocabulary: int, classes: int) -> Reader:
    """The published file where there is one, else graphs that are drawn."""

    def read(card: Card, files: RawFiles) -> GraphArrays:
        if card.published in files.sums:
            return read_sbm_file(files.read(card.published), card.published, vocabulary, classes)
        return draw(**card.options)

    return read


_READERS: dict[str, Reader] = {
    "tu": _tu,
    "zinc": _zinc,
    "molhiv": _under("ogbg_molhiv", read_molhiv),
    "planetoid": _planetoid,
    "actor": _under("Actor/raw", read_actor),
    "peptides": _under("peptides-functional", read_peptides),
    "pattern": _sbm(sbm.pattern, 3, 2),
    "cluster": _sbm(sbm.cluster, 7, 6),
}
