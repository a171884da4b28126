"""What every variant of every baseline promises, on small random graphs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch_geometric.data import Batch as PyGBatch
from torch_geometric.data import Data

from gradformer.errors import InputError
from gradformer.graphs.arrays import Level
from gradformer.model.base import GraphModel, model_class
from tests.zoo import toys


@dataclass(frozen=True)
class Variant:
    """``ordered``: its numbers follow the order of the nodes, which tells apart what is equal."""

    name: str
    level: Level
    edges: bool
    ordered: bool
    options: dict[str, Any]

    def __str__(self) -> str:
        words = (f"{option}={value}" for option, value in self.options.items())
        edges = "edges" if self.edges else "no edges"
        return " ".join([self.name, self.level, edges, *words])

    def make(self, dropout: float | None = None, **more: Any) -> GraphModel:
        """With this share of ``dropout`` wherever it has one; None: as it is."""
        names = set(model_class(self.name).Config.__dataclass_fields__)
        drops = {name for name in names if name.endswith("dropout")} - {"input_dropout"}
        given = {} if dropout is None else dict.fromkeys(sorted(drops), dropout)
        more = {name: value for name, value in more.items() if name in names}
        return toys.make(self.name, self.level, self.edges, **given | self.options | more)


def v(
    name: str, level: Level = "graph", edges: bool = True, *, ordered: bool = False, **options: Any
) -> Variant:
    return Variant(name, level, edges, ordered, options)


VARIANTS = [
    *(v(name, *where) for name in ("gcn", "gat", "gin") for where in ((), ("node", False))),
    v("gcn", norm=False, residual=False, head="linear"),
    v("gcn", "node", norm=False, residual=False, head="linear"),
    v("gatedgcn", ordered=True, lap=toys.STEPS),
    v("gatedgcn", "node", False, ordered=True, lap=toys.STEPS),
    v("gatedgcn", last_width=24),
    v("gatedgcn", "node", last_width=24),
    v("graphgps", local="gine"),
    v("graphgps", ordered=True, local="gatedgcn", pe="lap"),
    v("graphgps", "node", local="gatedgcn", pe="none"),
    v("graphgps", "node", ordered=True, local="none", pe="lap"),
    v("graphgps", local="gin", pe_norm=False),
    v("gt", ordered=True, lap=toys.STEPS),
    v("gt", "node", False, ordered=True, lap=toys.STEPS),
    v("gt", full_graph=True, layer_norm=True, batch_norm=False),
    v("gt", "node", False, full_graph=True, layer_norm=True, batch_norm=False),
    v("gt", edge_features=False),
    v("gt", "node", False, edge_features=False, full_graph=True),
    v("san", ordered=True, gamma=0.1),
    v("san", "node", False, ordered=True, gamma=0.1),
    v("san", ordered=True, full_graph=False, layer_norm=True, batch_norm=False),
    v("san", "node", False, ordered=True, full_graph=False, layer_norm=True, batch_norm=False),
    v("kdlgt", positions="product", hops=2),
    v("kdlgt", "node", positions="product", hops=2),
    v("kdlgt", ordered=True, positions="anchors", hops=0),
    v("kdlgt", "node", ordered=True, positions="anchors", hops=0),
    v("kdlgt", positions="none", hops=1),
    v("sat", gnn="pna2"),
    v("sat", gnn="gcn", extractor="subgraph"),
    v("sat", gnn="gine", pool="add", norm="layer"),
    v("sat", gnn="gin", pool="cls", norm="layer"),
    v("sat", gnn="pna", extractor="subgraph", pool="cls", pre_norm=True),
    v("sat", "node", False, gnn="gcn", pe="none"),
    *(v("sat", gnn=gnn) for gnn in ("gcn", "graph", "graphsage", "pna", "pna4", "mpnn")),
    v("graphtrans", gnn="gcn"),
    v("graphtrans", ordered=True, gnn="gcn", max_nodes=4),
    v("graphtrans", gnn="gin", virtual_node=True, join="cat", norm_input=False),
    v("graphtrans", "graph", False, gnn="gin", virtual_node=True, join="sum", gnn_residual=True),
    v("graphtrans", "node", gnn="gcn", max_nodes=3),
    v("lgi_gt", conv="gin"),
    v("lgi_gt", conv="eela", pool="cls", middle="none", norm="layer", pe="none"),
    v("lgi_gt", conv="eela", pool="cls", middle="mlp", skip="long"),
    v("lgi_gt", conv="gin", middle="none", norm="layer"),
    v("lgi_gt", conv="gcn", pool="mean", skip="none"),
    v("lgi_gt", "node", False, conv="gcn", head_layers=1),
    v("egt"),
    v("egt", virtual_nodes=2, scale_degree=True),
    v("egt", "graph", False, pair_updates=False, clip_low=-1.0, clip_high=2.0),
    v("egt", "node", scale_degree=True),
    v("egt", "node", False, virtual_nodes=1),
    v("egt", ordered=True, svd=4, virtual_nodes=1),
    v("graphormer", ordered=True),
    v("graphormer", edge_term="adjacent", reach=3),
    v("graphormer", edge_term="adjacent"),
    v("graphormer", "node", hops=0),
    v("graphormer", "node", False),
    v("deepgraph", ordered=True),
    v("deepgraph", "graph", False, ordered=True, deepnorm=False),
    v("deepgraph", "node", ordered=True, hops=0),
    v("deepgraph", "node", False, ordered=True, substructures="walks", members=5, redundancy=2),
]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_neither_batch_mates_nor_the_order_of_nodes_matter(variant: Variant) -> None:
    model = toys.lively(variant.make())
    toys.check_batch_mates(model)
    if not variant.ordered:
        toys.check_relabelling(model)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_padding_changes_nothing(variant: Variant) -> None:
    toys.check_padding(lambda: toys.lively(variant.make(dropout=0.2)))


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_every_parameter_takes_part(variant: Variant) -> None:
    toys.check_parameters(variant.make(dropout=0.0, flip_signs=False, samples=1))


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_model_of_another_float_type_gives_about_the_same(variant: Variant) -> None:
    model = variant.make().eval()
    batch = toys.toy_batch(model.schema)
    exact = model(batch)
    found = model.bfloat16()(batch)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), exact, atol=0.02, rtol=0.02)


@pytest.mark.parametrize("name", toys.SMALL)
def test_graphs_of_no_nodes_alone_are_refused(name: str) -> None:
    """Six of the models failed in torch."""
    empty = Data(torch.zeros(0, 1).long(), torch.zeros(2, 0).long(), torch.zeros(0, 1).long())
    with pytest.raises(InputError, match="data: has no edge_index or no nodes"):
        toys.make(name)(PyGBatch.from_data_list([empty, empty]))


def test_a_compiled_model_computes_structures_outside_of_the_compiler() -> None:
    model = toys.make("deepgraph").eval()
    batch = toys.toy_batch(model.schema)
    found = torch.compile(model, backend="eager")(batch)
    torch.testing.assert_close(found, model(batch))


@pytest.mark.parametrize("name", ["graphormer", "deepgraph", "egt"])
def test_a_batch_without_distances_is_one_line(name: str) -> None:
    model = toys.make(name)
    batch = replace(toys.toy_batch(model.schema), distance=None)
    with pytest.raises(InputError, match=r"^distance: the batch has none"):
        model(batch)


@pytest.mark.parametrize("name", ["graphormer", "deepgraph", "egt"])
def test_quirks_tie_a_graph_to_its_batch(name: str) -> None:
    """What the option reproduces is real, and the default is free of it."""
    model = toys.lively(v(name, reference_quirks=True).make(virtual_nodes=2))
    with pytest.raises(AssertionError, match="not close"):
        toys.check_batch_mates(model)
