"""Encoders, heads and norms on small batches, against torch written out."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gradformer.attention.availability import use_engine
from gradformer.attention.draws import drop, site_seeds
from gradformer.attention.layout import Layout, Rows
from gradformer.errors import ConfigError, InputError
from gradformer.graphs.arrays import Schema
from gradformer.graphs.collate import Collator
from gradformer.graphs.molecules import ATOM_VOCABULARY, BOND_VOCABULARY
from gradformer.model.base import GraphModel, create_model
from gradformer.model.encoders import (
    CategoryEncoder,
    EdgeEncoder,
    FeatureEncoder,
    PositionEncoder,
    SignFlip,
)
from gradformer.model.heads import Head
from gradformer.model.parts import BatchNorm
from tests.zoo import toys


@pytest.mark.parametrize("sizes", [ATOM_VOCABULARY, BOND_VOCABULARY, (4,)])
def test_categories_are_sums_of_embeddings(sizes: tuple[int, ...]) -> None:
    encoder = CategoryEncoder(sizes, 6, "x")
    x = torch.stack([torch.randint(0, size, (5,)) for size in sizes], dim=1)
    tables = [p.detach() for p in encoder.parameters()]
    expected = sum(table[x[:, column]] for column, table in enumerate(tables))
    torch.testing.assert_close(encoder(x), expected)
    for size, table in zip(sizes, tables):  # Xavier's uniform, not torch's normal, at first
        bound = (6 / (size + 6)) ** 0.5
        assert bound / 2 < table.abs().max() <= bound


def test_edges_without_features_share_one_vector() -> None:
    batch = toys.toy_batch(toys.toy_schema(edges=False))
    encoder = EdgeEncoder((), 6)
    (row,) = encoder.parameters()
    assert torch.equal(encoder(batch), row.expand(batch.edges.num_edges, 6))


FLOATS = Schema(node=9, edge=(), level="node", task="regression", outputs=2)


def float_collator(_: GraphModel | None = None) -> Collator:
    """The toy graphs with floats for features."""
    arrays = toys.toy_graphs(toys.toy_schema("node", edges=False))
    x = np.random.default_rng(0).normal(size=(sum(toys.SIZES), 9)).astype(np.float32)
    return toys.collator(replace(arrays, x=x, schema=FLOATS))


def test_input_dropout_zeroes_single_features_in_training() -> None:
    seed = torch.tensor([1, 2])
    batch = float_collator()(toys.IDS).with_seed(seed, 1)
    encoder = FeatureEncoder(9, 6, dropout=0.4)
    assert batch.x is not None
    dropped = drop(batch.x, 0.4, batch.nodes, site_seeds(seed, 1)[0])
    assert torch.equal(encoder.train()(batch), encoder.encoder(dropped))
    assert torch.equal(encoder.eval()(batch), encoder.encoder(batch.x))


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("gradformer", {"pe": "none"}),
        ("graphgps", {"pe": "none"}),
        ("gcn", {}),
        ("gatedgcn", {"lap": 0}),
    ],
)
def test_input_dropout_draws_the_same_in_a_padded_step(name: str, plain: dict[str, Any]) -> None:
    make = partial(create_model, name, FLOATS, layers=1, width=32, **plain)
    assert make(input_dropout=0.5).sites == make().sites + 1
    toys.check_padding(partial(make, input_dropout=0.5), float_collator)


def test_categories_have_no_input_dropout() -> None:
    with pytest.raises(ConfigError, match=r"input_dropout: got 0\.5"):
        FeatureEncoder((7,), 6, dropout=0.5)


def test_an_encoding_is_normalised_over_all_nodes() -> None:
    batch = toys.toy_batch(toys.toy_schema())
    encoder = PositionEncoder("rwse", toys.STEPS, 6).train()
    raw = encoder.raw(batch)
    torch.testing.assert_close(raw.mean(0), torch.zeros(toys.STEPS), atol=1e-5, rtol=0.0)
    torch.testing.assert_close(encoder(raw), encoder.linear(raw))
    plain = PositionEncoder("rwse", toys.STEPS, 6, norm=False)
    assert torch.equal(plain.raw(batch), batch.encodings["rwse"])


@pytest.mark.parametrize(("name", "remedy"), [("lap", r"AddLaplacian\(5\)"), ("own", "data.own")])
def test_an_encoding_that_is_absent_is_named(name: str, remedy: str) -> None:
    batch = replace(toys.toy_batch(toys.toy_schema()), encodings={})
    with pytest.raises(InputError, match=f"^{name}: the graphs carry .*{remedy}"):
        PositionEncoder(name, 5, 6).raw(batch)


def test_signs_are_flipped_column_by_column_for_whole_graphs() -> None:
    sizes = [3] * 200
    layout = Layout.from_sizes(sizes)
    flip, seeds = SignFlip().train(), site_seeds(torch.tensor([1, 2]), 1)
    signs = flip(torch.ones(600, 4), layout.rows, seeds).view(200, 3, 4)
    assert set(signs.unique().tolist()) == {-1.0, 1.0}
    assert torch.equal(signs, signs[:, :1].expand_as(signs))
    assert (signs.mean((0, 1)).abs() < 5 / 200**0.5).all()
    ones = torch.ones(600, 4)
    with pytest.raises(ConfigError, match=r"^SignFlip: is in training, and the model around it"):
        flip(ones, layout.rows, None)
    assert torch.equal(flip.eval()(ones, layout.rows, None), ones)


@pytest.mark.parametrize("pool", ["add", "mean", "max"])
def test_a_graph_head_pools_each_graph(pool: str) -> None:
    batch = toys.toy_batch(toys.toy_schema())
    states = torch.randn(batch.num_nodes, 8)
    parts = states.split(list(toys.SIZES))
    how = {"add": lambda t: t.sum(0), "mean": lambda t: t.mean(0), "max": lambda t: t.amax(0)}
    expected = torch.stack([how[pool](part) for part in parts])
    head = Head(8, 3, "graph", "linear", pool)
    torch.testing.assert_close(head.embed(states, batch), expected)
    assert isinstance(head.net, nn.Linear)
    torch.testing.assert_close(head(states, batch), head.net(expected))


def test_a_node_head_keeps_the_nodes() -> None:
    batch = toys.toy_batch(toys.toy_schema("node"))
    states = torch.randn(batch.num_nodes, 8)
    head = Head(8, 3, "node")
    assert head.embed(states, batch) is states
    assert head(states, batch).shape == (batch.num_nodes, 3)


def test_batch_norm_sees_the_real_rows_only() -> None:
    x = torch.randn(10, 4)
    rows = Rows(torch.zeros(10).int(), torch.arange(10).int(), torch.arange(10) < 7)
    plain, masked = nn.BatchNorm1d(4), BatchNorm(4)
    padded = torch.where(rows.mask[:, None], x, torch.nan) if rows.mask is not None else x
    found = masked(padded, rows)
    torch.testing.assert_close(found[:7], plain(x[:7]))
    assert torch.equal(found[7:], torch.zeros(3, 4))
    torch.testing.assert_close(masked.running_mean, plain.running_mean)
    torch.testing.assert_close(masked.running_var, plain.running_var)
    torch.testing.assert_close(masked.eval()(padded, rows)[:7], plain.eval()(x[:7]))


@pytest.mark.parametrize("engine", ["auto", "reference", "fused"])
@pytest.mark.parametrize("padded", [False, True])
def test_without_a_momentum_all_batches_count_alike(
    engine: str, padded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``torch.optim.swa_utils.update_bn`` sets it, for the statistics of averaged weights."""
    monkeypatch.setattr("gradformer.model.parts.LEAST_LOOPED", 0)  # loops too, where they can
    plain, ours = (kind(4, momentum=None) for kind in (nn.BatchNorm1d, BatchNorm))
    place = torch.arange(6, dtype=torch.int32)
    rows = Rows(place, place, place < 6 if padded else None)
    with use_engine(engine):
        for seed in range(3):
            x = torch.randn(6, 4, generator=torch.Generator().manual_seed(seed)) + seed
            torch.testing.assert_close(ours(x, rows), plain(x))
    torch.testing.assert_close(dict(ours.named_buffers()), dict(plain.named_buffers()))


def test_a_single_row_is_normalised_by_the_running_statistics() -> None:
    norm = BatchNorm(4).train()
    x = torch.randn(1, 4)
    for mask in (None, torch.tensor([True])):
        rows = Rows(torch.zeros(1).int(), torch.zeros(1).int(), mask)
        torch.testing.assert_close(norm(x, rows), x / (1 + 1e-5) ** 0.5)
    assert torch.equal(norm.running_mean, torch.zeros(4))
