"""What `gradformer models` says of each baseline, and how large the recipes make them."""

from __future__ import annotations

import pytest

from gradformer.errors import ConfigError
from gradformer.graphs.arrays import Schema
from gradformer.graphs.store import pack
from gradformer.model.base import all_models, create_model, model_class
from gradformer.training.data import structure_for
from gradformer.training.recipe import load_recipe
from tests.zoo.toys import toy_graphs, toy_schema

BASELINES = sorted(set(all_models()) - {"gradformer"})
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


@pytest.mark.parametrize("edges", [True, False])
@pytest.mark.parametrize("name", ["graphormer", "deepgraph"])
def test_paths_are_stored_where_edges_have_features(name, edges):
    structure = structure_for(model_class(name).Config().needs())
    store = pack(toy_graphs(toy_schema("graph", edges)), structure)
    assert ("first_edge" in store.arrays) == edges


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("kdlgt", {"features": 0}, "features: got 0, expected at least 1"),
        ("egt", {"virtual_nodes": -1}, "virtual_nodes: got -1, expected at least 0"),
        ("egt", {"clip_low": 6.0}, "clip_low: got 6.0, expected less than clip_high, 5.0"),
        ("sat", {"pe_steps": 0}, "pe_steps: got 0, expected at least 1"),
        ("graphgps", {"pe": "lap", "pe_steps": 0}, "pe_steps: got 0, expected at least 1"),
        ("lgi_gt", {"pe_width": 0}, "pe_width: got 0, expected at least 1"),
        ("graphtrans", {"gnn_layers": 0}, "gnn_layers: got 0, expected at least 1"),
        ("deepgraph", {"substructures": "x"}, "substructures: unknown value 'x'"),
        ("san", {"lpe_width": 64}, "lpe_width: 64 leaves no room for features in 64"),
        ("san", {"gamma": -1.0}, "gamma: got -1.0, expected a weight of at least 0"),
        ("san", {"lpe_heads": 3}, "heads: 3 does not divide the width 16"),
        ("lgi_gt", {"conv": "eela", "conv_attention_dropout": 1.5}, "dropout: got 1.5, expected"),
    ],
)
def test_an_option_that_cannot_be_is_named(name, options, message):
    with pytest.raises(ConfigError, match=message):
        create_model(name, SCHEMAS["zinc"], **options)
