"""GraphTrans beside ucbrise/graphtrans."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gradformer.graphs.arrays import Schema
from gradformer.model.local import GINE
from gradformer.zoo.graphtrans import GraphTrans, last_nodes
from gradformer.zoo.tokens import add_tokens
from tests.golden.case import Case, Ref, Subject
from tests.golden.mapping import match, stored_batch, training, watch


def subjects(case: Case) -> list[Subject]:
    args = case.config["args"]
    args.only(
        graph_pooling="cls",
        num_encoder_layers_masked=0,
        pos_encoder=False,
        transformer_activation="relu",
        transformer_prenorm=False,
    )
    model = _model(case).double()
    edges = case["edge_index"].shape[1]
    batch, _ = stored_batch(
        case,
        x=case["x"],
        edge_attr=case["edge_attr"].view(edges, -1) if model.schema.edge else None,
    )
    layout, _ = last_nodes(batch.layout, args["max_input_len"])
    tokens = add_tokens(layout, first=False)
    sizes = layout.node_ptr.diff().tolist()

    def without_padding(stored: Tensor) -> Tensor:
        """[S (+ 1), graphs, d], padded in front, → the rows of graph after graph."""
        longest = max(sizes)
        return torch.cat([stored[longest - n :, graph] for graph, n in enumerate(sizes)])

    def observe() -> dict[str, Tensor]:
        keys = {"gnn.node": "node_encoder", "gnn": "gnn_out", "enter": "gnn2transformer"}
        keys["norm"] = "transformer_out"
        keys |= {f"layers.{i}": f"transformer{i}" for i in range(args["num_encoder_layers"])}
        for i in range(args["gnn_num_layer"]):
            keys |= {f"gnn.layers.{i}.conv": f"gnn_conv{i}", f"gnn.layers.{i}.norm": f"gnn_bn{i}"}
        for i in range(len(model.gnn.virtual_nodes)):
            keys[f"gnn.virtual_nodes.{i}.norm"] = f"vn_mlp{i}"
        first = "layers.0" if model.norm_input is None else "norm_input"
        seen = watch(model, batch, keys, {first: "padded_input"})
        out = seen.pop("out")
        for name, value in seen.items():
            if name.startswith("gnn_conv"):
                seen[name] = value[0]
            elif name.startswith("vn_mlp"):
                seen[name] = value.relu()
            elif name.startswith("transformer"):
                seen[name] = value[: int(tokens.layout.node_ptr[-1])]
        seen["padded_input"] = tokens.of_nodes(seen["padded_input"])[: sum(sizes)]
        return {f"hidden/{name}": value for name, value in seen.items()} | {"out": out}

    name = case.config["loss"].lower()
    kind = "ce" if name.startswith("cross") else "mse" if name.startswith("mse") else "bce"
    train = training(case, model, batch, kind)
    padded = [f"transformer{i}" for i in range(args["num_encoder_layers"])]
    padded += ["transformer_out", "padded_input"]
    select = {f"hidden/{name}": without_padding for name in padded}
    return [Subject(case, model, _names(model), observe, train, select)]


def _model(case: Case) -> GraphTrans:
    config, args = case.config, case.config["args"]
    atoms = "gnn_node.node_encoder.atom_embedding_list.0.weight" in case.params
    bonds = "gnn_node.convs.0.edge_encoder.bond_embedding_list.0.weight" in case.params
    schema = Schema(
        node=tuple(config["atom_feature_dims"]) if atoms else config["num_features"],
        edge=tuple(config["bond_feature_dims"]) if bonds else (),
        level="graph",
        task="multilabel",
        outputs=config["num_tasks"],
    )
    return GraphTrans(
        schema,
        layers=args["num_encoder_layers"],
        width=args["d_model"],
        heads=args["nhead"],
        inner=args["dim_feedforward"],
        dropout=0.0,
        norm_input=args["transformer_norm_input"],
        max_nodes=args["max_input_len"],
        gnn=args["gnn_type"],
        gnn_layers=args["gnn_num_layer"],
        gnn_width=args["gnn_emb_dim"],
        gnn_dropout=0.0,
        gnn_residual=args["gnn_residual"],
        virtual_node=args["gnn_virtual_node"],
        join=args["gnn_JK"],
        reference_quirks=True,
    )


def _names(model: GraphTrans) -> dict[str, Ref]:
    same = {"enter": "gnn2transformer", "head": "graph_pred_linear"}
    names = {"token": Ref("transformer_encoder.cls_embedding", lambda x: x.view(1, -1))}
    if isinstance(model.schema.node, int):
        same["gnn.node.encoder"] = "gnn_node.node_encoder"
    else:
        for j in range(len(model.schema.node)):
            table = f"gnn_node.node_encoder.atom_embedding_list.{j}"
            same[f"gnn.node.encoder.tables.{j}"] = table
    layers: Any = model.gnn.layers
    for i, layer in enumerate(layers):
        ours, theirs = f"gnn.layers.{i}", f"gnn_node.convs.{i}"
        same[f"{ours}.norm"] = f"gnn_node.batch_norms.{i}"
        if isinstance(layer.conv, GINE):
            names[f"{ours}.conv.eps"] = Ref(f"{theirs}.eps")
            same |= _norm_mlp(f"{ours}.conv.mlp", f"{theirs}.mlp")
        else:
            names[f"{ours}.conv.root"] = Ref(f"{theirs}.root_emb.weight")
            same[f"{ours}.conv.linear"] = f"{theirs}.linear"
        if layer.edge is not None:
            for j in range(len(layer.edge.encoder.tables)):
                table = f"{theirs}.edge_encoder.bond_embedding_list.{j}"
                same[f"{ours}.edge.encoder.tables.{j}"] = table
    if model.gnn.virtual is not None:
        names["gnn.virtual"] = Ref("gnn_node.virtualnode_embedding.weight")
    for i in range(len(model.gnn.virtual_nodes)):
        ours, theirs = f"gnn.virtual_nodes.{i}", f"gnn_node.mlp_virtualnode_list.{i}"
        same |= _norm_mlp(f"{ours}.mlp", theirs) | {f"{ours}.norm": f"{theirs}.4"}
    if model.norm_input is not None:
        same["norm_input"] = "transformer_encoder.norm_input"
    same["norm"] = "transformer_encoder.transformer.norm"
    for i in range(model.config.layers):
        ours, theirs = f"layers.{i}", f"transformer_encoder.transformer.layers.{i}"
        for entry in ("weight", "bias"):
            names[f"{ours}.attention.qkv.{entry}"] = Ref(f"{theirs}.self_attn.in_proj_{entry}")
        same |= {
            f"{ours}.attention.out": f"{theirs}.self_attn.out_proj",
            f"{ours}.feed_forward.first": f"{theirs}.linear1",
            f"{ours}.feed_forward.second": f"{theirs}.linear2",
            f"{ours}.attention_norm": f"{theirs}.norm1",
            f"{ours}.norm": f"{theirs}.norm2",
        }
    return names | match(model, same)


def _norm_mlp(ours: str, theirs: str) -> dict[str, str]:
    places = {"first": 0, "norm": 1, "second": 3}
    return {f"{ours}.{name}": f"{theirs}.{place}" for name, place in places.items()}
