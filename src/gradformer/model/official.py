"""Checkpoints of the authors' code: their arguments and parameter names, translated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gradformer.errors import InputError, choice
from gradformer.graphs.arrays import Schema
from gradformer.graphs.molecules import ATOM_VOCABULARY, BOND_VOCABULARY
from gradformer.model.gradformer import Gradformer, GradformerConfig

NEEDED = ("num_layers", "channels", "nhead", "mpnn", "gamma", "n_hop", "num_tasks", "node_method")
LOCAL_MODULES = {"GIN": "gin", "GINE": "gine", "GCN": "gatedgcn", "GatedGCN": "gatedgcn"}


def official_model(config: Mapping[str, Any]) -> Gradformer:
    """Our model for the authors' arguments (``channels``, ``nhead``, ``mpnn``, …)."""
    for name in NEEDED if config.get("node_method") == "ogb" else (*NEEDED, "node_dim"):
        if name not in config:
            raise InputError(f"config: lacks {name}; expected the arguments of the training run")
    method = config["node_method"]
    edge_method = _given(config, "edge_method", ("embedding", "ogb"))
    pool = _given(config, "pool", ("add", "mean"))
    local = LOCAL_MODULES[choice("mpnn", config["mpnn"], LOCAL_MODULES)]
    if edge_method is None and local != "gin":
        raise InputError(f"edge_method: absent, but {config['mpnn']} takes edge features")
    node_dim = config.get("node_dim", 0)
    node: dict[str, tuple[int, ...] | int] = {"embedding": (node_dim,), "ogb": ATOM_VOCABULARY}
    node |= dict.fromkeys(("linear", "add", "no_pe"), node_dim)
    edge: dict[str | None, tuple[int, ...] | int] = {
        "embedding": (config.get("edge_dim", 0),),
        "ogb": BOND_VOCABULARY,
    }
    tasks = int(config["num_tasks"])
    return Gradformer(
        Schema(
            node[choice("node_method", method, node)],
            edge.get(edge_method, ()),
            "node" if pool is None else "graph",
            "multiclass" if tasks > 1 else "regression",
            tasks,
        ),
        GradformerConfig(
            layers=config["num_layers"],
            width=config["channels"],
            heads=config["nhead"],
            local=local,
            dropout=config.get("dropout", 0.0),
            attention_dropout=config.get("attn_dropout", 0.5),
            drop_path=config.get("drop_prob", 0.0),
            pe="none" if method == "no_pe" else "rwse",
            pe_steps=config.get("pe_origin_dim", 20),
            pe_width=config.get("pe_dim", 0) or 1,
            pe_join="add" if method == "add" else "concat",
            pe_norm=bool(config.get("pe_norm")),
            pool=pool or "add",
            head="linear" if _given(config, "projection", ("lin", "mlp")) == "lin" else "mlp",
            decay=config["gamma"],
            start=config["n_hop"],
            slope=config.get("slope", 0.0),
            double_residual=True,
            carry_edges=False,
            position_gate=bool(config.get("equivstable_pe")),
        ),
    )


def _given(config: Mapping[str, Any], name: str, known: tuple[str, ...]) -> str | None:
    """An argument of the authors' code that may be absent, None or the word "None"."""
    value = config.get(name)
    return None if value in (None, "None") else choice(name, value, known)


def official_names(model: Gradformer, config: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Our parameter and buffer names → the authors': one, or several whose rows ours holds."""
    method = config["node_method"]
    encoder = {
        "embedding": ("node.encoder.tables.0.", "node_emb."),
        "ogb": ("node.encoder.tables.", "atom_enc.atom_embedding_list."),
        "linear": ("node.encoder.", "node_lin."),
        "add": ("node.encoder.", "node_add."),
        "no_pe": ("node.encoder.", "no_pe."),
    }
    prefix: list[tuple[str, *tuple[str, ...]]] = [
        encoder[method],
        ("position.norm.", "pe_norm."),
        ("position.linear.", "pe_add." if method == "add" else "pe_lin."),
        ("edge.encoder.tables.0.", "edge_emb.")
        if config.get("edge_method") == "embedding"
        else ("edge.encoder.tables.", "bond_enc.bond_embedding_list."),
        ("head.net.layers.0.", "mlp.0."),
        ("head.net.layers.1.", "mlp.2."),
        ("head.net.layers.2.", "mlp.4."),
        ("head.net.", "lin."),
        ("decay.start", "hop"),
    ]
    inside = [
        ("local.mlp.layers.0.", "conv.nn.0."),
        ("local.mlp.layers.1.", "conv.nn.2."),
        ("local.norm.", "conv.bn_node_x."),
        ("local.gate.layers.0.", "conv.mlp_r_ij.0."),
        ("local.gate.layers.1.", "conv.mlp_r_ij.2."),
        ("local.ADBE.", "conv.A.", "conv.D.", "conv.B.", "conv.E."),
        ("local.", "conv."),
        ("attention.qkv.", "attn.linears.0.", "attn.linears.1.", "attn.linears.2."),
        ("attention.out.", "attn.linears.3."),
        ("feed_forward.first.", "mlp.0."),
        ("feed_forward.second.", "mlp.3."),
        ("local_norm.", "norm1.module."),
        ("attention_norm.", "norm2.module."),
        ("norm.", "norm3.module."),
    ]
    for number in range(model.config.layers):
        ours, theirs = f"layers.{number}.", f"convs.{number}."
        prefix += [(ours + a, *(theirs + b for b in parts)) for a, *parts in inside]
    found = {}
    for name in model.state_dict():
        start, *parts = next(names for names in prefix if name.startswith(names[0]))
        found[name] = tuple(part + name.removeprefix(start) for part in parts)
    return found


def load_official(state: Mapping[str, Tensor], config: Mapping[str, Any]) -> Gradformer:
    """See :meth:`Gradformer.from_official`."""
    model = official_model(config)
    names = official_names(model, config)
    missing = [name for theirs in names.values() for name in theirs if name not in state]
    if missing:
        raise InputError(
            f"state: lacks {missing[0]} and {len(missing) - 1} more; is it Gradformer's?"
        )
    own = model.state_dict()
    with torch.no_grad():
        for ours, theirs in names.items():
            parts = own[ours].chunk(len(theirs)) if len(theirs) > 1 else (own[ours],)
            for name, part in zip(theirs, parts):
                value = state[name].view(1, -1) if name == "hop" else state[name]
                if value.shape != part.shape:
                    raise InputError(
                        f"state: {name} has shape {list(state[name].shape)}, "
                        f"expected {list(part.shape)}"
                    )
                part.copy_(value)
    return model
