"""Inputs and options that a model refuses, by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from gradformer.attention import Layout, use_engine
from gradformer.errors import ConfigError, InputError
from gradformer.graphs.arrays import Schema
from gradformer.model.base import create_model
from gradformer.model.encoders import SignFlip
from gradformer.model.gradformer import Gradformer, GradformerConfig
from gradformer.structure import AddDistance
from gradformer.structure.codebook import Codebook
from gradformer.structure.distance import hop_distances
from tests.zoo import toys

CATEGORIES = Schema(node=(7, 3), edge=(4,), level="graph", task="regression", outputs=1)
FLOATS = Schema(node=2, edge=3, level="graph", task="regression", outputs=1)
SMALL = {"layers": 1, "width": 16, "heads": 2, "pe_steps": 5, "pe_width": 4}


def graph(schema: Schema) -> Data:
    """Three nodes and two edges that a model for ``schema`` takes."""
    floats = schema is FLOATS
    return Data(
        x=torch.randn(3, 2) if floats else torch.tensor([[6, 2], [0, 0], [1, 1]]),
        edge_index=torch.tensor([[0, 1], [1, 0]]),
        edge_attr=torch.randn(2, 3) if floats else torch.tensor([0, 3]),
        rwse=torch.zeros(3, 5),
    )


def with_nan(rows: int, columns: int) -> torch.Tensor:
    x = torch.zeros(rows, columns)
    x[1, 0] = torch.nan
    return x


def pair(row: int, *categories: int) -> torch.Tensor:
    """Categories [3, 2], all 0 but those of one row."""
    x = torch.zeros(3, 2, dtype=torch.long)
    x[row] = torch.tensor(categories)
    return x


CASES: list[tuple[str, Schema, dict[str, Any]]] = [
    (r"x: expected 3 rows", FLOATS, {"x": torch.zeros(2, 2), "num_nodes": 3}),
    (r"x: expected \[rows, 2\], got \[3, 4\]", FLOATS, {"x": torch.zeros(3, 4)}),
    (r"x: row 1 holds a value that is not finite", FLOATS, {"x": with_nan(3, 2)}),
    (r"x: this model was built for graphs with", FLOATS, {"x": None, "num_nodes": 3}),
    (r"x: expected integers \[rows, 2\]", CATEGORIES, {"x": torch.zeros(3, 2)}),
    (r"x: expected integers \[rows, 2\]", CATEGORIES, {"x": torch.zeros(3, 1).long()}),
    (r"x: category 3 in row 2, column 1", CATEGORIES, {"x": pair(2, 6, 3)}),
    (r"x: category -1 in row 0, column 0", CATEGORIES, {"x": pair(0, -1, 0)}),
    (r"edge_attr: category 4 in row \d", CATEGORIES, {"edge_attr": torch.tensor([0, 4])}),
    (r"edge_attr: expected 2 rows", CATEGORIES, {"edge_attr": torch.tensor([0, 1, 2])}),
    (r"edge_attr: expected 1 row of", CATEGORIES, {"edge_index": torch.tensor([[0], [1]])}),
    (r"edge_attr: row 1 holds", FLOATS, {"edge_attr": with_nan(2, 3)}),
    (r"edge_attr: expected \[rows, 3\]", FLOATS, {"edge_attr": torch.zeros(2, 2)}),
    (r"edge_attr: this model was built for", FLOATS, {"edge_attr": None}),
    (r"edge_index: holds node 3 of 3 n", FLOATS, {"edge_index": torch.tensor([[0, 3], [1, 0]])}),
    (r"edge_index: holds node -1", FLOATS, {"edge_index": torch.tensor([[0, -1], [1, 0]])}),
    (r"edge_index: expected integers", FLOATS, {"edge_index": torch.zeros(3, 2).long()}),
    (r"edge_index: expected integers \[2, edges\]", FLOATS, {"edge_index": torch.zeros(2, 2)}),
    (r"edge_index: an edge joins two", FLOATS, {"batch": torch.tensor([0, 1, 1])}),
    (r"batch: graphs must be numbered", FLOATS, {"batch": torch.tensor([0, 0, -1])}),
    (r"distance: .* by AddDistance\(\)", FLOATS, {"distance": torch.zeros(8, dtype=torch.uint8)}),
    (r"distance: expected uint8 \[9\]", FLOATS, {"distance": torch.zeros(10, dtype=torch.uint8)}),
    (r"distance: expected uint8 \[9\]", FLOATS, {"distance": torch.zeros(3, 3)}),
    (r"rwse: row 1 holds a value that is not finite", FLOATS, {"rwse": with_nan(3, 5)}),
    (r"rwse: the graphs carry .* transform AddRandomWalk\(5\)", FLOATS, {"rwse": None}),
    (r"rwse: expected 5 columns, got 4", FLOATS, {"rwse": torch.zeros(3, 4)}),
]  # fmt: skip


@pytest.mark.parametrize(("message", "schema", "change"), CASES)
def test_a_bad_graph_is_refused_by_name(
    message: str, schema: Schema, change: dict[str, Any]
) -> None:
    model = Gradformer(schema, **SMALL).eval()
    data = graph(schema)
    assert model(data).shape == (1, 1)
    data = graph(schema)
    for name, value in change.items():
        data[name] = value
    with pytest.raises(InputError, match=rf"^{message}"):
        model(data)


def test_a_batch_without_distances_is_refused() -> None:
    model = Gradformer(toys.toy_schema(), **SMALL)
    batch = replace(toys.toy_batch(model.schema), distance=None)
    with pytest.raises(InputError, match=r"^distance: "):
        model(batch)


@pytest.mark.parametrize(
    ("message", "options"),
    [
        (r"hedas: unknown model option; did you mean 'heads'", {"hedas": 4}),
        (r"heads: 3 does not divide the width 16", {"heads": 3}),
        (r"local: unknown module 'gated'; did you mean 'gatedgcn'", {"local": "gated"}),
        (r"local: PyG's GINConv cannot be made", {"local": "GINConv"}),
        (r"pe: unknown value 'rwes'; did you mean 'rwse'", {"pe": "rwes"}),
        (r"pe_join: unknown value", {"pe_join": "multiply"}),
        (r"pe_width: 16 leaves no room", {"pe_width": 16}),
        (r"pool: unknown value 'sum'", {"pool": "sum"}),
        (r"head: unknown value", {"head": "deep"}),
        (r"index: unknown value 'hop'", {"index": "hop"}),
        (r"decay: λ must lie in", {"decay": 2.0}),
        (r"decay\.shape: unknown value", {"decay_shape": "gaussian"}),
        (r"dropout: got 1.0", {"dropout": 1.0}),
        (r"dropout: got -0.5", {"attention_dropout": -0.5}),
        (r"dropout: got 1.5", {"drop_path": 1.5}),
        (r"position_gate: needs", {"position_gate": True}),
        (r"position_gate: needs", {"position_gate": True, "local": "gatedgcn", "pe": "none"}),
        (r"local: got None, expected str", {"local": None}),
        (r"degree: unknown value 'in'", {"degree": "in"}),
        (r"pe_width, pe_steps: got 0 and 5", {"pe_width": 0}),
        (r"pe_width, pe_steps: got 4 and 0", {"pe_steps": 0}),
        (r"start: got nan", {"start": float("nan")}),
        (r"start: got 'a', expected float", {"start": "a"}),
        (r"layers: got 2.5, expected int", {"layers": 2.5}),
        (r"layers: got 0, expected at least 1", {"layers": 0}),
        (r"width: got -16, expected at least 1", {"width": -16}),
    ],
)
def test_a_bad_option_is_refused_by_name(message: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"^{message}"):
        Gradformer(CATEGORIES, **(SMALL | options))


def test_what_is_no_graph_is_refused() -> None:
    with pytest.raises(InputError, match=r"^data: expected a Batch, or PyG's Data"):
        Gradformer(CATEGORIES, **SMALL)({"x": 1})


def test_another_index_than_hops_comes_with_its_distances_and_unit() -> None:
    model = Gradformer(FLOATS, **SMALL, index="curvature").eval()
    with pytest.raises(InputError, match=r"^distance: absent; .* AddDistance\('curvature'\)"):
        model(graph(FLOATS))
    transform = AddDistance("curvature")
    assert model(transform(graph(FLOATS))).shape == (1, 1)
    assert model.decay.psi.tolist() == pytest.approx(transform.codebook.values.tolist())
    of_a_run = Codebook.uniform("curvature", 7.0)  # of its data, whose bytes are others
    model = Gradformer(FLOATS, **SMALL, index="curvature", codebook=of_a_run)
    with pytest.raises(InputError, match=r"AddDistance\('curvature', codebook=run.codebook\)$"):
        model(graph(FLOATS))


@pytest.mark.parametrize("width", [1, 2, 3])
def test_the_narrowest_models_still_see_their_input(width: int) -> None:
    model = Gradformer(FLOATS, layers=1, width=width, heads=1, pe="none").eval()
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, 0.5)
    assert not torch.equal(model(graph(FLOATS)), model(graph(FLOATS)))  # two random graphs


@pytest.mark.parametrize(
    ("pe", "flip_signs", "flips", "needs"),
    [
        ("rwse", True, False, (5, 0)),
        ("lap", True, True, (0, 5)),
        ("lap", False, False, (0, 5)),
        ("none", True, False, (0, 0)),
    ],
)
def test_only_eigenvectors_have_signs_to_flip(
    pe: str, flip_signs: bool, flips: bool, needs: tuple[int, int]
) -> None:
    model = Gradformer(FLOATS, **SMALL, pe=pe, flip_signs=flip_signs)
    assert any(isinstance(module, SignFlip) for module in model.modules()) == flips
    found = model.config.needs()
    assert (found.rwse, found.lap) == needs


@pytest.mark.parametrize(("twice", "inside", "after"), [(False, 0.25, 0.0), (True, 0.0, 0.25)])
def test_gatedgcn_drops_before_x_is_added_and_makes_no_edges_for_nobody(
    twice: bool, inside: float, after: float
) -> None:
    options = {**SMALL, "layers": 2, "local": "gatedgcn", "dropout": 0.25}
    first, last = Gradformer(FLOATS, **options, double_residual=twice).layers
    for layer in (first, last):
        assert (layer.local.dropout.p, layer.local_dropout.p) == (inside, after)
    assert first.local.edge_norm is not None
    assert last.local.edge_norm is None


def test_models_are_made_by_name() -> None:
    model = create_model("gradformer", CATEGORIES, **SMALL)
    assert isinstance(model, Gradformer)
    assert model.config == GradformerConfig(**SMALL)
    with pytest.raises(ConfigError, match=r"^model: unknown name 'gradfomer'; did you mean"):
        create_model("gradfomer", CATEGORIES)


@pytest.mark.parametrize("degree", ["onehot", "normalised"])
def test_graphs_without_features_are_encoded_by_degree(degree: str) -> None:
    schema = Schema(node=(), edge=(), level="node", task="regression", outputs=1)
    torch.manual_seed(0)
    model = Gradformer(schema, **(SMALL | {"pe": "none", "degree": degree, "local": "gcn"})).eval()
    index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])  # a path: the two ends are alike
    ends = model(Data(edge_index=index, num_nodes=3))
    torch.testing.assert_close(ends[0], ends[2])
    assert not torch.allclose(ends[0], ends[1])
    with pytest.raises(ConfigError, match=r"^degree: unknown value"):
        Gradformer(schema, **(SMALL | {"degree": "one-hot"}))


@pytest.mark.parametrize("kind", [torch.int32, torch.int16, torch.uint8, torch.bool])
def test_categories_may_be_short_integers(kind: torch.dtype) -> None:
    """Also such as do not reach to the end of their vocabulary."""
    model, data = Gradformer(replace(CATEGORIES, node=(300, 3)), **SMALL).eval(), graph(CATEGORIES)
    data.x, data.edge_attr = data.x.clamp(max=1), data.edge_attr.clamp(max=1)
    expected = model(data)
    data.x, data.edge_attr = data.x.to(kind), data.edge_attr.to(kind)
    data.edge_index = data.edge_index.int()
    assert torch.equal(model(data), expected)


def test_features_may_be_sparse() -> None:
    model, data = Gradformer(FLOATS, **SMALL).eval(), graph(FLOATS)
    expected = model(data)
    data.x, data.edge_attr = data.x.to_sparse(), data.edge_attr.to_sparse()
    torch.testing.assert_close(model(data), expected)


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    "schema", [CATEGORIES, FLOATS, Schema((), (), "graph", "regression", 1)], ids=str
)
def test_a_whole_model_in_another_float_type(schema: Schema, kind: torch.dtype) -> None:
    model = Gradformer(schema, **(SMALL | {"degree": "normalised"})).to(kind)
    assert model(graph(schema)).dtype == kind


def test_a_graph_that_inference_mode_has_seen_can_be_trained_on() -> None:
    model, data = Gradformer(FLOATS, **SMALL), graph(FLOATS)
    with torch.inference_mode():
        model(data)
    model(data).sum().backward()
    with torch.inference_mode():
        model.attention(data)  # by the reference, which makes more of the layout
    with use_engine("reference"):
        model(data).sum().backward()


def test_a_model_stays_on_its_device_where_another_is_the_default() -> None:
    model, data = Gradformer(FLOATS, **SMALL), graph(FLOATS)
    expected = model.eval()(data)
    with torch.device("meta"):
        assert Layout.from_sizes([2, 1]).graph_id.is_meta
        torch.testing.assert_close(model(data.clone()), expected)
        model.train()(data.clone()).sum().backward()


def test_a_compiled_model_packs_graphs_outside_of_the_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which followed numba's own compiler, and fell."""
    model, data, compiling = Gradformer(FLOATS, **SMALL).eval(), graph(FLOATS), []
    monkeypatch.setattr(
        "gradformer.graphs.batch.hop_distances",
        lambda *graphs: compiling.append(torch.compiler.is_compiling()) or hop_distances(*graphs),
    )
    found = torch.compile(model, backend="eager")(data)
    assert compiling == [False]
    torch.testing.assert_close(found, model(data))


def test_attention_keeps_the_mode_of_each_part_even_when_refused() -> None:
    model, data = Gradformer(CATEGORIES, **SMALL).train(), graph(CATEGORIES)
    model.layers[0].norm.eval()
    before = [part.training for part in model.modules()]
    model.attention(data)
    data.x = data.x + 100
    with pytest.raises(InputError, match=r"^x: category"):
        model.attention(data)
    assert [part.training for part in model.modules()] == before


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"level": "nodes"}, "schema.level: unknown value 'nodes'; did you mean 'node'?"),
        ({"task": "regresion"}, "schema.task: unknown value 'regresion'; did you mean"),
        ({"outputs": 0}, "schema.outputs: got 0, expected at least 1"),
    ],
)
def test_a_wrong_schema_is_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        replace(FLOATS, **wrong)
    assert message in str(caught.value)
