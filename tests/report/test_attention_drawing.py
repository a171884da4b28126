"""Graphs on the plane and the attention inside them."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from gradformer.graphs.objects import from_networkx
from gradformer.graphs.store import pack
from gradformer.graphs.structures import Structure
from gradformer.report import patterns
from gradformer.report.attention import (
    Sketch,
    contrast,
    draw_graph,
    draw_matrix,
    focus,
    lay_out,
    sketch,
)
from gradformer.report.history import History, open_histories
from gradformer.report.patterns import example_attention, kind_of, pair_attention, patterns_section
from gradformer.training.keepsakes import load_examples
from gradformer.training.run import Run


@pytest.mark.parametrize(
    "graph",
    [
        nx.cycle_graph(6),
        nx.path_graph(2),
        nx.empty_graph(3),
        nx.disjoint_union(nx.path_graph(5), nx.star_graph(4)),
        nx.complete_graph(12),
    ],
)
def test_layout_keeps_nodes_apart_and_inside(graph):
    places = lay_out(len(graph), list(graph.edges))
    assert places.min(axis=0) == pytest.approx([0, 0], abs=1e-9)
    assert places.max() == pytest.approx(1)
    gaps = np.linalg.norm(places[:, None] - places[None], axis=2) + np.eye(len(graph))
    assert gaps.min() > 0.02
    assert np.array_equal(places, lay_out(len(graph), list(graph.edges)))


def test_neighbours_lie_closer_than_strangers():
    graph = nx.path_graph(8)
    places = lay_out(8, list(graph.edges))
    gap = np.linalg.norm(places[:, None] - places[None], axis=2)
    assert gap[0, 7] > 5 * gap[0, 1]
    assert np.ptp(places[:, 1]) < 0.1, "the longest extent is along x"


def test_the_largest_component_is_first():
    places = lay_out(9, [(0, 1), (1, 2), *((k, k + 1) for k in range(3, 8))])
    assert places[3:, 0].max() < places[:3, 0].min()
    assert np.ptp(places[3:, 0]) > 1.2 * np.ptp(places[:3, 0]), "and the widest"


def test_a_small_graph_is_laid_out_by_one_thread(monkeypatch):
    threads, known = [], nx.kamada_kawai_layout

    def note(*given):
        threads.extend(one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas")
        return known(*given)

    monkeypatch.setattr(nx, "kamada_kawai_layout", note)
    with threadpool_limits(2, "blas"):
        lay_out(4, [(0, 1), (1, 2), (2, 3)])
    assert set(threads) == {1}


def test_focus_counts_nodes_and_hops():
    hops = np.abs(np.arange(4)[:, None] - np.arange(4)[None]).astype(float)
    assert focus(np.full((4, 4), 0.25), hops) == "sees 4.0 of 4 nodes, 1.2 hops away"
    assert focus(np.eye(4), hops) == "sees 1.0 of 4 nodes, 0.0 hops away"
    hops[:2, 2:] = np.nan
    assert focus(np.full((4, 4), 0.25), hops) == "sees 4.0 of 4 nodes, 1.0 hops away"
    halves = np.kron(np.eye(2), np.full((2, 2), 0.5))
    assert focus(halves, None) == "sees 2.0 of 4 nodes"


def test_a_drawn_graph_says_who_receives_attention_and_who_gives_it_to_whom():
    graph = Sketch(np.array([[0.0, 0.0], [0.5, 0.0], [1.0, 0.5]]), [(0, 1)], None, ("N", "", "O"))
    weight = np.array([[0.2, 0.7, 0.1], [0.1, 0.2, 0.7], [0.0, 0.4, 0.6]])
    drawn = draw_graph("t", graph, weight, full=0.5)
    at = [("14", "14"), ("110", "14"), ("206", "110")]
    for style, more in (("node", [""] * 3), ("heat", ["0.10", "0.43", "0.47"])):
        circle = rf'<circle class="{style}"(?: opacity="(.*?)")? cx="(.*?)" cy="(.*?)" r="7"'
        assert re.findall(circle, drawn) == [(share, x, y) for share, (x, y) in zip(more, at)]
    assert '<path d="M14 14L110 14" class="bond" stroke-width="1.60">' in drawn
    link = r'<path d="([^"]*)" class="link" opacity="(.*?)" stroke-width="(.*?)">'
    assert re.findall(link, drawn) == [
        ("M14 14L110 14", "0.45", "2.4"),
        ("M110 14Q173.4 46.6 206 110", "0.90", "5.0"),
    ], "the strongest is on top; without an edge it is bent"
    assert re.findall(r'class="atom">(\w*)<', drawn) == ["N", "", "O"]
    assert (drawn.width, drawn.height) == (220, 124)


def test_a_matrix_has_a_row_for_each_query():
    drawn = draw_matrix("t", np.array([[1.0, 2.0], [3.0, 3.0]]), 1.0, 3.0)
    assert re.findall(r'<path d="(.*?)" class="(.*?)"', drawn) == [
        ("M110 2H218V110H110z", "level l5"),
        ("M2 110H218V218H2z", "level l10"),
        ("M2 2H218V218H2Z", "axis"),
    ]


def test_a_sketch_has_each_edge_once_no_loops_and_the_hops_of_its_graph():
    graphs = [nx.path_graph(2), _graph(5, [(2, 3), (1, 1), (0, 1), (0, 2)])]
    arrays = from_networkx(graphs, y=[0.5, 1.5]).arrays
    drawn = sketch(pack(arrays, Structure()), 1)
    assert drawn.bonds == [(0, 1), (0, 2), (2, 3)]
    np.testing.assert_array_equal(drawn.hops[1], [1, 0, 2, 3, np.nan])
    for index in ("curvature", None):
        assert sketch(pack(arrays, Structure(index=index)), 1).hops is None


def test_even_attention_draws_no_link_and_a_strong_one_is_drawn():
    graph = Sketch(lay_out(4, [(0, 1), (1, 2), (2, 3)]), [(0, 1), (1, 2), (2, 3)], None)
    even = np.full((4, 4), 0.25)
    low, full = contrast(even)
    assert 'class="link"' not in draw_graph("t", graph, even, full)
    assert set(re.findall(r"level l(\d+)", draw_matrix("t", even, low, full))) == {"5"}
    sharp = even.copy()
    sharp[0] = [0.0, 0.0, 0.0, 1.0]
    low, full = contrast(sharp)
    assert draw_graph("t", graph, sharp, full).count('class="link"') == 1
    assert {"10", "4"} <= set(re.findall(r"level l(\d+)", draw_matrix("t", sharp, low, full)))


def test_one_large_weight_does_not_hide_the_others():
    """Ten nodes look at their own half, a little; one pair stands far out."""
    weight = np.kron(np.eye(2), np.full((5, 5), 0.13)) + np.kron(
        1 - np.eye(2), np.full((5, 5), 0.07)
    )
    weight[3, 4] = 0.9
    drawn = draw_matrix("t", weight, *contrast(weight))
    levels = {int(level) for level in re.findall(r"level l(\d+)", drawn)}
    assert max(levels) == 10
    assert len(levels) >= 3
    assert min(levels) <= 4
    graph = Sketch(lay_out(10, [(k, k + 1) for k in range(9)]), [], None)
    widths = re.findall(
        r'class="link"[^>]*stroke-width="([\d.]+)"', draw_graph("t", graph, weight, 0.2)
    )
    assert 0 < max(map(float, widths)) <= 7, "a link is never wider than a node"


def test_layout_finds_the_drawing_without_crossings():
    """Fused rings with three side groups, on which springs that begin on a circle get stuck."""
    rings = [(0, 1), (1, 2), (2, 7), (7, 8), (8, 9), (9, 0), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7)]
    rings += [(9, 10), (10, 11), (11, 12), (12, 13), (13, 8), (13, 14), (14, 15), (15, 6)]
    groups = [(hub, k) for hub in (16, 19, 22, 25) for k in (hub + 1, hub + 2)]
    bonds = rings + groups + [(12, 16), (10, 19), (5, 22), (3, 25)]
    stuck = np.array([*nx.kamada_kawai_layout(_graph(28, bonds)).values()])
    assert crossings(stuck, bonds) > 0
    assert crossings(lay_out(28, bonds), bonds) == 0


def _graph(nodes, bonds):
    graph = nx.empty_graph(nodes)
    graph.add_edges_from(bonds)
    return graph


def crossings(places, bonds):
    def side(a, b, c):
        (x, y), (u, v) = places[b] - places[a], places[c] - places[a]
        return np.sign(x * v - y * u)

    return sum(
        side(a, b, c) != side(a, b, d) and side(c, d, a) != side(c, d, b)
        for (a, b), (c, d) in combinations(bonds, 2)
        if len({a, b, c, d}) == 4
    )


def test_examples_come_from_the_test_part(classes):
    examples = load_examples(classes.folder)
    assert examples.num_graphs == 2
    assert examples.sizes[0] <= examples.sizes[1]
    drawn = sketch(examples, 0)
    assert drawn.hops.max() <= drawn.nodes
    for i, j in drawn.bonds:
        assert drawn.hops[i, j] == 1


def test_attention_adds_up_and_no_decay_means_plain(variants):
    for run in variants[:2]:
        found = pair_attention(run.model(), load_examples(run.folder), 1)
        assert np.allclose(found.weight.sum(axis=-1), 1.0, atol=1e-5)
        assert np.allclose(found.without_decay, found.weight, atol=1e-5) == (run is variants[1])


def test_attention_is_shown_in_the_precision_of_the_recipe(variants):
    """A run in bf16 was drawn in float32, which is not what it computed."""
    (history,) = open_histories(variants[:1])
    model, examples = history.run.model(), load_examples(history.run.folder)
    exact, rough = (pair_attention(model, examples, 0, kind) for kind in ("float32", "bf16"))
    assert 0 < np.abs(exact.score - rough.score).max() < 0.1
    assert np.array_equal(exact.decay, rough.decay), "tables are float32 in every precision"
    assert np.allclose(rough.weight.sum(axis=-1), 1.0, atol=1e-5)
    recipe = history.run.recipe.change("train.precision=bf16")
    (_, drawn, _), *_ = example_attention(History(replace(history.run, recipe=recipe), "bf16"))
    assert np.array_equal(drawn.score, rough.score)


def test_kinds_of_figure_1(variants):
    kinds = [kind_of(history) for history in open_histories(variants[:4])]
    assert kinds == ["decay", "plain", "bias", "PE"]
    free = variants[1].recipe.change("model.decay_shape=free")
    assert kind_of(History(replace(variants[1], recipe=free), "free")) == "bias"


def test_a_run_alone_is_shown_head_by_head_and_with_its_decay_off(variants, monkeypatch):
    seen = []
    monkeypatch.setattr(patterns, "side_by_side", lambda _, columns: seen.append(columns) or ())
    for run, kind, off in zip(variants, ("decay", "plain"), (["same weights, decay off"], [])):
        seen.clear()
        section = patterns_section([History(run, "run")])
        assert "First trial, mean over all layers" in section
        assert [[name for name, *_ in columns] for columns in seen] == [
            [*off, kind, "head 1", "head 2"]
        ] * 2
        examples = load_examples(run.folder)
        for graph, columns in enumerate(seen):
            found = pair_attention(run.model(), examples, graph)
            whole, *heads = (weight for *_, weight in columns[len(off) :])
            np.testing.assert_allclose(whole, found.weight.mean(axis=(0, 1)))
            np.testing.assert_allclose(heads, found.weight.mean(axis=0))
            if off:
                bare = found.without_decay.mean(axis=(0, 1))
                np.testing.assert_allclose(columns[0][-1], bare)


def test_without_a_graph_to_draw_no_attention_is_shown(variants, tmp_path):
    folder = shutil.copytree(variants[0].folder, tmp_path / "run")
    shutil.rmtree(folder / "examples")
    assert "Not shown for run: that" in patterns_section([History(Run.load(folder), "run")])


def test_a_name_that_says_the_kind_is_not_said_twice(variants):
    labels = ("with decay", "of old")
    section = patterns_section([History(run, label) for run, label in zip(variants, labels)])
    assert "<b>with decay</b>" in section
    assert "<b>plain: of old</b>" in section
