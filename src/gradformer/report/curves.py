"""How training went: learning curves, the start points of the heads, and the decays they mean."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gradformer.report.history import Curve, History
from gradformer.report.markup import Content, Markup, figure, fold, grid, join, note, tag
from gradformer.report.outcome import metric_name
from gradformer.report.plots import Axes, Line, line_plot
from gradformer.structure.codebook import UNREACHABLE

_MOST_SETS = 6


def learning_section(histories: Sequence[History]) -> Markup:
    """Training loss, validation score and learning rate over the epochs."""
    metrics = list(dict.fromkeys(history.metric for history in histories if history.metric))
    wanted: list[tuple[str, tuple[str, ...], bool]] = [("training loss", ("loss",), True)]
    wanted += [(f"validation {metric_name(m)}", ("val", m), False) for m in metrics]
    wanted.append(("learning rate", ("lr",), False))
    figures = []
    for name, path, log in wanted:
        found = [(k, h, h.curve(*path)) for k, h in enumerate(histories)]
        lines = [_line(k, h, curve, path) for k, h, curve in found if curve is not None]
        if lines:
            plot = line_plot(f"{name} over epochs", lines, Axes("epoch", name, log_y=log))
            figures.append(figure(plot, tag("b", name)))
    if not figures:
        return note("No epoch has been recorded yet.")
    spread = any(len(history.epochs) > 1 for history in histories)
    text = "Line: mean over the trials. " + ("Band: ± one standard deviation. " if spread else "")
    if len(histories) == 1:
        text += "Dots: the epochs that were selected. "
        text += "Thin lines: single trials." if spread else ""
    return join([grid(*figures), note(text)])


def _line(place: int, history: History, curve: Curve, path: Sequence[str]) -> Line:
    alone = len(curve.trials) == 1
    faint = [] if alone or place else curve.trials
    marks = []
    if path[0] == "val":
        marks = [
            (r["best_epoch"], r["val"][path[1]])
            for r in history.results
            if r["best_epoch"] and r["val"].get(path[1]) is not None
        ]
    return Line(
        history.label,
        curve.epochs.tolist(),
        curve.mean.tolist(),
        colour=place,
        low=[] if alone else curve.low.tolist(),
        high=[] if alone else curve.high.tolist(),
        faint=faint,  # type: ignore[arg-type]
        marks=marks,
    )


def starts_section(histories: Sequence[History]) -> Markup:
    """Start point of every head over the epochs, trial by trial (right of the paper's Figure 4)."""
    parts: list[Content] = []
    for history in histories:
        shown = [(trial, history.starts(trial)) for trial in history.epochs]
        known = [(trial, starts) for trial, starts in shown if starts is not None]
        if not known:
            parts.append(note(f"{history.label} has no start points."))
            continue
        first, *others = [_starts_of(history, trial, *starts) for trial, starts in known]
        parts += [tag("h3", history.label) if len(histories) > 1 else None, first]
        if others:
            parts.append(fold(f"The other {len(others)} trials", *others))
    return join(parts)


def _starts_of(
    history: History, trial: int, epochs: NDArray[np.float64], values: NDArray[np.float64]
) -> Markup:
    unit = "hops" if history.run.codebook.name == "hops" else history.run.codebook.name
    figures = []
    for number in _some(values.shape[1]):
        heads = values[:, number].T
        lines = [
            Line(f"head {head + 1}", epochs.tolist(), start.tolist(), colour=head)
            for head, start in enumerate(heads)
        ]
        where = f"trial {trial}" + (f", layer {number + 1}" if values.shape[1] > 1 else "")
        axes = Axes("epoch", f"start point sp ({unit})")
        plot = line_plot(f"Start points of {history.label}, {where}", lines, axes)
        figures.append(figure(plot, tag("b", where)))
    return grid(*figures)


def decay_section(histories: Sequence[History]) -> Markup:
    """The decay M over the distance for the selected weights (left of the paper's Figure 4)."""
    parts: list[Content] = []
    for history in histories:
        trials = history.run.trials
        figures = [f for trial in trials[:1] for f in _decays_of(history, trial)]
        if not figures:
            reason = "no decay" if trials else "no finished trial, so no decay to show"
            parts.append(note(f"{history.label} has {reason}."))
            continue
        parts.append(tag("h3", history.label) if len(histories) > 1 else None)
        parts.append(grid(*figures))
        if others := [f for trial in trials[1:] for f in _decays_of(history, trial)]:
            parts.append(fold(f"The other {len(trials) - 1} trials", grid(*others)))
    return join(parts)


def _decays_of(history: History, trial: int) -> list[Markup]:
    sets = decay_tables(history, trial)
    if sets is None:
        return []
    codebook = history.run.codebook
    unit = "hops" if codebook.name == "hops" else codebook.name
    figures = []
    for number in _some(len(sets)):
        psi, tables = _visible(codebook.values, sets[number])
        on = history.run.recipe.model.config.decay_on  # type: ignore[attr-defined]
        lines = [
            Line(f"head {head + 1}", psi.tolist(), m.tolist(), colour=head, dots=len(psi) < 30)
            for head, m in enumerate(tables)
        ]
        where = f"trial {trial}" + (f", layer {number + 1}" if len(sets) > 1 else "")
        top = max(1.0, float(tables.max()))
        axes = Axes(f"distance ψ ({unit})", f"decay M of the {on}", y_range=(0.0, top * 1.05))
        plot = line_plot(f"Decay of {history.label}, {where}", lines, axes)
        figures.append(figure(plot, tag("b", where)))
    return figures


def decay_tables(history: History, trial: int) -> NDArray[np.float64] | None:
    """M of every set, head and byte of a trial's selected weights, [sets, heads, 256]."""
    decay = getattr(history.run.model(trial), "decay", None)
    if decay is None:
        return None
    tables = []
    for pair in decay():
        factor = np.ones((decay.heads, 256))
        if pair.mul is not None:
            factor = factor * pair.mul.value.detach().double().numpy()
        if pair.add is not None:
            factor = factor * np.exp(pair.add.value.detach().double().numpy())
        tables.append(factor)
    return np.stack(tables)


def _visible(
    psi: NDArray[np.float64], tables: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The distances up to where every head has decayed, at least seven and at most 24 of hops."""
    order = np.argsort(psi[:UNREACHABLE], kind="stable")
    alive = np.flatnonzero((np.abs(tables[:, order]) > 0.02).any(axis=0))
    whole = psi[1] - psi[0] == 1.0
    most = 24 if whole else UNREACHABLE
    count = min(most, max(8 if whole else 32, (int(alive[-1]) if len(alive) else 0) + 2))
    return psi[order[:count]], tables[:, order[:count]]


def _some(sets: int) -> list[int]:
    """All of a few sets, else six from first to last."""
    if sets <= _MOST_SETS:
        return list(range(sets))
    return sorted({round(k) for k in np.linspace(0, sets - 1, _MOST_SETS)})
