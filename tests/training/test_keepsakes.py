"""What a run keeps of its data is what it was trained and tested on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gradformer.errors import GradformerWarning
from gradformer.graphs.collate import Collator
from gradformer.model.base import create_model
from gradformer.training.keepsakes import (
    LARGEST,
    Answers,
    load_answers,
    load_examples,
    save_answers,
    save_examples,
    take,
)
from tests.report import toys


def test_taken_graphs_are_the_same_graphs():
    recipe = toys.recipe(pe="rwse", pe_steps=3, pe_width=2)
    for level in ("graph", "node"):
        store = toys.data(recipe, level=level).store
        some = take(store, np.array([7, 3]))
        model = create_model("gradformer", store.schema, **toys.SMALL).eval()
        whole = model(Collator(store)(torch.tensor([7, 3])))
        assert torch.equal(model(Collator(some)(torch.tensor([0, 1]))), whole)
        assert np.array_equal(some.sizes, store.sizes[[7, 3]])
        assert some.about["graphs"] == [7, 3]


def test_examples_are_small_test_graphs(tmp_path):
    data = toys.data(toys.recipe())
    save_examples(tmp_path, data, seed=4)
    kept = load_examples(tmp_path)
    assert kept is not None
    assert set(kept.about["graphs"]) <= set(data.split(4).test.tolist())


def test_a_report_goes_without_what_is_damaged(tmp_path):
    save_examples(tmp_path, toys.data(toys.recipe()), seed=4)
    save_answers(tmp_path, Answers(np.ones((3, 2), np.float32), np.array([0, 1, -1])))
    for load, path in ((load_examples, "examples/x.npy"), (load_answers, "test.safetensors")):
        (tmp_path / path).write_bytes((tmp_path / path).read_bytes()[:50])
        with pytest.warns(GradformerWarning, match="nothing is drawn of it; restore it"):
            assert load(tmp_path) is None


def test_no_example_where_all_graphs_are_too_large(tmp_path):
    data = toys.data(toys.recipe())
    arrays = {**data.store.arrays, "node_ptr": data.store.arrays["node_ptr"] * LARGEST}
    save_examples(tmp_path, replace(data, store=replace(data.store, arrays=arrays)), seed=0)
    assert load_examples(tmp_path) is None


def test_answers_come_back(tmp_path):
    assert load_answers(tmp_path) is None
    given = Answers(np.ones((3, 2), np.float32), np.array([0, 1, -1]))
    save_answers(tmp_path, given)
    found = load_answers(tmp_path)
    assert found is not None
    assert np.array_equal(found.prediction, given.prediction)
    assert np.array_equal(found.target, given.target)
