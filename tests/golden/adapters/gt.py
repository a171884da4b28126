"""GT beside graphdeeplearning/graphtransformer: graphs with edge features, nodes without."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gradformer.graphs.arrays import Schema
from gradformer.zoo.complete_graph import complete_edges
from gradformer.zoo.gt import GT
from tests.golden.case import Case, Ref, Subject
from tests.golden.mapping import match, places, stored_batch, training, watch


def subjects(case: Case) -> list[Subject]:
    net = case.config["net_params"]
    net.only(residual=True, self_loop=False, wl_pos_enc=False, out_dim=net["hidden_dim"])
    node_task, full = "SBMs" in case.config["net"], net["full_graph"]
    bonds = not node_task and net["edge_feat"]
    if full and not node_task and not bonds:
        _join_constant(case)
    schema = Schema(
        node=(net["in_dim" if node_task else "num_atom_type"],),
        edge=(net["num_bond_type"],) if bonds else 1,
        level="node" if node_task else "graph",
        task="multiclass" if node_task else "regression",
        outputs=case["out"].shape[1],
    )
    model = GT(
        schema,
        layers=net["L"],
        width=net["hidden_dim"],
        heads=net["n_heads"],
        lap=net["pos_enc_dim"] if net["lap_pos_enc"] else 0,
        flip_signs=False,
        edge_features=not node_task,
        full_graph=full,
        layer_norm=net["layer_norm"],
        batch_norm=net["batch_norm"],
        pool={"sum": "add"}.get(net["readout"], net["readout"]),
    ).double()
    types = case["edge_attr"][:, None]
    batch, place = stored_batch(
        case,
        x=case["x"][:, None],
        edge_attr=types if bonds else torch.ones(len(types), 1),
        encodings={"lap": case["lap_pos_enc"]} if net["lap_pos_enc"] else {},
    )
    if full:
        place = places(case["full_edge_index"], complete_edges(batch.layout))

    def observe() -> dict[str, Tensor]:
        keys = {f"layers.{i}": f"layer{i}" for i in range(net["L"])}
        keys |= {f"layers.{i}.node_block.message_dropout": f"attn{i}" for i in range(net["L"])}
        seen = watch(model, batch, keys | {"edge": "e"} if model.edge else keys)
        found = {"out": seen["out"], "hidden/input": model.encode(batch)[0]}
        for i, layer in enumerate(model.layers):
            found[f"hidden/layer{i}_attn"] = seen[f"attn{i}"]
            found[f"hidden/layer{i}"] = seen[f"layer{i}"][0]
            if layer.edge_block is not None:
                found[f"hidden_e/layer{i}"] = seen[f"layer{i}"][1][place]
        if model.edge is not None:
            found["hidden_e/input"] = seen["e"][place]
        if not node_task:
            found["hidden/readout"] = model.embedding(model.states(batch), batch)
        return found

    kind = "weighted_cross_entropy" if node_task else "l1"
    train = training(case, model, batch, kind)
    return [Subject(case, model, _names(model), observe, train)]


def _join_constant(case: Case) -> None:
    """Without bond types all pairs have W·1 + b: one vector of ours for the two of the reference.

    Its gradient is that of b, and that of W as well.
    """
    for start, join in (("param", np.add), ("grad", lambda weight, bias: bias)):
        weight, bias = (case.arrays.pop(f"{start}/embedding_e.{n}") for n in ("weight", "bias"))
        case.arrays[f"{start}/embedding_e.weight"] = join(weight[:, 0], bias)[None]
        if start == "grad":
            np.testing.assert_allclose(weight[:, 0], bias, atol=1e-6)


def _names(model: GT) -> dict[str, Ref]:
    same = {f"head.net.layers.{i}": f"MLP_layer.FC_layers.{i}" for i in range(3)}
    same["node.encoder.tables.0"] = "embedding_h"
    if model.position is not None:
        same["position.linear"] = "embedding_lap_pos_enc"
    names: dict[str, Ref] = {}
    if model.edge is not None and model.config.full_graph:
        # all pairs have type 0
        names["edge.encoder.tables.0.weight"] = Ref("embedding_e.weight", lambda table: table[:1])
    elif model.edge is not None:
        table = "edge.encoder" if isinstance(model.schema.edge, int) else "edge.encoder.tables.0"
        same[table] = "embedding_e"
    for i, layer in enumerate(model.layers):
        theirs = f"layers.{i}"
        for ours, name in {"query": "Q", "key": "K", "value": "V"}.items():
            same[f"layers.{i}.{ours}"] = f"{theirs}.attention.{name}"
        if layer.edge is not None:
            same[f"layers.{i}.edge"] = f"{theirs}.attention.proj_e"
        stream = "" if layer.edge is None else "_h"
        same |= block_names(model, f"layers.{i}.node_block", theirs, stream)
        if layer.edge_block is not None:
            same |= block_names(model, f"layers.{i}.edge_block", theirs, "_e")
    return names | match(model, same)


def block_names(model: torch.nn.Module, ours: str, theirs: str, stream: str) -> dict[str, str]:
    """Our post-norm block → the reference's entries of one stream ("", "_h" or "_e")."""
    names = {
        f"{ours}.out": f"{theirs}.O{stream}",
        f"{ours}.up": f"{theirs}.FFN{stream}_layer1",
        f"{ours}.down": f"{theirs}.FFN{stream}_layer2",
    }
    for place, norm in ((1, "first_norm"), (2, "second_norm")):
        for kind in ("layer", "batch"):
            if getattr(model.get_submodule(f"{ours}.{norm}"), kind) is not None:
                names[f"{ours}.{norm}.{kind}"] = f"{theirs}.{kind}_norm{place}{stream}"
    return names
