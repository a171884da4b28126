"""A dataset in figures: beside its card and the paper, and what it asks of a device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradformer.graphs.cards import Card
from gradformer.graphs.store import Store

COLUMNS = ("dataset", "graphs", "nodes", "edges", "classes", "card", "paper")


def mean_sizes(card: Card, store: Store) -> tuple[float, float]:
    """Nodes and edges of a graph in the mean, edges as the card counts them."""
    edges = float(np.diff(store.arrays["edge_ptr"]).mean())
    return float(store.sizes.mean()), edges if card.directed else edges / 2


def comparison_row(card: Card, store: Store) -> tuple[str, ...]:
    """One line of the table ``COLUMNS``: measured, then what card and paper say of n and e."""
    paper = card.paper
    said = f"{paper['graphs']:,}: {paper['nodes']:,}, {paper['edges']:,}" if paper else "–"
    measured = f"{store.num_graphs:,}", *map(_mean, mean_sizes(card, store))
    stated = f"{card.graphs:,}", _mean(card.mean_nodes), _mean(card.mean_edges)
    classes = str(store.schema.outputs) if card.task == "multiclass" else card.task
    same = "same" if stated == measured else "{}: {}, {}".format(*stated)
    return card.title, *measured, classes, same, said


def _mean(value: float) -> str:
    return f"{value:,.2f}".removesuffix(".00")


@dataclass(frozen=True)
class Memory:
    """Bytes on the device: the data, the model with its optimizer, one training step."""

    store: int
    model: int
    step: int

    @property
    def total(self) -> int:
        return self.store + self.model + self.step


def estimate_memory(
    store: Store, *, parameters: int, layers: int, width: int, batch_size: int
) -> Memory:
    """What training takes, of a Gradformer within a factor of about two.

    Weights, gradients and two moments are 16 bytes a parameter. In float32 a layer keeps about 24
    states of ``width`` numbers for each node and 3 for each edge until the backward pass, and
    nothing for a pair.
    """
    batch = min(batch_size, store.num_graphs)
    nodes, edges = store.sizes.mean() * batch, np.diff(store.arrays["edge_ptr"]).mean() * batch
    step = 4 * layers * width * (24 * nodes + 3 * edges)
    return Memory(store=store.nbytes, model=16 * parameters, step=int(step))
