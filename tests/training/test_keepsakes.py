"""What a run keeps of its data is what it was trained and tested on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gradformer.errors import GradformerWarning
from gradformer.graphs.arrays import GraphArrays, Schema
from gradformer.graphs.collate import Collator
from gradformer.graphs.splits import Split
from gradformer.graphs.store import pack
from gradformer.model.base import create_model
from gradformer.structure.pointers import pointer
from gradformer.training.data import TrainingData
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
from tests.training import toy


def test_taken_graphs_are_the_same_graphs():
    recipe = toys.recipe(pe="rwse", pe_steps=3, pe_width=2)
    for level in ("graph", "node"):
        store = toy.data(recipe, level=level).store
        some = take(store, np.array([7, 3]))
        model = create_model("gradformer", store.schema, **toys.SMALL).eval()
        whole = model(Collator(store)(torch.tensor([7, 3])))
        assert torch.equal(model(Collator(some)(torch.tensor([0, 1]))), whole)
        assert np.array_equal(some.sizes, store.sizes[[7, 3]])
        assert some.about["graphs"] == [7, 3]


@pytest.mark.parametrize(
    ("sizes", "kept"),
    [
        ([LARGEST + 1, 1], None),
        ([LARGEST, 2], [1, 0]),
        ([LARGEST, 1, 30, 9, 2, 40], [3, 5]),  # at a third and at two thirds of 2, 9, 30, 40, 80
    ],
)
def test_examples_are_a_smaller_and_a_larger_test_graph(sizes, kept, tmp_path):
    sizes = [5, *sizes]  # the first is none of the test part
    schema = Schema((), (), "graph", "regression", 1)
    empty, none = np.zeros(len(sizes) + 1, np.int64), np.zeros((2, 0), np.int32)
    store = pack(GraphArrays(pointer(np.array(sizes)), empty, none, schema))
    parts = Split(np.array([0]), np.array([0]), np.arange(1, len(sizes)))
    save_examples(tmp_path, TrainingData(store, lambda seed: parts, "mae"), seed=4)
    found = load_examples(tmp_path)
    assert (found and [number - 1 for number in found.about["graphs"]]) == kept


def test_a_report_goes_without_what_is_damaged(tmp_path):
    save_examples(tmp_path, toy.data(toys.recipe()), seed=4)
    save_answers(tmp_path, Answers(np.ones((3, 2), np.float32), np.array([0, 1, -1])))
    for load, path in ((load_examples, "examples/x.npy"), (load_answers, "test.safetensors")):
        (tmp_path / path).write_bytes((tmp_path / path).read_bytes()[:50])
        with pytest.warns(GradformerWarning, match="nothing is drawn of it; restore it"):
            assert load(tmp_path) is None


def test_answers_come_back(tmp_path):
    assert load_answers(tmp_path) is None
    given = Answers(np.ones((3, 2), np.float32), np.array([0, 1, -1]))
    save_answers(tmp_path, given)
    found = load_answers(tmp_path)
    assert np.array_equal(found.prediction, given.prediction)
    assert np.array_equal(found.target, given.target)
