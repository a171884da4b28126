"""GraphGPS beside rampasek/GraphGPS, and its layers beside a stack of PyG's GPSConv."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

from gradformer.graphs.arrays import Schema
from gradformer.graphs.batch import Batch
from gradformer.model.gated import GatedGCN
from gradformer.zoo.graphgps import GraphGPS, GraphGPSConfig, gps_layers
from gradformer.zoo.postnorm import PLAIN, attend_over
from tests.golden.case import Case, Ref, Subject
from tests.golden.mapping import (
    gradients,
    leaf,
    match,
    rows_of,
    stored_batch,
    training,
    watch,
    watch_weights,
)
from tests.golden.padded import packed_pairs

INPUTS = ("x", "edge_attr", "pe", "eigvecs", "eigvals")
LOCALS = {"GINE": "gine", "GIN": "gin", "CustomGatedGCN": "gatedgcn", "None": "none"}


def subjects(case: Case) -> list[Subject]:
    given = {name: leaf(case[name]) for name in INPUTS if name in case}
    wide = {name: x[:, None] if x.dim() == 1 else x for name, x in given.items()}
    encodings = {"rwse": wide["pe"]} if "pe" in wide else {}
    if "eigvecs" in wide:
        pairs = torch.stack([wide["eigvecs"], wide["eigvals"][:, :, 0]], dim=2)
        encodings = {"eigenpairs_none": pairs.nan_to_num()}
    batch, place = stored_batch(
        case, x=wide["x"], edge_attr=wide.get("edge_attr"), encodings=encodings
    )
    inputs = gradients(case, given)
    if "proj" in case:
        return [_stack(case, batch, inputs)]
    return [_full(case, batch, place, inputs)]


def _full(case: Case, batch: Batch, place: Tensor, inputs: dict[str, Tensor]) -> Subject:
    """The whole model: encoders, layers, head."""
    config = case.config
    config.only(act="relu")
    tables, links = _tables(case, "node_encoder"), _tables(case, "edge_encoder")
    floats = batch.x is not None and batch.x.is_floating_point()
    node_task = config["head"] == "inductive_node"
    schema = Schema(
        node=batch.x.shape[1] if floats else tuple(len(case.params[name]) for name in tables),
        edge=() if batch.edge_attr is None else tuple(len(case.params[name]) for name in links),
        level="node" if node_task else "graph",
        task="regression" if config["loss"] == "l1" else "multiclass",
        outputs=config["dim_out"],
    )
    pe = "lap" if "eigvecs" in case else "rwse" if "pe" in case else "none"
    model = GraphGPS(
        schema,
        layers=config["layers"],
        width=config["dim_hidden"],
        heads=config["n_heads"],
        local=LOCALS[config["layer_type"].split("+")[0]],
        pe=pe,
        pe_steps=case["eigvecs" if pe == "lap" else "pe"].shape[1] if pe != "none" else 1,
        pe_width=config.get("pe_dim") or 1,
        pe_norm=config.get("pe_raw_norm") == "BatchNorm",
        flip_signs=False,
        attention_dropout=0.0,
        pool=config["graph_pooling"],
        node_head_layers=config["layers_post_mp"],
    ).double()
    count = config["layers"]

    def observe() -> dict[str, Tensor]:
        seen = watch(model, batch, {f"layers.{i}": str(i) for i in range(count)})
        h, e = model.encode(batch)
        found = {"out": seen["out"], "h0": h}
        if e is not None:
            found["e0"] = e[place]
        for i in range(count):
            found[f"hidden/{i}"], e = seen[str(i)]
            if f"hidden_edge/{i}" in case and i < count - 1:  # ours updates no edges in the last
                found[f"hidden_edge/{i}"] = e[place]
        attention = {f"layers.{i}.attention": f"attn/{i}" for i in range(count)}
        return found | watch_weights(model, batch, attention)

    train = training(case, model, batch, config["loss"], inputs)
    pairs = packed_pairs(batch.layout.node_ptr.diff().tolist())
    select = {f"attn/{i}": pairs for i in range(count)}
    names = _names(model, case, tables, links)
    return Subject(case, model, names, observe, train, select, inputs)


def _stack(case: Case, batch: Batch, inputs: dict[str, Tensor]) -> Subject:
    """Layers alone: no encoder, no head."""
    config = case.config
    layers = gps_layers(
        GraphGPSConfig(
            layers=config["layers"],
            width=config["channels"],
            heads=config["heads"],
            local="gine" if "GINE" in config["conv"] else "gin",
            attention_dropout=0.0,
        )
    ).double()

    def run() -> list[Tensor]:
        x, e, wide = batch.x, batch.edge_attr, attend_over(batch, batch.layout)
        found = []
        for layer in layers:
            x, e = layer(x, e, PLAIN, wide)
            found.append(x)
        return found

    def observe() -> dict[str, Tensor]:
        found = run()
        return {"out": found[-1], **{f"hidden/{i}": x for i, x in enumerate(found)}}

    def train() -> dict[str, Tensor]:
        out = run()[-1]
        return {"out_train": out, "loss": (out * case["proj"]).mean()}

    names = {}
    for i in range(config["layers"]):
        modules = {"norm1.module": "local_norm", "norm2.module": "attention_norm"}
        modules |= {"norm3.module": "norm", "attn.out_proj": "attention.out"}
        modules |= {"mlp.0": "feed_forward.first", "mlp.3": "feed_forward.second"}
        modules |= {"conv.nn.0": "local.mlp.layers.0", "conv.nn.2": "local.mlp.layers.1"}
        names |= match(layers, {f"{i}.{ours}": f"{i}.{name}" for name, ours in modules.items()})
        names |= _projections(f"{i}.attention", f"{i}.attn")
    return Subject(case, layers, names, observe, train, inputs=inputs)


def _names(model: GraphGPS, case: Case, tables: list[str], links: list[str]) -> dict[str, Ref]:
    names = {f"node.encoder.tables.{i}.weight": Ref(name) for i, name in enumerate(tables)}
    if model.edge is not None:
        names |= {f"edge.encoder.tables.{i}.weight": Ref(name) for i, name in enumerate(links)}
    same = {}
    # The encoder of positions also has that of the features, or stands second beside it.
    features = positions = "encoder.node_encoder"
    if any(name.startswith(f"{positions}.encoder2.") for name in case.params):
        features, positions = f"{features}.encoder1", f"{positions}.encoder2"
    if isinstance(model.schema.node, int):
        alone = f"{features}.linear_x.weight" in case.params
        same["node.encoder"] = f"{features}.{'linear_x' if alone else 'encoder'}"
    if model.spectrum is not None:
        same["spectrum.mlp.layers.0"] = f"{positions}.linear_A"
        same["spectrum.mlp.layers.1"] = f"{positions}.pe_encoder.1"
    if model.walk is not None:
        same["walk.linear"] = f"{positions}.pe_encoder"
        if model.walk.norm is not None:
            same["walk.norm"] = f"{positions}.raw_norm"
    if model.schema.level == "graph":
        same |= {f"head.net.layers.{i}": f"post_mp.FC_layers.{i}" for i in range(3)}
    else:
        head = "post_mp.layer_post_mp.model"
        for i in range(model.config.node_head_layers - 1):
            same[f"head.hidden.{i}"] = f"{head}.0.Layer_{i}.layer.model"
        same["head.last"] = f"{head}.1.model"
    for i, layer in enumerate(model.layers):
        ours = f"layers.{i}"
        names |= _projections(f"{ours}.attention", f"{ours}.self_attn")
        modules = {"attention.out": "self_attn.out_proj", "attention_norm": "norm1_attn"}
        modules |= {"feed_forward.first": "ff_linear1", "feed_forward.second": "ff_linear2"}
        modules |= {"norm": "norm2"} | _local_names(layer)
        if isinstance(layer.local, GatedGCN):
            names |= rows_of(f"{ours}.local.ADBE", [f"{ours}.local_model.{m}" for m in "ADBE"])
        same |= {f"{ours}.{a}": f"{ours}.{b}" for a, b in modules.items()}
    return names | match(model, same)


def _local_names(layer: Any) -> dict[str, str]:
    if layer.local is None:
        return {}
    names = {"local_norm": "norm1_local"}
    if hasattr(layer.local, "mlp"):
        return names | {f"local.mlp.layers.{i}": f"local_model.nn.{2 * i}" for i in range(2)}
    names["local.C"] = "local_model.C"
    names["local.norm"] = "local_model.bn_node_x"
    if layer.local.edge_norm is not None:
        names["local.edge_norm"] = "local_model.bn_edge_e"
    return names


def _projections(ours: str, theirs: str) -> dict[str, Ref]:
    entries = ("weight", "bias")
    return {f"{ours}.qkv.{entry}": Ref(f"{theirs}.in_proj_{entry}") for entry in entries}


def _tables(case: Case, encoder: str) -> list[str]:
    """Embedding tables of an encoder: one, or one for each column in the columns' order."""
    pattern = re.compile(
        rf"encoder\.{encoder}\.(encoder1\.)?(encoder|\w+_embedding_list\.(\d+))\.weight"
    )
    found = [match for match in map(pattern.fullmatch, case.params) if match]
    return [m.group(0) for m in sorted(found, key=lambda m: int(m.group(3) or 0))]
