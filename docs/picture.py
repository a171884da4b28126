"""Draw the picture of the README with the package itself: ``python docs/picture.py``.

One node looks at a graph: plain attention, the same scores decayed, and the decay by four start
points.
"""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
import torch

from gradformer import Decay, Layout, decay_attention
from gradformer.report.attention import lay_out

OUT = Path(__file__).parent / "assets" / "decay.svg"
SIDE, GAP, TOP = 260, 36, 46
STARTS, LAMBDA, QUERY = (0.0, 1.0, 2.0, 4.0), 0.6, 9
STYLE = """
text { font: 14px system-ui, sans-serif; fill: #24292f; }
.head { font-weight: 600; }
.small { font-size: 12px; fill: #57606a; }
.bond { stroke: #8c959f; stroke-width: 1.6; }
.node { fill: #ffffff; stroke: #57606a; stroke-width: 1.2; }
.heat { fill: #0b5fa5; }
.query { fill: none; stroke: #c2410c; stroke-width: 2.6; }
.axis { stroke: #8c959f; fill: none; }
.curve { fill: none; stroke-width: 2.2; }
.k0 { stroke: #0b5fa5; } .k1 { stroke: #c2410c; } .k2 { stroke: #1a9e88; } .k3 { stroke: #5b1049; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .small { fill: #9da7b3; }
  .node { fill: #161b22; stroke: #9da7b3; } .heat { fill: #5aa9f8; } .query { stroke: #ff8c42; }
  .k0 { stroke: #5aa9f8; } .k1 { stroke: #ff8c42; }
  .k2 { stroke: #c8f0a8; } .k3 { stroke: #c13fb5; }
}
"""


def graph() -> nx.Graph:
    """A patch of six-rings with three tails."""
    rings = nx.convert_node_labels_to_integers(nx.hexagonal_lattice_graph(2, 3), ordering="sorted")
    n = len(rings)
    rings.add_edges_from([(0, n), (n, n + 1), (n - 1, n + 2), (n + 2, n + 3)])
    return rings


def weights(hops: np.ndarray, decay: float) -> np.ndarray:
    """Attention of the query over all nodes, by the operation itself."""
    n = len(hops)
    generator = torch.Generator().manual_seed(4)
    q, k = 1.7 * torch.randn(2, n, 1, 8, generator=generator)
    (tables,) = Decay(heads=1, decay=decay, start=1.0)()
    distance = torch.from_numpy(hops.astype(np.uint8).ravel())
    layout = Layout.from_sizes([n])
    _, weight = decay_attention(
        q, k, k, layout, distance, tables.mul, tables.add, return_weights=True
    )
    return weight[:, 0].view(n, n)[QUERY].detach().numpy()


def panel(left: float, title: str, note: str, places: np.ndarray, weight: np.ndarray) -> str:
    at = places * (SIDE - 24) + np.array([left + 12, TOP - 6])
    full = max(weight.max(), 1e-9)
    parts = [_heading(left, title, note)]
    parts += [
        f'<line class="bond" x1="{at[i][0]:.1f}" y1="{at[i][1]:.1f}" '
        f'x2="{at[j][0]:.1f}" y2="{at[j][1]:.1f}"/>'
        for i, j in graph().edges
    ]
    for node, ((x, y), share) in enumerate(zip(at, weight / full)):
        circle = f'cx="{x:.1f}" cy="{y:.1f}" r="9"'
        parts.append(f'<circle class="node" {circle}/>')
        parts.append(f'<circle class="heat" {circle} opacity="{share:.2f}"/>')
        if node == QUERY:
            parts.append(f'<circle class="query" cx="{x:.1f}" cy="{y:.1f}" r="12"/>')
    return "\n".join(parts)


def curves(left: float) -> str:
    right, bottom, top = left + SIDE - 16, TOP + SIDE - 44, TOP + 16
    parts = [_heading(left, "The decay of a head", "M over distance ψ in hops, by start point")]
    parts.append(f'<path class="axis" d="M{left + 24} {top}V{bottom}H{right}"/>')
    for head, start in enumerate(STARTS):
        (tables,) = Decay(heads=1, decay=LAMBDA, start=start)()
        assert tables.mul is not None
        factor = tables.mul.value[0, :11].detach().numpy()
        step = (right - left - 24) / 10
        points = [
            f"{left + 24 + psi * step:.1f} {bottom - m * (bottom - top):.1f}"
            for psi, m in enumerate(factor)
        ]
        parts.append(f'<path class="curve k{head}" d="M{"L".join(points)}"/>')
    for psi in (0, 5, 10):
        x = left + 24 + psi * (right - left - 24) / 10
        parts.append(
            f'<text class="small" x="{x:.0f}" y="{bottom + 17}" text-anchor="middle">{psi}</text>'
        )
    for value, y in ((1, top + 5), (0, bottom + 4)):
        parts.append(f'<text class="small" x="{left + 8}" y="{y}">{value}</text>')
    for head, start in enumerate(STARTS):
        y = top + 12 + 18 * head
        parts.append(f'<path class="curve k{head}" d="M{right - 66} {y - 4}h16"/>')
        parts.append(f'<text class="small" x="{right - 44}" y="{y}">sp = {start:g}</text>')
    return "\n".join(parts)


def _heading(left: float, title: str, note: str) -> str:
    return (
        f'<text class="head" x="{left}" y="18">{title}</text>'
        f'<text class="small" x="{left}" y="36">{note}</text>'
    )


def picture() -> str:
    drawn = graph()
    lengths = dict(nx.all_pairs_shortest_path_length(drawn))
    n = len(drawn)
    hops = np.array([[lengths[i][j] for j in range(n)] for i in range(n)])
    places = lay_out(n, [(min(e), max(e)) for e in drawn.edges])
    places = places - places.mean(axis=0) + 0.5
    width, height = 3 * SIDE + 2 * GAP, TOP + SIDE - 18
    lefts = [k * (SIDE + GAP) for k in range(3)]
    parts = [
        panel(
            lefts[0],
            "Plain attention",
            "one node (orange) looks anywhere",
            places,
            weights(hops, 1.0),
        ),
        panel(
            lefts[1],
            "With decay",
            f"λ = {LAMBDA}: near pairs keep their say",
            places,
            weights(hops, LAMBDA),
        ),
        curves(lefts[2]),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="Attention of one node on a graph, plain and decayed, and decay curves">'
        f"\n<style>{STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


if __name__ == "__main__":
    OUT.write_text(picture(), encoding="utf-8")
    print(OUT)
