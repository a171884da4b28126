"""What `gradformer models` says of each baseline, and how large the recipes make them."""

from __future__ import annotations

import pytest

from gradformer.graphs.arrays import Schema
from gradformer.model.base import MODELS, create_model, model_class
from gradformer.training.recipe import load_recipe

model_class("gradformer")  # fills the registry
BASELINES = sorted(set(MODELS) - {"gradformer"})
SCHEMAS = {
    "zinc": Schema((28,), (4,), "graph", "regression", 1),
    "pattern": Schema((3,), (), "node", "multiclass", 2),
    "cluster": Schema((7,), (), "node", "multiclass", 6),
}
#: sizes that the model's own authors have chosen; their recipes say so
OWN_SIZE = {
    ("zinc", "graphgps"): 423_717,
    ("zinc", "gt"): 588_929,
    ("zinc", "lgi_gt"): 841_701,
    ("pattern", "graphgps"): 337_201,
    ("pattern", "lgi_gt"): 252_384,
    ("pattern", "sat"): 825_986,
    ("cluster", "lgi_gt"): 381_618,
    ("cluster", "san"): 519_186,
    ("cluster", "sat"): 741_990,
}


def test_there_are_fourteen():
    assert len(BASELINES) == 14


@pytest.mark.parametrize("name", BASELINES)
def test_the_list_says_what_a_model_is_and_what_it_was_held_to(name):
    model = model_class(name)
    assert not (model.__doc__ or "See").startswith("See")
    assert model.reference


@pytest.mark.parametrize("dataset", SCHEMAS)
@pytest.mark.parametrize("name", BASELINES)
def test_about_half_a_million_parameters(name, dataset):
    config = load_recipe(dataset, model=name).model.config
    model = create_model(name, SCHEMAS[dataset], config=config)
    count = sum(parameter.numel() for parameter in model.parameters())
    own = OWN_SIZE.get((dataset, name))
    assert count == pytest.approx(own or 500_000, rel=0.04 if own else 0.1)
