"""SAN with node-wise encodings beside DevinKreuzer/SAN: ZINC and SBM nets."""

from __future__ import annotations

import torch
from torch import Tensor

from gradformer.graphs.arrays import Schema
from gradformer.zoo.eigenpairs import real_slots
from gradformer.zoo.san import SAN
from tests.golden.adapters.gt import block_names
from tests.golden.case import Case, Ref, Subject
from tests.golden.mapping import match, stored_batch, training, watch


def subjects(case: Case) -> list[Subject]:
    net = case.config["net_params"]
    net.only(LPE="node", residual=True, GT_out_dim=net["GT_hidden_dim"])
    case.config.only(lpe_activation="relu", lpe_norm="post")
    node_task = case.config["net"] == "SBM"
    # Row 0 of the reference's edge table belongs to pairs without an edge: our vector of its own.
    kinds = len(case.params["embedding_e.weight"]) - 1
    schema = Schema(
        node=(net["in_dim" if node_task else "num_atom_type"],),
        edge=(kinds,),
        level="node" if node_task else "graph",
        task="multiclass" if node_task else "regression",
        outputs=case["out"].shape[1],
    )
    model = SAN(
        schema,
        layers=net["GT_layers"],
        width=net["GT_hidden_dim"],
        heads=net["GT_n_heads"],
        gamma=net["gamma"],
        full_graph=net["full_graph"],
        eigenpairs=net["m"],
        lpe_width=net["LPE_dim"],
        lpe_heads=net["LPE_n_heads"],
        lpe_layers=net["LPE_layers"],
        lpe_inner=case.config["lpe_dim_feedforward"],
        lpe_dropout=0.0,
        flip_signs=False,
        layer_norm=net["layer_norm"],
        batch_norm=net["batch_norm"],
        pool={"sum": "add"}.get(net["readout"], net["readout"]),
    ).double()
    pairs = torch.stack([case["EigVecs"], case["EigVals"][:, :, 0]], dim=2).nan_to_num()
    batch, _ = stored_batch(
        case,
        x=case["x"][:, None],
        edge_attr=case["edge_attr"][:, None].clamp(max=kinds) - 1,
        encodings={"eigenpairs_sym": pairs},
    )
    real = real_slots(batch.layout, net["m"])[:, :, None]
    select = {
        f"hidden/lpe_layer{i}": lambda stored: torch.where(real, stored.transpose(0, 1), 0.0)
        for i in range(net["LPE_layers"])
    }

    def observe() -> dict[str, Tensor]:
        keys = {f"layers.{i}": f"hidden/layer{i}" for i in range(net["GT_layers"])}
        for i in range(net["GT_layers"]):
            keys[f"layers.{i}.block.message_dropout"] = f"hidden/layer{i}_attn"
        for i in range(net["LPE_layers"]):
            keys[f"spectrum.layers.{i}"] = f"hidden/lpe_layer{i}"
        seen: dict[str, Tensor] = watch(model, batch, keys)
        for key in select:
            seen[key] = torch.where(real, seen[key], 0.0)
        seen["hidden/input"] = model.encode(batch)
        if not node_task:
            seen["hidden/readout"] = model.embedding(model.states(batch), batch)
        return seen

    kind = "weighted_cross_entropy" if node_task else "l1"
    train = training(case, model, batch, kind)
    return [Subject(case, model, _names(model), observe, train, select)]


def _names(model: SAN) -> dict[str, Ref]:
    same = {f"head.net.layers.{i}": f"MLP_layer.FC_layers.{i}" for i in range(3)}
    same |= {"node.encoder.tables.0": "embedding_h", "spectrum.token": "linear_A"}
    names = {"edge.encoder.tables.0.weight": Ref("embedding_e.weight", lambda table: table[1:])}
    if model.other is not None:
        names["other"] = Ref("embedding_e.weight", lambda table: table[0])
    for i in range(len(model.spectrum.layers)):
        ours, theirs = f"spectrum.layers.{i}", f"PE_Transformer.layers.{i}"
        for entry in ("weight", "bias"):
            names[f"{ours}.qkv.{entry}"] = Ref(f"{theirs}.self_attn.in_proj_{entry}")
        same |= {f"{ours}.out": f"{theirs}.self_attn.out_proj"}
        same |= {f"{ours}.up": f"{theirs}.linear1", f"{ours}.down": f"{theirs}.linear2"}
        same |= {f"{ours}.first_norm": f"{theirs}.norm1", f"{ours}.second_norm": f"{theirs}.norm2"}
    maps = {"query": "Q", "key": "K", "edge": "E", "value": "V"}
    if model.other is not None:
        maps |= {"other_query": "Q_2", "other_key": "K_2", "other_edge": "E_2"}
    for i in range(len(model.layers)):
        same |= {f"layers.{i}.{a}": f"layers.{i}.attention.{b}" for a, b in maps.items()}
        same |= block_names(model, f"layers.{i}.block", f"layers.{i}", "_h")
    return names | match(model, same)
