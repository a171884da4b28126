"""What Gradformer promises for every configuration, on small random graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch as PyGBatch
from torch_geometric.data import Data

from gradformer.attention import use_engine
from gradformer.graphs.arrays import Level
from gradformer.graphs.batch import Batch
from gradformer.model.gradformer import Gradformer
from gradformer.model.local import LOCALS
from tests.zoo import toys

OURS = [*LOCALS, "none"]
NOISE = {"dropout": 0.2, "attention_dropout": 0.4, "drop_path": 0.1}
CONFIGS: dict[str, dict[str, Any]] = {
    **{name: {"local": name} for name in OURS},
    "edges not carried": {"local": "gatedgcn", "carry_edges": False, "double_residual": True},
    "position gate": {"local": "gatedgcn", "position_gate": True},
    "added encoding": {"pe_join": "add", "pe_norm": False, "head": "linear", "pool": "mean"},
    "no encoding": {"pe": "none", "pool": "max"},
    "Laplacian": {"pe": "lap"},
    "one layer": {"layers": 1, "local": "gatedgcn"},
    "λ learned per layer": {"learn_decay": True, "per_layer": True, "slope": 0.1},
    "on the weight": {"decay_on": "weight", "learn_decay": True, "unreachable": "blocked"},
    "linear": {"decay_shape": "linear", "decay_end": 5.0, "unreachable": "full"},
    "free": {"decay_shape": "free"},
    "profile": {"profile": True, "spread": 1.0},
}


def make(level: Level = "graph", edges: bool = True, **options: Any) -> Gradformer:
    torch.manual_seed(0)
    small = {"layers": 2, "width": 16, "heads": 4, "pe_steps": toys.STEPS, "pe_width": 4}
    return Gradformer(toys.toy_schema(level, edges), **(small | options))


@pytest.mark.parametrize("name", [n for n in CONFIGS if n != "Laplacian"])
@pytest.mark.parametrize("level", ["graph", "node"])
def test_the_order_of_the_nodes_does_not_matter(name: str, level: Level) -> None:
    """Eigenvectors are exempt: their signs and degenerate spaces are arbitrary."""
    toys.check_relabelling(make(level, **CONFIGS[name]))


def test_a_pyg_convolution_keeps_the_promises_of_eval() -> None:
    toys.check_relabelling(make(local="SAGEConv"))
    toys.check_batch_mates(make(local="TransformerConv"))


@pytest.mark.parametrize("name", CONFIGS)
def test_batch_mates_do_not_matter(name: str) -> None:
    toys.check_batch_mates(make(**CONFIGS[name]))


@pytest.mark.parametrize("name", CONFIGS)
def test_padding_does_not_matter(name: str) -> None:
    """One training step with dropout and stochastic depth: loss, gradients, running statistics."""
    toys.check_padding(lambda: make(**NOISE, **CONFIGS[name]))


def test_padding_does_not_matter_for_nodes_without_edge_features() -> None:
    toys.check_padding(lambda: make("node", edges=False, local="gine", **NOISE))


@pytest.mark.parametrize("name", [*CONFIGS, "SAGEConv", "TransformerConv"])
def test_every_parameter_takes_part(name: str) -> None:
    toys.check_parameters(make(**CONFIGS.get(name, {"local": name}), **NOISE))


@pytest.mark.parametrize("name", CONFIGS)
def test_derivatives_in_float64(name: str) -> None:
    """All parameters, numerically, through a training step; starts lie off the kinks."""
    model = make(**({"start": 1.7} | CONFIGS[name] | NOISE)).double().train()
    batch = toys.toy_batch(model.schema).with_seed(torch.tensor([3, 1]), model.sites)
    names, values = zip(*((n, p.detach().clone()) for n, p in model.named_parameters()))

    def predict(*parameters: Tensor) -> Tensor:
        return torch.func.functional_call(model, dict(zip(names, parameters)), (batch,))

    inputs = [value.requires_grad_() for value in values]
    assert torch.autograd.gradcheck(predict, inputs, fast_mode=True)


@pytest.mark.parametrize("local", OURS)
def test_bf16_is_close_to_float32(local: str) -> None:
    model = make(local=local)
    batch = toys.toy_batch(model.schema).with_seed(torch.tensor([3, 1]), model.sites)
    for mode in (True, False):
        model.train(mode)
        expected = model(batch)
        with torch.autocast("cpu", torch.bfloat16):
            found = model(batch)
        error = (found.float() - expected).norm() / expected.norm()
        assert error < 0.1
        found.float().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def step(model: Gradformer, batch: Batch) -> dict[str, Tensor]:
    """Predictions and gradients of one training step with fixed seeds."""
    model.zero_grad()
    out = model.train()(batch.with_seed(torch.tensor([3, 1]), model.sites))
    toys.loss_of(out, batch).backward()
    grads = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return {"out": out.detach(), **grads}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_same_bits_twice(name: str) -> None:
    model = make(**NOISE, **CONFIGS[name])
    batch = toys.toy_batch(model.schema)
    first, second = step(model, batch), step(model, batch)
    for key, value in first.items():
        assert torch.equal(value, second[key]), key


def test_the_fused_engine_gives_the_same_model(device: str) -> None:
    """Two graphs: the interpreter takes its time."""
    model = make(layers=1, **NOISE, learn_decay=True).to(device)
    batch = toys.collator(toys.toy_graphs(model.schema))(toys.IDS[2:4]).to(device)
    with use_engine("reference"):
        expected = step(model, batch)
    with use_engine("fused"):
        found = step(model, batch)
    for key, value in expected.items():
        torch.testing.assert_close(
            found[key], value, atol=1e-5, rtol=1e-3, msg=lambda text, key=key: f"{key}: {text}"
        )


def test_draws_differ_from_step_to_step_and_end_with_training() -> None:
    model = make(**NOISE)
    batch = toys.toy_batch(model.schema)
    model.train()
    outs = [model(batch.with_seed(torch.tensor([3, s]), model.sites)) for s in (1, 2)]
    assert not torch.allclose(*outs)
    model.eval()
    assert torch.equal(model(batch), model(batch))


def pyg_graphs() -> list[Data]:
    arrays = toys.toy_graphs(toys.toy_schema())
    assert arrays.x is not None
    assert arrays.edge_attr is not None
    whole = toys.toy_batch(arrays.schema)
    graphs = []
    for g in range(arrays.num_graphs):
        nodes = slice(arrays.node_ptr[g], arrays.node_ptr[g + 1])
        edges = slice(arrays.edge_ptr[g], arrays.edge_ptr[g + 1])
        graph = Data(
            x=torch.from_numpy(arrays.x[nodes]),
            edge_index=torch.from_numpy(arrays.edge_index[:, edges]).long(),
            edge_attr=torch.from_numpy(arrays.edge_attr[edges]),
            rwse=whole.encodings["rwse"][nodes],
        )
        graphs.append(graph)
    return graphs


@pytest.mark.parametrize("local", OURS)
def test_pyg_batches_give_the_same(local: str) -> None:
    model = make(local=local).eval()
    expected = model(toys.toy_batch(model.schema))
    data = PyGBatch.from_data_list(pyg_graphs())
    torch.testing.assert_close(model(data), expected, atol=1e-5, rtol=1e-5)
    alone = torch.cat([model(graph) for graph in pyg_graphs()])
    torch.testing.assert_close(alone, expected, atol=1e-5, rtol=1e-5)


def test_distances_of_pyg_graphs_follow_their_edges() -> None:
    """They are kept for the next call, and not where an edge was changed or taken away."""
    model = make(pe="none").eval()
    data, fresh = (max(pyg_graphs(), key=lambda graph: graph.num_edges) for _ in range(2))
    before = model(data)
    assert "distance" not in data, "it is the user's"
    assert Batch.from_pyg(data).distance is Batch.from_pyg(data).distance
    data.edge_index, data.edge_attr = data.edge_index[:, 2:], data.edge_attr[2:]
    fresh.edge_index, fresh.edge_attr = data.edge_index.clone(), data.edge_attr
    assert torch.equal(model(data), model(fresh))
    assert not torch.equal(model(data), before)
    data.edge_index[:, -1] = torch.tensor([0, 0])
    fresh.edge_index = data.edge_index.clone()
    assert torch.equal(model(data), model(fresh))


def test_training_outside_the_engine_draws_from_torchs_generator() -> None:
    model = make(**NOISE).train()
    outs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outs.append(model(PyGBatch.from_data_list(pyg_graphs())))
    assert torch.equal(outs[0], outs[1])
    assert not torch.allclose(outs[0], outs[2])


@pytest.mark.parametrize("on", ["logit", "weight"])
def test_attention_shows_what_the_layers_computed(on: str) -> None:
    """weight = softmax(score · decay), or ∝ decay · exp(score); the mode of the model is kept."""
    model = make(decay_on=on, decay=0.5, unreachable="blocked").train()
    batch = toys.toy_batch(model.schema)
    layers = model.attention(batch)
    assert model.training
    assert len(layers) == 2
    for found in layers:
        place = 0
        for n in toys.SIZES:
            score, decay, weight = (
                t[place : place + n * n].view(n, n, 4)
                for t in (found.score, found.decay, found.weight)
            )
            place += n * n
            raised = (score * decay if on == "logit" else score).exp()
            raised = torch.where(decay > 0.0, raised if on == "logit" else raised * decay, 0.0)
            torch.testing.assert_close(weight, raised / raised.sum(1, keepdim=True))
        assert place == len(found.weight)
    alone = model.attention(pyg_graphs()[0])
    n = toys.SIZES[0]
    torch.testing.assert_close(alone[1].weight, layers[1].weight[: n * n], atol=1e-5, rtol=1e-4)


def test_attention_shows_no_profile_as_decay() -> None:
    model = make(decay=0.5, profile=True)
    batch = toys.toy_batch(model.schema)
    plain = model.attention(batch)[0]
    assert model.decay.profile is not None
    torch.nn.init.normal_(model.decay.profile)
    found = model.attention(batch)[0]
    assert torch.equal(found.decay, plain.decay)
    assert not torch.allclose(found.weight, plain.weight)
