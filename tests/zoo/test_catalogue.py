"""What `gradformer models` says of each baseline, and how large the recipes make them."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch

from gradformer.errors import ConfigError
from gradformer.graphs.arrays import Schema
from gradformer.graphs.store import pack
from gradformer.model.base import all_models, create_model, model_class
from gradformer.training.recipe import load_recipe
from tests.zoo.toys import IDS, SIZES, own_collator, toy_graphs, toy_schema

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


@pytest.mark.parametrize("level", ["graph", "node"])
@pytest.mark.parametrize(
    ("name", "options"),
    [*((name, {}) for name in BASELINES), ("egt", {"virtual_nodes": 2}), ("sat", {"pool": "cls"})],
)
def test_states_begin_with_those_of_the_nodes(name, options, level):
    """As embeddings take them; models with tokens gave these, or theirs among them."""
    if level == "node" and options.get("pool") == "cls":
        pytest.skip("a token of a graph is not for nodes")
    model = create_model(name, toy_schema(level), layers=1, **options).eval()
    collate = own_collator(model)

    def nodes_of(ids):
        batch = collate(ids)
        return model.states(batch)[: batch.num_nodes]

    together, alone = nodes_of(IDS), torch.cat([nodes_of(one) for one in IDS.split(1)])
    assert len(together) == sum(SIZES)
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=1e-4)


def test_nodes_that_a_transformer_does_not_see_have_no_state():
    model = create_model("graphtrans", toy_schema(), layers=1, max_nodes=4).eval()
    whole = create_model("graphtrans", toy_schema(), layers=1).eval()
    whole.load_state_dict(model.state_dict())
    batch = own_collator(model)(IDS)
    place = torch.cat([torch.arange(n) - (n - 4) for n in SIZES])
    states, seen = model.states(batch)[: len(place)], whole.states(batch)[: len(place)]
    assert torch.equal(states.any(dim=1), place >= 0)
    small = torch.cat([torch.full((n,), n <= 4) for n in SIZES])
    torch.testing.assert_close(states[small], seen[small])


@pytest.mark.parametrize("edges", [True, False])
@pytest.mark.parametrize("name", ["graphormer", "deepgraph"])
def test_paths_are_stored_where_edges_have_features(name, edges):
    structure = model_class(name).Config().needs()
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
        ("lgi_gt", {"pe_width": 64}, "pe_width: 64 leaves no room"),
        ("graphgps", {"pe_width": 64}, "pe_width: 64 leaves no room"),
        ("graphormer", {"hops": 300}, "hops: got 300"),
        ("deepgraph", {"hops": -1}, "hops: got -1"),
        *((name, {"heads": 7}, "heads: 7 does not divide") for name in ("gat", "gt", "egt")),
    ],
)
def test_an_option_that_cannot_be_is_named(name, options, message):
    with pytest.raises(ConfigError, match=message):
        create_model(name, SCHEMAS["zinc"], **options)


IN_WORDS = [
    (name, option.name)
    for name in all_models()
    for option in fields(model_class(name).Config)
    if option.type == "str"
]


@pytest.mark.parametrize(("name", "option"), IN_WORDS)
def test_no_option_takes_any_word_for_another(name, option):
    said = (
        option.replace("_", ".") + ": unknown (value|module) 'sideways'"
    )  # a decay calls its own decay.on
    with pytest.raises(ConfigError, match=said):
        create_model(name, SCHEMAS["zinc"], **{option: "sideways"})


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("sat", {"pool": "cls"}, "targets are on nodes"),
        ("lgi_gt", {"pool": "cls"}, "targets are on nodes"),
        ("sat", {"gnn": "gine"}, "gine needs edge features"),
    ],
)
def test_an_option_that_does_not_go_with_the_data_is_named(name, options, message):
    with pytest.raises(ConfigError, match=message):
        create_model(name, SCHEMAS["pattern"], **options)
