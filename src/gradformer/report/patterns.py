"""Attention patterns of trained models on example graphs, side by side (the paper's Figure 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import softmax

from gradformer.graphs.collate import Collator
from gradformer.graphs.store import Store
from gradformer.grouping import grouped
from gradformer.model.gradformer import Gradformer
from gradformer.report.attention import SEES, Array, Sketch, side_by_side, sketch
from gradformer.report.curves import decays
from gradformer.report.history import History
from gradformer.report.markup import Content, Markup, figure, join, note, tag
from gradformer.training.keepsakes import load_examples
from gradformer.training.step import autocast

KINDS = ("plain", "PE", "bias", "decay")
_MOST_HEADS = 8


@dataclass(frozen=True)
class PairAttention:
    """Attention inside one graph, [layers, heads, n, n] each: score s, decay M, weight."""

    score: Array
    decay: Array
    weight: Array

    @property
    def mean_weight(self) -> Array:
        """Over layers and heads, [n, n]."""
        return np.asarray(self.weight.mean(axis=(0, 1)))

    @property
    def without_decay(self) -> Array:
        """The weights that the same scores give where nothing is decayed."""
        return np.asarray(softmax(self.score, axis=-1))


def shows_attention(model: Any) -> bool:
    """Whether a model can say what its attention is."""
    return isinstance(model, Gradformer)


def pair_attention(
    model: Any, store: Store, graph: int, precision: str = "float32"
) -> PairAttention:
    """Attention of ``model`` on one graph of ``store``, in the ``precision`` of its recipe."""
    collator = Collator(store)
    with autocast(precision, collator.device):
        layers = model.attention(collator(torch.tensor([graph])))
    nodes = int(store.sizes[graph])

    def dense(name: str) -> Array:
        pairs = np.stack([getattr(layer, name).double().cpu().numpy() for layer in layers])
        return np.asarray(pairs.reshape(len(layers), nodes, nodes, -1).transpose(0, 3, 1, 2))

    return PairAttention(dense("score"), dense("decay"), dense("weight"))


def kind_of(history: History) -> str:
    """Which of the four columns of the paper's Figure 1 a run belongs to."""
    config: Any = history.run.recipe.model.config
    if decays(history):
        return "decay"
    if config.profile or config.decay_shape == "free":
        return "bias"
    return "PE" if config.pe != "none" else "plain"


def example_attention(history: History) -> list[tuple[tuple[str, int], PairAttention, Sketch]]:
    """Attention of the first trial on every example graph, which is named by (data, number).

    Empty without a finished trial, a model that gives its attention, and a graph to draw.
    """
    examples, trials = load_examples(history.run.folder), history.run.trials
    model = history.run.model(trials[0]) if trials else None
    if examples is None or not shows_attention(model):
        return []
    precision = history.run.recipe.train.precision
    return [
        (
            (examples.content, name),
            pair_attention(model, examples, k, precision),
            sketch(examples, k),
        )
        for k, name in enumerate(examples.about["graphs"])
    ]


def patterns_section(histories: Sequence[History]) -> Markup:
    """For every example graph the patterns of all runs side by side, on one scale."""
    found = [(history, example_attention(history)) for history in histories]
    rows = grouped(
        (graph, (history, attention, drawing))
        for history, some in found
        for graph, attention, drawing in some
    )
    silent = [history.label for history, some in found if not some]
    parts: list[Content] = []
    for (_, name), row in rows.items():
        parts += [tag("h3", f"Graph {name}, from the test part"), _drawn(f"graph {name}", row)]
    if rows:
        parts.append(
            note(
                "First trial, mean over all layers (and over the heads, unless one is named). "
                "Drawing: the bluer a node, the more attention it receives; orange links get more "
                "than an even share and are bent where there is no edge. Matrix: the weight of "
                "every pair, a row for each node that looks. From blank to full colour lie all "
                "weights beside each other but the 2 % at either end; where these are nearly even, "
                f"half to one and a half even shares. {SEES}"
            )
        )
    if silent:
        parts.append(
            note(
                f"Not shown for {', '.join(silent)}: that needs a finished trial, a model that "
                "gives its attention, and a test graph small enough to draw."
            )
        )
    return join(parts)


def _drawn(graph: str, row: Sequence[tuple[History, PairAttention, Sketch]]) -> Markup:
    """All runs on one graph, or a single one in detail."""
    history, found, drawing = row[0]
    if len(row) == 1:
        columns = _in_detail(kind_of(history), found)
    else:
        ordered = sorted(row, key=lambda item: KINDS.index(kind_of(item[0])))
        columns = [(_name(history), found.mean_weight) for history, found, _ in ordered]
    figures = [
        figure(join(pictures), join([tag("b", name), f": {seen}"]))
        for name, pictures, seen in side_by_side(graph, [(n, drawing, w) for n, w in columns])
    ]
    return tag("div", *figures, class_="patterns")


def _in_detail(kind: str, found: PairAttention) -> list[tuple[str, Array]]:
    """A run with the decay taken away, as it is, and head by head."""
    columns = []
    if kind == "decay":
        columns.append(("same weights, decay off", found.without_decay.mean(axis=(0, 1))))
    columns.append((kind, found.mean_weight))
    heads = found.weight.mean(axis=0)[:_MOST_HEADS]
    return columns + [(f"head {k + 1}", weight) for k, weight in enumerate(heads)]


def _name(history: History) -> str:
    """The kind of a run, with its own name unless that is said already."""
    kind, label = kind_of(history), history.label
    return label if kind.lower() in label.lower().split() else f"{kind}: {label}"
