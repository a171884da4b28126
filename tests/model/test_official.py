"""Checkpoints of the authors' code."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gradformer.errors import ConfigError, InputError
from gradformer.model.gradformer import Gradformer
from gradformer.model.official import official_model, official_names

BASE: dict[str, Any] = {
    "channels": 16, "nhead": 4, "num_layers": 2, "num_tasks": 1, "pe_dim": 4, "pe_origin_dim": 5,
    "pe_norm": True, "gamma": 0.6, "n_hop": 2, "pool": "add", "node_dim": 7,
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "zinc": {"mpnn": "GINE", "node_method": "embedding", "edge_method": "embedding", "edge_dim": 4},
    "molecules": {"mpnn": "GatedGCN", "node_method": "ogb", "edge_method": "ogb", "pe_norm": False},
    "floats": {"mpnn": "GIN", "node_method": "linear", "projection": "lin"},
    "added": {"mpnn": "GIN", "node_method": "add", "pool": "mean"},
    "no encoding": {"mpnn": "GIN", "node_method": "no_pe", "pool": None, "num_tasks": 3},
    "the word None": {"mpnn": "GIN", "node_method": "add", "pool": "None", "edge_method": "None"},
}


def checkpoint(config: dict[str, Any], seed: int) -> dict[str, Tensor]:
    """Random weights under the authors' names, with an entry that we have no use for."""
    torch.manual_seed(seed)
    model = official_model(config)
    state = {}
    for ours, theirs in official_names(model, config).items():
        value = model.state_dict()[ours]
        for name in theirs:
            assert name not in state, "two parameters share a name"
            part = value[: len(value) // len(theirs)] if len(theirs) > 1 else value
            state[name] = torch.randn_like(part) if part.is_floating_point() else part
    state["hop"] = state["hop"].reshape(-1, 1, 1)  # [heads, 1, 1] there
    return state | {"unused.weight": torch.zeros(3)}


@pytest.mark.parametrize("name", CONFIGS)
def test_every_entry_arrives_where_it_belongs(name: str) -> None:
    config = BASE | CONFIGS[name]
    state = checkpoint(config, seed=1)
    model = Gradformer.from_official(state, config)
    names = official_names(model, config)
    for ours, value in model.state_dict().items():
        given = [state[theirs].flatten() for theirs in names[ours]]
        assert torch.equal(value.flatten(), torch.cat(given)), ours
    assert model.config.double_residual
    assert not model.config.carry_edges
    assert model.schema.level == ("node" if config["pool"] in (None, "None") else "graph")


def test_bad_checkpoints_are_named() -> None:
    config = BASE | CONFIGS["zinc"]
    state = checkpoint(config, seed=1)
    last = "convs.1.norm3.module.bias"
    with pytest.raises(InputError, match=rf"^state: lacks {last}"):
        Gradformer.from_official({k: v for k, v in state.items() if k != last}, config)
    for wrong in (torch.zeros(2, 2), state["mlp.0.weight"].T):
        with pytest.raises(InputError, match=r"^state: mlp\.0\.weight has shape"):
            Gradformer.from_official(state | {"mlp.0.weight": wrong}, config)
    unknown = {"mpnn": "MLP", "node_method": "onehot", "pool": "max", "projection": "conv"}
    for name, value in unknown.items():
        with pytest.raises(ConfigError, match=f"^{name}: unknown value '{value}'"):
            Gradformer.from_official(state, config | {name: value})
    with pytest.raises(InputError, match=r"^edge_method: absent, but GINE takes edge features"):
        Gradformer.from_official(state, config | {"edge_method": "None"})
    for name in ("gamma", "node_dim"):
        with pytest.raises(InputError, match=rf"^config: lacks {name}"):
            Gradformer.from_official(state, {k: v for k, v in config.items() if k != name})
