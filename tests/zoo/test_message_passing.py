"""The stacks of GCN, GAT, GIN and GatedGCN: their last width, layout, and what hooks see."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.nn.models import GCN

from gradformer.errors import ConfigError, InputError
from gradformer.graphs.arrays import Schema
from gradformer.graphs.collate import Collator
from gradformer.model.base import create_model
from tests.zoo import toys

WORDS = Schema(node=9, edge=(), level="node", task="regression", outputs=2)
BARE = {"embed": False, "head": "none", "norm": False, "residual": False, "width": 8}


def counts(_: Any = None) -> Collator:
    """The toy graphs with words, some nodes without any."""
    arrays = toys.toy_graphs(toys.toy_schema("node", edges=False))
    x = np.random.default_rng(0).poisson(0.3, size=(sum(toys.SIZES), 9)).astype(np.float32)
    return toys.collator(replace(arrays, x=x, schema=WORDS))


@pytest.mark.parametrize("name", ["gcn", "gatedgcn"])
def test_last_width_changes_what_the_head_reads(name):
    model = toys.make(name, last_width=24)
    batch = toys.toy_batch(model.schema)
    assert model.states(batch).shape[1] == 24
    assert not getattr(model.layers[-1], "residual", False)


@pytest.mark.parametrize("part", ["conv", "activation"])
def test_a_hook_sees_a_part_of_a_layer_called(part):
    """Although kernels have a shorter way through the layer."""
    model, seen = toys.make("gcn").eval(), []
    batch = toys.toy_batch(model.schema)
    expected = model(batch)
    for layer in model.layers:
        layer.get_submodule(part).register_forward_hook(lambda *called: seen.append(called))
    assert torch.equal(model(batch), expected)
    assert len(seen) == 3


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_without_embedding_and_head_gcn_is_the_textbooks(layers):
    model = create_model("gcn", WORDS, layers=layers, **BARE).eval()
    batch = counts()(toys.IDS)
    peer = GCN(9, 8, layers, 2)
    ours = [*(layer.conv for layer in model.layers), model.head.conv]
    for conv, theirs in zip(ours, peer.convs, strict=True):
        conv.linear.weight.data.copy_(theirs.lin.weight)
        torch.nn.init.normal_(conv.bias)
        theirs.bias.data.copy_(conv.bias)
    edge_index = torch.stack([batch.edges.source, batch.edges.target])
    torch.testing.assert_close(model(batch), peer(batch.x, edge_index))


@pytest.mark.parametrize("name", ["gcn", "gat", "gin"])
def test_a_bare_stack_draws_the_same_in_a_padded_step(name):
    options = {**BARE, "input_norm": True, "input_dropout": 0.5, "dropout": 0.5, "layers": 2}
    more = {"heads": 2} if name == "gat" else {}
    toys.check_padding(partial(create_model, name, WORDS, **options, **more), counts)


@pytest.mark.parametrize("embed", [True, False])
def test_input_norm_makes_shares_of_the_sum(embed):
    make = partial(create_model, "gcn", WORDS, layers=2, width=8, embed=embed)
    model, plain = make(input_norm=True).eval(), make().eval()
    plain.load_state_dict(model.state_dict())
    batch = counts()(toys.IDS)
    sums = batch.x.sum(1, keepdim=True)
    assert (sums == 0).any()
    shares = replace(batch, x=batch.x / sums.clamp(min=1))
    assert torch.equal(model(batch), plain(shares))
    whole = replace(batch, x=batch.x.long())
    assert torch.equal(model(whole), model(batch))
    torch.testing.assert_close(
        model.half()(batch).float(), plain(shares), atol=1e-2, rtol=1e-2
    )  # a node without words is no NaN


def test_options_that_do_not_fit_the_data_are_named():
    categories = replace(WORDS, node=(7,))
    for option, schema in (
        ({"embed": False}, categories),
        ({"input_norm": True}, replace(WORDS, node=())),
        ({"head": "none"}, replace(WORDS, level="graph")),
        ({"head": "none", "last_width": 4}, WORDS),
    ):
        with pytest.raises(ConfigError, match=f"^{[*option][-1]}: "):
            create_model("gcn", schema, **option)
    model, batch = create_model("gcn", WORDS, **BARE), counts()(toys.IDS)
    for x, told in ((None, "x: this model was"), (batch.x[:, 1:], r"x: expected \[rows, 9\]")):
        with pytest.raises(InputError, match=told):
            model(replace(batch, x=x))
