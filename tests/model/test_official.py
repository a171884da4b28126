"""Checkpoints of the authors' code."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gradformer.errors import InputError
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
}


def checkpoint(config: dict[str, Any], seed: int) -> dict[str, Tensor]:
    """Random weights under the authors' names, with an entry that we have no use for."""
    torch.manual_seed(seed)
    model = official_model(config)
    state = {
        theirs: torch.randn_like(value) if value.is_floating_point() else value
        for value, theirs in zip(
            model.state_dict().values(), official_names(model, config).values()
        )
    }
    assert len(state) == len(model.state_dict()), "two parameters share a name"
    state["hop"] = state["hop"].reshape(-1, 1, 1)  # [heads, 1, 1] there
    return state | {"unused.weight": torch.zeros(3)}


@pytest.mark.parametrize("name", CONFIGS)
def test_every_entry_arrives_where_it_belongs(name: str) -> None:
    config = BASE | CONFIGS[name]
    state = checkpoint(config, seed=1)
    model = Gradformer.from_official(state, config)
    names = official_names(model, config)
    for ours, value in model.state_dict().items():
        assert torch.equal(value, state[names[ours]].reshape(value.shape)), ours
    assert model.config.double_residual
    assert not model.config.carry_edges


def test_bad_checkpoints_are_named() -> None:
    config = BASE | CONFIGS["zinc"]
    state = checkpoint(config, seed=1)
    last = "convs.1.norm3.module.bias"
    with pytest.raises(InputError, match=rf"^state: lacks {last}"):
        Gradformer.from_official({k: v for k, v in state.items() if k != last}, config)
    with pytest.raises(InputError, match=r"^state: mlp\.0\.weight has shape"):
        Gradformer.from_official(state | {"mlp.0.weight": torch.zeros(2, 2)}, config)
    with pytest.raises(InputError, match=r"^mpnn: 'MLP' is none of"):
        Gradformer.from_official(state, config | {"mpnn": "MLP"})
    with pytest.raises(InputError, match=r"^node_method: 'onehot' is none of"):
        Gradformer.from_official(state, config | {"node_method": "onehot"})
    for name in ("gamma", "node_dim"):
        with pytest.raises(InputError, match=rf"^config: lacks {name}"):
            Gradformer.from_official(state, {k: v for k, v in config.items() if k != name})
