"""Why a prediction: the page of every head."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gradformer.errors import InputError
from gradformer.graphs.labels import Labels
from gradformer.report import explain, write_explanation
from gradformer.report.attention import Sketch, contrast, lay_out
from gradformer.report.explain import _answer, _heads
from gradformer.report.markup import Markup
from gradformer.report.patterns import PairAttention
from gradformer.report.scales import number
from gradformer.training.fit import fit
from gradformer.training.inference import Predictions
from gradformer.training.keepsakes import load_examples
from tests.report import toys


def test_explanation_of_every_head(classes, tmp_path):
    examples = load_examples(classes.folder)
    page = write_explanation(classes, examples, tmp_path / "e.html").read_text()
    assert page.count("<h3>Head ") == 2 * 2
    assert re.search("Prediction: <b>class 0: [^;]* ± [^;]*; class 1: ", page)
    assert "Trial 0, mean over all layers. Score: " in page
    assert "Predictions: mean ± standard deviation over 2 trials." in page
    for name in ("Score", "Decay", "Weight"):
        assert f"<title>{name} of head 2</title>" in page
    for layer in (1, 2):
        page = write_explanation(classes, examples, tmp_path / "e.html", layer=layer).read_text()
        assert f"Trial 0, layer {layer}. Score: " in page


@pytest.mark.parametrize(("layer", "largest"), [(None, 0.5), (1, 2.0), (2, 2.0)])
def test_matrices_of_a_head_are_those_of_the_layer_or_the_mean(layer, largest, monkeypatch):
    drawn = []

    def note(title, values, *ends):
        drawn.append((title, values, ends))
        return Markup("")

    monkeypatch.setattr(explain, "draw_matrix", note)
    rng = np.random.default_rng(0)
    shape = (2, 3, 4, 4)  # layers, heads, nodes, nodes
    score, decay = rng.normal(size=shape), largest * rng.random(shape)
    weight = rng.dirichlet(np.ones(4), shape[:3])
    graph = Sketch(lay_out(4, [(0, 1)]), [(0, 1)], None)
    text = _heads(PairAttention(score, decay, weight), graph, layer)
    chosen = [
        part.mean(axis=0) if layer is None else part[layer - 1] for part in (score, decay, weight)
    ]
    for head in range(3):
        ends = (
            (chosen[0][head].min(), chosen[0][head].max()),
            (0.0, max(1.0, chosen[1].max())),
            contrast(*chosen[2]),
        )
        for name, part, expected in zip(("Score", "Decay", "Weight"), chosen, ends):
            title, values, given = drawn.pop(0)
            assert title == f"{name} of head {head + 1}"
            assert given == expected
            np.testing.assert_array_equal(values, part[head])
            digits = 3 if name == "Score" else 2
            least, most = (number(value, digits) for value in (part[head].min(), part[head].max()))
            assert f">{name.lower()} from {least} to {most}<" in text
    assert not drawn


def test_a_probability_names_its_class():
    run = SimpleNamespace(labels=Labels("binary", ("kind",), (("chain", "ring"),)))
    predicted = Predictions(np.full((2, 3, 1), 0.25))
    assert "<b>kind is ring: 0.25 ± 0</b>" in _answer(run, predicted, 1)


def test_explanation_says_what_it_cannot_do(classes, variants, tmp_path):
    examples = load_examples(classes.folder)
    with pytest.raises(InputError, match="gin does not show its attention; explain a run of"):
        write_explanation(variants[-1], examples, tmp_path / "e.html")
    with pytest.raises(InputError, match="layer: got 3, expected 1 to 2"):
        write_explanation(classes, examples, tmp_path / "e.html", layer=3)


def test_molecules_are_drawn_with_their_elements(tmp_path, monkeypatch):
    pytest.importorskip("rdkit")
    words = ["CCO", "CCN", "CCS", "CCCl", "CCCO", "CCCN", "CCCS", "CCF", "CC=O", "CCBr"]
    smiles = [*words, *(f"CCC{word}" for word in words)]
    run = fit(
        smiles,
        y=[float(len(s)) for s in smiles],
        recipe=replace(toys.recipe(trials=1, epochs=1), dataset="molecules"),
        out=tmp_path / "run",
        device="cpu",
        tensorboard=False,
        quiet=True,
    )
    monkeypatch.setattr(explain, "LARGEST", 3)
    page = write_explanation(
        run, ["CCO", "NCC", "C", "CCCC", "CC"], tmp_path / "e.html"
    ).read_text()
    names = re.findall("<h2>(.*?)</h2>", page)
    assert names == ["Position 0: CCO", "Position 1: NCC", "Position 4: CC"]
    assert re.search("Prediction: <b>y: [^±;]*</b>", page)
    assert "over 1 trials" not in page
    per_graph = page.split("<h2>")[1:3]
    assert [re.findall(r'class="atom">(\w*)<', part)[:3] for part in per_graph] == [
        ["", "", "O"],
        ["N", "", ""],
    ]
    page = write_explanation(run, ["CC", "CO"], tmp_path / "e.html", most=1).read_text()
    assert page.count("<h2>") == 1
    with pytest.raises(InputError, match="no graph has 2 to 3 nodes, so none can be drawn"):
        write_explanation(run, ["C"], tmp_path / "e.html")
