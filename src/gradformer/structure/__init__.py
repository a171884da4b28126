"""What a graph tells before training: pair distances, one byte each, and node encodings.

``index`` chooses what a distance is: hops (``distance``), ``curvature`` (by ``transport``) or
``similarity``; a ``codebook`` says what its bytes mean. ``encodings`` are of nodes, ``paths`` of
pairs. ``adjacency`` has the neighbour lists, ``pointers`` where things begin, ``parallel`` the
threads and the compiler; ``transforms`` is all of it for PyG.
"""

from typing import TYPE_CHECKING, Any

from gradformer.structure.codebook import FAR, HOPS, SATURATED, UNREACHABLE, Codebook
from gradformer.structure.curvature import curvature_distances
from gradformer.structure.distance import hop_distances
from gradformer.structure.encodings import laplacian, random_walk
from gradformer.structure.pointers import pair_pointer
from gradformer.structure.similarity import similarity_distances

if TYPE_CHECKING:
    from gradformer.structure.transforms import AddDistance, AddLaplacian, AddRandomWalk


def __getattr__(name: str) -> Any:
    """The PyG transforms on first use: importing PyG takes seconds."""
    if name in ("AddDistance", "AddLaplacian", "AddRandomWalk"):
        from gradformer.structure import transforms

        return getattr(transforms, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
