"""How training went: learning curves, start points of the heads, and the decays they mean."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from gradformer.attention import Decay
from gradformer.model.gradformer import GradformerConfig
from gradformer.report.history import MOST_POINTS, History
from gradformer.report.markup import Content, Markup, figure, fold, grid, join, note, tag
from gradformer.report.plots import Axes, Line, Picture, line_plot
from gradformer.report.scales import evenly
from gradformer.structure.codebook import UNREACHABLE
from gradformer.training.metrics import metric_name

_MOST_SETS = 6


def learning_section(histories: Sequence[History]) -> Markup:
    """Training loss, validation score and learning rate over the epochs."""
    metrics = dict.fromkeys(history.metric for history in histories)
    wanted: list[tuple[str, tuple[str, ...], bool]] = [("training loss", ("loss",), True)]
    wanted += [(f"validation {metric_name(m)}", ("val", m), False) for m in metrics]
    wanted.append(("learning rate", ("lr",), False))
    figures, single = [], len(histories) == 1
    for name, path, log in wanted:
        drawn = (learning_curve(k, h, path, single) for k, h in enumerate(histories))
        if lines := [line for line in drawn if line is not None]:
            plot = line_plot(
                f"{name} over epochs", lines, Axes("epoch", name, whole_x=True, log_y=log)
            )
            figures.append(figure(plot))
    if not figures:
        return note("No epoch is recorded.")
    spread = any(len(history.epochs) > 1 for history in histories)
    text = "Line: mean over the trials. Band: ± one standard deviation. " if spread else ""
    if single:
        text += "Dots: the epochs that were selected. "
        text += "Thin lines: single trials." if spread else ""
    return join([grid(*figures), note(text)])


def learning_curve(
    place: int, history: History, path: Sequence[str], single: bool = True
) -> Line | None:
    """The value at ``path``: mean over the trials, with their standard deviation as its band.

    A ``single`` run has its trials behind it, and marks where the selected epochs are.
    """
    trials = history.curves(*path)
    if not trials:
        return None
    epochs = np.unique(np.concatenate([x for x, _ in trials]))
    table = np.full((len(trials), len(epochs)), np.nan)
    for row, (x, y) in zip(table, trials):
        row[np.searchsorted(epochs, x)] = y
    mean = np.nanmean(table, axis=0)
    count = np.isfinite(table).sum(axis=0)
    std = np.sqrt(np.nansum((table - mean) ** 2, axis=0) / np.maximum(count - 1, 1))
    alone = len(trials) == 1
    marks = []
    if path[0] == "val" and single:
        marks = [
            (r["best_epoch"], r["val"][path[1]])
            for r in history.results
            if r["best_epoch"] and r["val"].get(path[1]) is not None
        ]
    return Line(
        history.label,
        _points(epochs),
        _points(mean),
        colour=place,
        low=[] if alone else _points(mean - std),
        high=[] if alone else _points(mean + std),
        faint=[(_points(x), _points(y)) for x, y in trials] if single and not alone else [],
        marks=marks,
        dash=place % 3,
    )


def _points(values: NDArray[np.float64]) -> list[float]:
    """The points of a curve [epochs] that are drawn."""
    found: list[float] = values[evenly(len(values), MOST_POINTS)].tolist()
    return found


def decay_section(histories: Sequence[History]) -> Markup:
    """The paper's Figure 4 for every trial: the decay M over the distance for the selected weights,
    and the start point of every head over the epochs."""
    parts: list[Content] = []
    for history in histories:
        shown = [drawn for trial in history.epochs if (drawn := heads_of(history, trial))]
        if not shown:
            known = "a decay, and nothing is recorded of it yet" if decays(history) else "no decay"
            parts.append(note(f"{history.label} has {known}."))
            continue
        first, *others = (
            tag(
                "div",
                *(figure(p, where) for where, pictures in drawn for p in pictures),
                class_="grid pairs",
            )
            for drawn in shown
        )
        parts += [tag("h3", history.label) if len(histories) > 1 else None, first]
        if others:
            parts.append(fold(f"The other trials ({len(others)})", *others))
    return join(parts)


def heads_of(history: History, trial: int) -> list[tuple[str, list[Picture]]]:
    """Decay and start points of a trial: name and pictures for each set of heads."""
    if trial in history.run.trials:
        decay = getattr(history.run.model(trial), "decay", None)  # users may mean anything by it
    else:
        decay = recorded_decay(history, trial)
    tables = decay_tables(decay if isinstance(decay, Decay) else None)
    starts = history.starts(trial) if decays(history) else None
    counts = [len(table) for table in tables.values()]
    counts += [] if starts is None else [starts[1].shape[1]]
    sets = max(counts, default=0)
    found = []
    for number in evenly(sets, _MOST_SETS):
        where = f"trial {trial}" + (f", layer {number + 1}" if sets > 1 else "")
        pictures = [_decay_plot(history, name, t[number], where) for name, t in tables.items()]
        if starts is not None:
            epochs, values = starts
            pictures.append(_starts_plot(history, epochs, values[:, number], where))
        found.append((where, pictures))
    return found


def recorded_decay(history: History, trial: int) -> Decay | None:
    """The decay at the selected epoch of a trial, from λ and the start points of the record.

    None where the record is not enough: another shape, a learned λ or profile, no selected epoch.
    """
    config = history.run.recipe.model.config
    ended = {result["trial"]: result["best_epoch"] for result in history.results}
    lines = {line["epoch"]: line for line in history.epochs.get(trial, [])}
    starts = lines.get(ended.get(trial), {}).get("starts")
    if starts is None or not isinstance(config, GradformerConfig) or not decays(history):
        return None
    if config.decay_shape != "exponential" or config.learn_decay or config.profile:
        return None
    decay = config.make_decay(history.run.codebook)
    assert decay.start is not None
    with torch.no_grad():
        decay.start.copy_(torch.tensor(starts))
    return decay


def decays(history: History) -> bool:
    """Whether anything falls with the distance: λ below 1, or a linear decay."""
    config = history.run.recipe.model.config
    return isinstance(config, GradformerConfig) and (
        config.decay < 1.0 or config.decay_shape == "linear"
    )


def decay_tables(decay: Decay | None) -> dict[str, NDArray[np.float64]]:
    """What a decay does at each distance byte, [sets, heads, 256] by name.

    ``decay M of the logit`` multiplies the score, ``factor of the weight`` the weight before it is
    normalised; one that is 1 everywhere is left out.
    """
    if decay is None:
        return {}
    found = {}
    with torch.no_grad():
        for name, table in (("decay M of the logit", "mul"), ("factor of the weight", "add")):
            parts = [getattr(tables, table) for tables in decay()]
            if parts[0] is not None:
                values = np.stack([part.value.double().cpu().numpy() for part in parts])
                found[name] = values if table == "mul" else np.exp(values)
    reached = slice(UNREACHABLE)
    return {name: v for name, v in found.items() if not np.allclose(v[..., reached], 1.0)}


def _starts_plot(
    history: History, epochs: NDArray[np.float64], values: NDArray[np.float64], where: str
) -> Picture:
    lines = [
        Line(f"head {head + 1}", epochs.tolist(), start.tolist(), colour=head)
        for head, start in enumerate(values.T)
    ]
    axes = Axes("epoch", f"start point sp ({history.run.codebook.name})", whole_x=True)
    return line_plot(f"Start points of {history.label}, {where}", lines, axes)


def _decay_plot(history: History, name: str, table: NDArray[np.float64], where: str) -> Picture:
    psi, visible = _visible(history.run.codebook.values, table)
    lines = [
        Line(f"head {head + 1}", psi.tolist(), m.tolist(), head, dots=len(psi) < 30, dash=head % 3)
        for head, m in enumerate(visible)
    ]
    axes = Axes(
        f"distance ψ ({history.run.codebook.name})",
        name,
        y_range=(0.0, 1.05 * max(1.0, float(visible.max()))),
    )
    return line_plot(f"{name[0].upper()}{name[1:]} in {history.label}, {where}", lines, axes)


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
