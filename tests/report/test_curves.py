"""Curves of the learning, and of the decays that were learned."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gradformer.report import curves
from gradformer.report.curves import (
    _visible,
    decay_section,
    decay_tables,
    decays,
    heads_of,
    learning_section,
    recorded_decay,
)
from gradformer.report.history import History, open_histories
from gradformer.report.plots import Picture
from gradformer.report.scales import evenly
from gradformer.structure.codebook import HOPS, Codebook
from tests.report import toys


@pytest.fixture
def drawn(monkeypatch):
    """The lines and axes of all plots."""
    found = []

    def note(title, lines, axes):
        found.append((lines, axes))
        return Picture(title)

    monkeypatch.setattr(curves, "line_plot", note)
    return found


def test_a_run_alone_has_its_trials_behind_the_mean_and_its_selected_epochs_marked(classes, drawn):
    text = learning_section([History(classes, "run")])
    assert [(axes.y, axes.whole_x, axes.log_y) for _, axes in drawn] == [
        ("training loss", True, True),
        ("validation accuracy", True, False),
        ("learning rate", True, False),
    ]
    lines = [line for (line,), _ in drawn]
    best = [(r["best_epoch"], r["val"]["accuracy"]) for r in classes.results["trials"]]
    assert [line.marks for line in lines] == [[], best, []]
    for line in lines:
        assert line.x == [1, 2, 3]
        (_, one), (_, two) = line.faint
        reach = np.abs(np.subtract(one, two)) / np.sqrt(2)
        assert line.high == pytest.approx(np.mean([one, two], axis=0) + reach)
        assert line.low == pytest.approx(np.mean([one, two], axis=0) - reach)
    assert ">Line: mean over the trials. Band: ± one standard deviation. Dots: the epo" in text
    assert "that were selected. Thin lines: single trials.<" in text


def test_runs_beside_each_other_have_a_line_each(classes, drawn):
    histories = [History(classes, f"run {k}") for k in range(4)]
    one = histories[0]
    vars(one)["epochs"] = {0: one.epochs[0]}
    text = learning_section(histories)
    assert ">Line: mean over the trials. Band: ± one standard deviation. <" in text
    for lines, _ in drawn:
        assert [(line.colour, line.dash) for line in lines] == [(0, 0), (1, 1), (2, 2), (3, 0)]
        assert [len(line.low) for line in lines] == [0, 3, 3, 3]
        assert all(not line.faint and not line.marks for line in lines)
    drawn.clear()
    vars(one)["results"] = [one.results[0] | {"best_epoch": 0}]  # nothing was selected
    assert ">Dots: the epochs that were selected. <" in learning_section([one])
    assert all(not line.faint and not line.marks for (line,), _ in drawn)


def test_decays_are_named_by_run_trial_and_layer(classes, drawn, tmp_path):
    alone = decay_section([History(classes, "run")])
    assert "<h3>" not in alone
    assert "<summary>The other trials (1)</summary>" in alone
    assert alone.count("<figcaption>trial 0</figcaption>") == 2
    several = decay_section([History(classes, "one"), History(classes, "two")])
    assert several.count("<h3>") == 2
    layers = toys.train(tmp_path / "run", trials=1, epochs=1, per_layer=True)
    alone = decay_section([History(layers, "run")])
    assert "The other trials" not in alone
    for layer in (1, 2):
        assert alone.count(f"<figcaption>trial 0, layer {layer}</figcaption>") == 2


def test_heads_are_numbered_from_one_below_the_highest_factor(variants, drawn):
    (decay, profile) = (open_histories(variants[k : k + 1])[0] for k in (0, 2))
    heads_of(decay, 0)
    heads_of(profile, 0)
    for lines, _ in drawn:
        assert [(line.name, line.colour) for line in lines] == [("head 1", 0), ("head 2", 1)]
    (of_decay, axes), (_, of_starts), (of_factor, free) = drawn
    assert [(line.dots, line.dash) for line in of_decay] == [(True, 0), (True, 1)]
    assert axes.y_range == (0.0, 1.05)
    assert of_starts.whole_x
    highest = max(value for line in of_factor for value in line.y)
    assert highest > 1
    assert free.y_range == (0.0, pytest.approx(1.05 * highest))
    linear = decay.run.recipe.change("model.decay_shape=linear", "model.decay=1")
    assert decays(History(replace(decay.run, recipe=linear), "linear"))


def test_decay_curve_is_that_of_the_start_points(variants):
    model = variants[0].model()
    (table,) = decay_tables(model.decay).values()
    start = model.decay.start[0, 1].item()
    hops = np.arange(255)
    assert table[0, 1, :255] == pytest.approx(0.6 ** np.maximum(hops - start, 0), abs=1e-6)
    assert decay_tables(variants[1].model().decay) == {}
    assert list(decay_tables(variants[2].model().decay)) == ["factor of the weight"]


def test_record_gives_the_decay_of_the_weights(variants):
    (history,) = open_histories(variants[:1])
    for trial in (0, 1):
        kept, recorded = history.run.model(trial).decay, recorded_decay(history, trial)
        (weights,), (record,) = decay_tables(kept).values(), decay_tables(recorded).values()
        assert np.array_equal(weights, record)
    assert recorded_decay(open_histories(variants[2:3])[0], 0) is None, "a profile is not recorded"
    assert len(heads_of(open_histories(variants[2:3])[0], 0)) == 1, "but the weights have it"
    for setting in ("decay_shape=linear", "learn_decay=yes", "profile=yes", "decay=1"):
        recipe = history.run.recipe.change(f"model.{setting}")
        assert recorded_decay(History(replace(history.run, recipe=recipe), "other"), 0) is None


@pytest.mark.parametrize(
    ("book", "far", "count"),
    [
        (HOPS, 0, 8),
        (HOPS, 3, 8),
        (HOPS, 12, 14),
        (HOPS, 60, 24),
        (Codebook.uniform("similarity", 1.0), 3, 32),
        (Codebook.uniform("similarity", 1.0), 254, 255),
    ],
)
def test_a_decay_is_drawn_to_where_the_last_head_has_gone(book, far, count):
    near = 0.5 * (np.arange(256) < 2)
    signed = np.where(np.arange(256) <= far, -0.03, 0.01)
    psi, seen = _visible(book.values, np.stack([near, signed]) * (far > 0))
    np.testing.assert_array_equal(psi, book.values[:count])
    assert seen.shape == (2, count)


def test_six_of_many_layers_are_drawn_from_first_to_last():
    assert evenly(6, 6) == [0, 1, 2, 3, 4, 5]
    assert evenly(12, 6) == [0, 2, 4, 7, 9, 11]
