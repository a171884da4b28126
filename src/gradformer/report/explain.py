"""Why a prediction: score, decay and weight of every head on the drawn graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gradformer.errors import InputError
from gradformer.graphs.user_data import UserData
from gradformer.report.attention import (
    SEES,
    Sketch,
    contrast,
    draw_graph,
    draw_matrix,
    focus,
    sketch,
)
from gradformer.report.markup import Content, Markup, figure, join, note, tag
from gradformer.report.page import page
from gradformer.report.patterns import PairAttention, pair_attention, shows_attention
from gradformer.report.scales import number
from gradformer.training.ambient import undisturbed
from gradformer.training.files import replace_file
from gradformer.training.inference import Predictions, open_data
from gradformer.training.keepsakes import LARGEST, take
from gradformer.training.run import Run


@undisturbed
def write_explanation(
    run: Run,
    data: Any,
    out: Path,
    *,
    trial: int = 0,
    layer: int | None = None,
    most: int = 10,
    mirror: str | Path | None = None,
    **reading: Any,
) -> Path:
    """Write a page that shows what every head looks at in the graphs of ``data``; gives its path.

    Args:
        run: a run of a model that gives its attention.
        data: a path, objects, a store or a benchmark's name, as :meth:`Run.predict` takes it.
        out: the HTML file.
        trial: whose weights.
        layer: which layer, from 1; the mean over all layers if not given.
        most: graphs to show; larger ones than can be drawn are passed over.
        mirror: folder with raw files of benchmarks.
        reading: how to read ``data``.
    """
    model = run.model(trial)
    if not shows_attention(model):
        raise InputError(
            f"{run.folder}: {run.recipe.model.name} does not show its attention; "
            "explain a run of gradformer"
        )
    layers = run.recipe.model.config.layers
    if layer is not None and not 1 <= layer <= layers:
        raise InputError(f"layer: got {layer}, expected 1 to {layers}")
    store, user = open_data(run, data, mirror, **reading)
    graphs = np.flatnonzero((store.sizes > 1) & (store.sizes <= LARGEST))[:most]
    if not len(graphs):
        raise InputError(f"data: no graph has 2 to {LARGEST} nodes, so none can be drawn")
    few = take(store, graphs)
    predicted = run.predict(few)
    sections: list[tuple[str, str, Content]] = []
    for place, graph in enumerate(graphs):
        name, drawn = f"Graph {few.about['graphs'][place]}", sketch(few, place)
        if user is not None:
            name, drawn = _as_given(user, graph, drawn)
        answer = None if run.schema.level == "node" else _answer(run, predicted, place)
        found = pair_attention(model, few, place, run.recipe.train.precision)
        heads = _heads(found, drawn, layer)
        sections.append((f"graph-{graph}", name, join([answer, heads])))
    which = "mean over all layers" if layer is None else f"layer {layer}"
    text = (
        f"Trial {trial}, {which}. Score: what query and key say. Decay: what the distance leaves "
        f"of it. Weight: the attention that results; a row for each node that looks. {SEES}"
    )
    if len(run.trials) > 1:
        text += f" Predictions: mean ± standard deviation over {len(run.trials)} trials."
    title = f"What {run.recipe.model.name} looks at"
    out = Path(out)
    replace_file(out, page(title, f"Run {run.folder.resolve().name}", note(text), sections))
    return out


def _as_given(user: UserData, graph: int, drawn: Sketch) -> tuple[str, Sketch]:
    """What a user's graph is called, and its drawing; a molecule with its SMILES and elements."""
    name = user.name(graph).capitalize()
    if user.smiles is None:
        return name, drawn
    smiles = user.smiles[graph]
    return f"{name}: {smiles}", replace(drawn, labels=_elements(smiles))


def _elements(smiles: str) -> tuple[str, ...]:
    """Element of every atom, in the order of the nodes; carbon goes without saying."""
    from rdkit import Chem

    symbols = (atom.GetSymbol() for atom in Chem.MolFromSmiles(smiles).GetAtoms())
    return tuple("" if symbol == "C" else symbol for symbol in symbols)


def _answer(run: Run, predicted: Predictions, graph: int) -> Markup:
    """The prediction for one graph, in words."""
    value, spread = predicted.value[graph], predicted.spread[graph]
    labels = run.labels
    if labels.task == "multiclass":
        names = [f"class {word}" for word in labels.classes[0]]
    elif labels.task == "regression":
        names = list(labels.targets)
    else:  # the probability of the second of two words
        names = [f"{target} is {words[1]}" for target, words in zip(labels.targets, labels.classes)]
    several = len(predicted.trials) > 1
    texts = [
        f"{name}: {number(float(v))}" + (f" ± {number(float(s), 2)}" if several else "")
        for name, v, s in zip(names, value, spread)
    ]
    return tag("p", "Prediction: ", tag("b", "; ".join(texts)))


def _heads(found: PairAttention, graph: Sketch, layer: int | None) -> Markup:
    chosen = slice(None) if layer is None else slice(layer - 1, layer)
    score, decay, weight = (
        part[chosen].mean(axis=0) for part in (found.score, found.decay, found.weight)
    )
    faint, full = contrast(*weight)
    rows = []
    for head in range(len(weight)):
        name = f"head {head + 1}"
        low, high = float(score[head].min()), float(score[head].max())
        drawing = draw_graph(f"Attention of {name} on the graph", graph, weight[head], full)
        pictures = [figure(drawing, focus(weight[head], graph.hops))]
        for what, values, blank, dark, digits in (
            ("score", score[head], low, high, 3),
            ("decay", decay[head], 0.0, max(1.0, float(decay.max())), 2),
            ("weight", weight[head], faint, full, 2),
        ):
            ends = " to ".join(number(float(v), digits) for v in (values.min(), values.max()))
            matrix = draw_matrix(f"{what.capitalize()} of {name}", values, blank, dark)
            pictures.append(figure(matrix, f"{what} from {ends}"))
        rows += [tag("h3", name.capitalize()), tag("div", *pictures, class_="patterns")]
    return join(rows)
