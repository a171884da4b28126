"""Attention as pictures: a drawn graph with its strongest links, and the matrix of all pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from gradformer.graphs.store import Store
from gradformer.report.markup import Markup, tag
from gradformer.report.matrices import matrix_cells
from gradformer.report.plots import Picture, place
from gradformer.structure.codebook import UNREACHABLE
from gradformer.structure.parallel import one_blas_thread

Array = NDArray[np.float64]

SIZE = 220.0
_EDGE = 14.0
_LINKS_PER_NODE = 1.5
_FULL = 3.0


@dataclass(frozen=True)
class Sketch:
    """A graph on the plane: ``places`` [n, 2] from 0 to 1, ``bonds`` each once, ``hops`` [n, n].

    ``hops`` is None where the pair index of the store counts no hops; unreachable pairs are NaN.
    ``labels`` are written on the nodes, if given.
    """

    places: Array
    bonds: list[tuple[int, int]]
    hops: Array | None
    labels: tuple[str, ...] = ()

    @property
    def nodes(self) -> int:
        return len(self.places)


def sketch(store: Store, graph: int) -> Sketch:
    """Lay out one graph of a store."""
    nodes, edges = int(store.sizes[graph]), _rows(store, "edge_ptr", graph)
    ends = zip(store.arrays["source"][edges].tolist(), store.arrays["target"][edges].tolist())
    bonds = sorted({(min(i, j), max(i, j)) for i, j in ends if i != j})
    hops = None
    if store.codebook.name == "hops" and "distance" in store.arrays:
        byte = store.arrays["distance"][_rows(store, "pair_ptr", graph)].reshape(nodes, nodes)
        hops = np.where(byte == UNREACHABLE, np.nan, byte.astype(np.float64))
    return Sketch(lay_out(nodes, bonds), bonds, hops)


def _rows(store: Store, pointer: str, graph: int) -> slice:
    """The rows of a graph in the arrays that ``pointer`` points into."""
    return slice(*store.arrays[pointer][graph : graph + 2].tolist())


def lay_out(nodes: int, bonds: list[tuple[int, int]]) -> Array:
    """Places [n, 2], as wide as 1: each component by its distances, components side by side."""
    graph = nx.Graph()
    graph.add_nodes_from(range(nodes))
    graph.add_edges_from(bonds)
    places = np.zeros((nodes, 2))
    right = 0.0
    for part in sorted(nx.connected_components(graph), key=lambda c: (-len(c), min(c))):
        members = sorted(part)
        own = _spread_out(graph.subgraph(members))
        own = _turned(own - own.mean(axis=0))
        own = own / max(np.ptp(own, axis=0).max(), 1e-9) * np.sqrt(len(members) - 0.9)
        own -= own.min(axis=0)
        places[members] = own + np.array([right, 0.0])
        right += np.ptp(own[:, 0]) + 0.6
    return places / max(float(places.max()), 1e-9)


def draw_graph(title: str, graph: Sketch, weight: Array, full: float) -> Picture:
    """The graph; nodes filled by the attention they receive, arcs for the strongest links.

    ``weight`` [n, n] has a row for each query. A link is drawn by how far it is above the even
    share 1/n, up to ``full``: the same for pictures that are to be compared.
    """
    at = _EDGE + graph.places * (SIZE - 2 * _EDGE)
    lines = "".join(_straight(at[i], at[j]) for i, j in graph.bonds)
    thin = min(1.6, 4.0 * graph.nodes / max(len(graph.bonds), 1))
    parts = [tag("path", d=lines, class_="bond", stroke_width=f"{thin:.2f}")]
    parts += _links(graph, at, weight, full)
    received = np.minimum(weight.mean(axis=0) * graph.nodes / _FULL, 1.0)
    circle = {"r": place(_radius(graph.nodes))}
    for (x, y), share in zip(at, received):
        centre = {"cx": place(x), "cy": place(y), **circle}
        parts.append(tag("circle", class_="node", **centre))
        parts.append(tag("circle", class_="heat", opacity=f"{share:.2f}", **centre))
    for (x, y), label in zip(at, graph.labels):
        parts.append(tag("text", label, x=place(x), y=place(y + 3.2), class_="atom"))
    return Picture(title, *parts, width=SIZE, height=float(at[:, 1].max()) + _EDGE)


def draw_matrix(title: str, values: Array, low: float, high: float) -> Picture:
    """All pairs [n, n] as a matrix, query by row; ``low`` is blank and ``high`` full colour."""
    share = (values - low) / max(high - low, 1e-12)
    size = (SIZE - 4) / len(values)
    border = f"M2 2H{place(SIZE - 2)}V{place(SIZE - 2)}H2Z"
    return Picture(
        title,
        matrix_cells(share, 2, 2, size),
        tag("path", d=border, class_="axis"),
        width=SIZE,
        height=SIZE,
    )


def side_by_side(
    graph: str, seen: Sequence[tuple[str, Sketch, Array]]
) -> list[tuple[str, list[Picture], str]]:
    """Patterns (name, drawing, weight [n, n]) of one graph, on one scale.

    Gives for each its name, the drawn graph and the matrix of all pairs, and in words how spread it
    is.
    """
    low, full = contrast(*(weight for _, _, weight in seen))
    found = []
    for name, drawing, weight in seen:
        pictures = [
            draw_graph(f"{graph} with attention, {name}", drawing, weight, full),
            draw_matrix(f"Attention of all pairs of {graph}, {name}", weight, low, full),
        ]
        found.append((name, pictures, focus(weight, drawing.hops)))
    return found


SEES = (
    "Sees: how many nodes even weights of the same entropy would go to, and how far these are, by "
    "weight."
)


def focus(weight: Array, hops: Array | None) -> str:
    """How spread a pattern is, in words: :data:`SEES`, mean over the nodes."""
    entropy = -(weight * np.log(np.maximum(weight, 1e-30))).sum(axis=1)
    text = f"sees {np.exp(entropy).mean():.1f} of {len(weight)} nodes"
    if hops is None:
        return text
    known = np.isfinite(hops)
    reach = (weight * np.where(known, hops, 0.0)).sum() / max(weight[known].sum(), 1e-12)
    return f"{text}, {reach:.1f} hops away"


def contrast(*weights: Array) -> tuple[float, float]:
    """The weights shown blank and in full colour: all but the 2 % at either end, and at least from
    a half to one and a half even shares 1/n, so that what is nearly even looks even."""
    even = 1.0 / len(weights[0])
    low, high = np.quantile(np.stack(weights), [0.02, 0.98])
    return min(float(low), 0.5 * even), max(float(high), 1.5 * even)


def _radius(nodes: int) -> float:
    return float(np.clip(26.0 / np.sqrt(nodes), 2.2, 7.0))


def _links(graph: Sketch, at: Array, weight: Array, full: float) -> list[Markup]:
    radius = _radius(graph.nodes)
    i, j = np.triu_indices(graph.nodes, 1)
    strength = ((weight + weight.T) / 2)[i, j] - 1.0 / graph.nodes
    strongest = np.argsort(-strength, kind="stable")[: round(_LINKS_PER_NODE * graph.nodes)]
    bonds = set(graph.bonds)
    parts = []
    for k in strongest[::-1]:
        share = min(float(strength[k]) / (full - 1.0 / graph.nodes), 1.0)
        if share < 0.02:
            continue
        a, b = int(i[k]), int(j[k])
        parts.append(
            tag(
                "path",
                d=_straight(at[a], at[b]) if (a, b) in bonds else _arc(at[a], at[b]),
                class_="link",
                opacity=f"{0.15 + 0.75 * share:.2f}",
                stroke_width=f"{0.6 + 0.63 * radius * share:.1f}",
            )
        )
    return parts


def _straight(a: Array, b: Array) -> str:
    return f"M{place(a[0])} {place(a[1])}L{place(b[0])} {place(b[1])}"


def _arc(a: Array, b: Array) -> str:
    """A bent line, so that a link over other nodes can be told from a bond."""
    middle = (a + b) / 2 + 0.16 * np.array([b[1] - a[1], a[0] - b[0]])
    turn = np.clip(middle, 0.0, SIZE)
    begin, bend, end = (f"{place(p[0])} {place(p[1])}" for p in (a, turn, b))
    return f"M{begin}Q{bend} {end}"


def _spread_out(graph: nx.Graph) -> Array:
    """Places [n, 2] of a connected graph by Kamada and Kawai, whose springs rest at the distances.

    They can get stuck with crossed edges, so they begin twice: on a circle, and where two axes keep
    the distances best (classical scaling). The less strained drawing is taken.
    """
    nodes = len(graph)
    if nodes < 3:
        return np.eye(nodes, 2)
    hops = nx.floyd_warshall_numpy(graph)
    centre = np.eye(nodes) - 1.0 / nodes
    value, axes = np.linalg.eigh(-0.5 * centre @ hops**2 @ centre)
    apart = np.cos(np.arange(nodes)[:, None] + np.array([0.0, 1.57]))  # twins must not coincide
    scaled = axes[:, :-3:-1] * np.sqrt(np.maximum(value[:-3:-1], 0.0)) + 0.01 * apart
    starts = (None, dict(zip(graph, scaled)))
    known = {node: dict(zip(graph, row)) for node, row in zip(graph, hops)}
    with one_blas_thread():  # else a minimum of sixty numbers takes seconds where cores are busy
        drawn = [np.array([*nx.kamada_kawai_layout(graph, known, p).values()]) for p in starts]
    return min(drawn, key=lambda places: round(_strain(places, hops), 3))


def _strain(places: Array, hops: Array) -> float:
    """Mean squared relative error of the distances of a drawing, at its best size."""
    pairs = np.triu_indices(len(places), 1)
    ratio = np.linalg.norm(places[:, None] - places[None], axis=2)[pairs] / hops[pairs]
    size = ratio.sum() / (ratio**2).sum()
    return float(np.square(size * ratio - 1.0).mean())


def _turned(places: Array) -> Array:
    """Centred places with their longest extent along x; signs fixed, so that they repeat."""
    _, _, axes = np.linalg.svd(places, full_matrices=False)
    turned: Array = places @ axes.T
    if turned.shape[1] < 2:
        turned = np.column_stack([turned, np.zeros(len(turned))])
    heaviest = np.abs(turned).argmax(axis=0)
    signs = np.sign(turned[heaviest, np.arange(2)])
    return turned * np.where(signs == 0, 1.0, signs)
