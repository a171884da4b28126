"""What GradformerConv refuses, and how it names it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv

from gradformer.attention import Decay
from gradformer.errors import ConfigError, InputError
from gradformer.model.conv import GradformerConv
from tests.model.convs import EDGES, VECTOR, make


@pytest.mark.parametrize(
    ("named", "arguments"),
    [
        ("x", {"x": torch.zeros(7, 9)}),
        ("x", {"x": torch.zeros(7)}),
        ("x", {"x": torch.zeros(7, 8, dtype=torch.long)}),
        ("x", {"x": {"atom": torch.zeros(7, 8)}}),
        ("edge_index", {"edge_index": [[0], [1]]}),
        ("edge_index", {"edge_index": torch.eye(7).to_sparse()}),
        ("batch", {"batch": [0] * 7}),
        ("edge_attr", {"edge_attr": torch.zeros(10, 8)}),
        ("batch", {"batch": VECTOR[:-1]}),
        ("batch", {"batch": VECTOR.flip(0)}),
        ("batch", {"batch": torch.tensor(0)}),
        ("edge_index", {"edge_index": EDGES.T}),
        ("edge_index", {"edge_index": EDGES.float()}),
        ("edge_index", {"edge_index": EDGES.bool()}),
        ("batch", {"batch": VECTOR.bool()}),
        ("edge_index", {"edge_index": torch.zeros(2, 1), "batch": None}),
        ("edge_index", {"edge_index": EDGES + 1}),
        ("edge_index", {"edge_index": EDGES - 1}),
        ("edge_index", {"edge_index": torch.tensor([[0], [6]])}),
        ("distance", {"distance": torch.zeros(18, dtype=torch.uint8)}),
        ("distance", {"distance": torch.zeros(26, dtype=torch.uint8)}),
        ("distance", {"distance": torch.zeros(19)}),
        ("distance", {"distance": [0] * 19}),
    ],
)
def test_bad_arguments_are_named(named: str, arguments: dict[str, Any]) -> None:
    good = {"x": torch.zeros(7, 8), "edge_index": EDGES, "batch": VECTOR}
    with pytest.raises(InputError, match=rf"^{named}: "):
        make()(**(good | arguments))


class WithWeights(nn.Module):
    """A convolution that returns its own weights too."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return GATConv(8, 8)(x, edge_index, return_attention_weights=True)


@pytest.mark.parametrize("conv", [GCNConv(8, 4), WithWeights()])
def test_a_convolution_that_returns_something_else_is_named(conv: nn.Module) -> None:
    with pytest.raises(
        InputError, match=r"^conv: expected to return \[7, 8\], got (\[7, 4\]|tuple)"
    ):
        make(conv)(torch.zeros(7, 8), EDGES, VECTOR)


def test_norms_are_not_torchs() -> None:
    layer = nn.SyncBatchNorm.convert_sync_batchnorm(make(GCNConv(8, 8)))
    with pytest.raises(ConfigError, match=r"^norm1: was replaced by SyncBatchNorm; .*shared_batch"):
        layer(torch.zeros(7, 8), EDGES, VECTOR)
    layer = make()
    layer.norm2 = nn.LayerNorm(8)  # type: ignore[assignment]
    with pytest.raises(ConfigError, match=r"^norm2: was replaced by LayerNorm; keep the layer"):
        layer(torch.zeros(7, 8), EDGES, VECTOR)


def test_dropout_alone_in_training_is_refused_with_the_remedy() -> None:
    """As one puts it for the spread of predictions; norms in eval do not mind the rest."""
    layer, x = make(GCNConv(8, 8), dropout=0.5, attention_dropout=0.5), torch.randn(7, 8)
    for part in (layer.dropout1, layer.attention):
        layer.eval()
        part.train()
        name = type(part).__name__
        with pytest.raises(ConfigError, match=f"^{name}: is in training, and the model around it"):
            layer(x, EDGES, VECTOR)
    layer.train()
    for norm in (layer.norm1, layer.norm2, layer.norm3):
        assert norm is not None
        norm.eval()
    before = layer.norm3.running_mean.clone()
    assert not torch.equal(layer(x, EDGES, VECTOR), layer(x, EDGES, VECTOR))
    assert torch.equal(layer.norm3.running_mean, before)


def test_bad_options_are_named() -> None:
    with pytest.raises(ConfigError, match=r"^conv: got <class .*, expected a convolution or None"):
        GradformerConv(8, GCNConv)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^decay: got 0.5, expected options as \{'decay': 0.6\}"):
        GradformerConv(8, None, decay=0.5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^heads: 3 "):
        GradformerConv(8, None, heads=3)
    with pytest.raises(ConfigError, match=r"^heads: got 0, expected at least 1"):
        GradformerConv(8, None, heads=0)
    with pytest.raises(ConfigError, match=r"^heads: got 4\.0, expected a whole number"):
        GradformerConv(8, None, heads=4.0)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^dropout: "):
        GradformerConv(8, None, heads=2, attention_dropout=1.0)
    with pytest.raises(ConfigError, match=r"^decay: unknown option 'strat'; did you mean 'start'"):
        GradformerConv(8, None, heads=2, decay={"strat": 1.0})
    with pytest.raises(ConfigError, match=r"^decay: "):
        GradformerConv(8, None, heads=2, decay=Decay(4))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize(
    "make_program",
    [torch.export.export, lambda layer, args: torch.jit.trace(layer, args, check_trace=False)],
)
def test_it_is_not_exported_with_the_graphs_of_the_example(make_program: Any) -> None:
    """A trace took their distances for all that would come."""
    x, edges = torch.randn(3, 8), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    with pytest.raises(ConfigError, match="GradformerConv: cannot be exported or traced"):
        make_program(make(None).eval(), (x, edges))
