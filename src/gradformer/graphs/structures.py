"""What a store computes from the graphs alone, once, before any training.

The options are a :class:`Structure`; a model that needs more than distances and encodings
registers a function of its own and names it in ``extras``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, asdict, dataclass
from typing import Any, Literal, get_args

from numpy.typing import NDArray

from gradformer.errors import ConfigError, at_least, choice, counted
from gradformer.graphs.arrays import GraphArrays, tupled
from gradformer.progress import bar
from gradformer.structure.codebook import HOPS, Codebook
from gradformer.structure.encodings import LAPLACIAN_VERSION, laplacian, random_walk
from gradformer.structure.index import Index, pair_index
from gradformer.yaml_text import parse_yaml

Array = NDArray[Any]
#: What the rows of an array belong to.
Kind = Literal["node", "edge", "pair", "graph"]


@dataclass(frozen=True)
class Structure:
    """Options of the structural index ψ and of the encodings; part of a store's key.

    Args:
        index: the pair index ψ, one byte a pair; None for models that need no pairs.
        symmetric: take edges as undirected when hops are counted.
        rwse: steps of the random-walk encoding, 0 for none.
        lap: Laplacian eigenvectors, 0 for none.
        extras: registered structures, each ``"name"`` or ``"name:option=value,option=value"``.
    """

    index: Index | None = "hops"
    _: KW_ONLY
    symmetric: bool = False
    rwse: int = 0
    lap: int = 0
    extras: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.index is not None:
            choice("structure.index", self.index, get_args(Index))
        for name in ("rwse", "lap"):
            at_least(f"structure.{name}", getattr(self, name), 0)
        for extra in self.extras:
            _parse(extra)

    @classmethod
    def encoded(cls, pe: str, steps: int, index: Any = None) -> Structure:
        """With the encoding ``pe`` (rwse, lap or none) of so many steps."""
        return cls(index, rwse=steps * (pe == "rwse"), lap=steps * (pe == "lap"))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a file or a hash, with the versions of what may have changed."""
        versions = {extra: _REGISTRY[_parse(extra)[0]].version for extra in self.extras}
        if self.lap:
            versions["lap"] = LAPLACIAN_VERSION
        return {**asdict(self), "extras": list(self.extras), "versions": versions}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Structure:
        """From plain values, also those of :meth:`to_dict`."""
        return cls(**{k: value for k, value in tupled(values).items() if k != "versions"})


@dataclass(frozen=True)
class _Registered:
    function: Callable[..., dict[str, Array]]
    kind: Kind
    version: int


_REGISTRY: dict[str, _Registered] = {}


def register_structure(
    name: str, function: Callable[..., dict[str, Array]], kind: Kind, version: int = 1
) -> None:
    """Make ``function(arrays, **options)`` available to ``Structure(extras=(name,))``.

    It receives the graphs with edges already sorted by destination and returns arrays by name,
    whose rows belong to ``kind``: [N, ·], [E, ·], [Σn², ·] or [graphs, ·]. Raise ``version`` when
    its values change, so that old stores are not taken for new ones.
    """
    choice("kind", kind, get_args(Kind))
    _REGISTRY[name] = _Registered(function, kind, version)


def _parse(extra: str) -> tuple[str, dict[str, Any]]:
    """``"name:a=1,b=x"`` as a name and options, values read as YAML."""
    name, _, rest = extra.partition(":")
    choice("structure.extras", name, _REGISTRY)
    options = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise ConfigError(f"structure.extras: {extra!r} has {part!r}, expected option=value")
        options[key.strip()] = parse_yaml(value)
    return name, options


def compute(
    arrays: GraphArrays, structure: Structure, codebook: Codebook | None = None
) -> tuple[dict[str, tuple[Kind, Array]], Codebook]:
    """All that ``structure`` asks for, by name with its kind, and what the pair bytes mean.

    ``codebook`` is that of an earlier store, to give new graphs the same bytes.
    """
    graphs = (arrays.node_ptr, arrays.edge_ptr, arrays.edge_index)
    found: dict[str, tuple[Kind, Array]] = {}
    if structure.index is not None:
        with bar("pair index", arrays.num_graphs) as advance:
            distance, codebook = pair_index(
                structure.index,
                *graphs,
                arrays.x,
                symmetric=structure.symmetric,
                codebook=codebook,
                progress=advance,
            )
        found["distance"] = ("pair", distance)
    if structure.rwse:
        with bar("random walks", arrays.num_graphs) as advance:
            found["rwse"] = ("node", random_walk(*graphs, structure.rwse, progress=advance))
    if structure.lap:
        with bar("eigenvectors", arrays.num_graphs) as advance:
            vectors, _ = laplacian(*graphs, structure.lap, progress=advance)
        found["lap"] = ("node", vectors)
    for extra in structure.extras:
        name, options = _parse(extra)
        registered = _REGISTRY[name]
        for array_name, value in registered.function(arrays, **options).items():
            if array_name in found:
                raise ConfigError(f"structure.extras: {extra!r} gives {array_name!r} a second time")
            found[array_name] = (registered.kind, value)
    _check_rows(arrays, found)
    return found, codebook or HOPS


def _check_rows(arrays: GraphArrays, found: dict[str, tuple[Kind, Array]]) -> None:
    rows = {
        "node": int(arrays.node_ptr[-1]),
        "edge": int(arrays.edge_ptr[-1]),
        "pair": arrays.num_pairs,
        "graph": arrays.num_graphs,
    }
    for name, (kind, value) in found.items():
        if len(value) != rows[kind]:
            has = counted(len(value), "row")
            raise ConfigError(f"structure array {name!r} has {has}, expected {rows[kind]} ({kind})")
