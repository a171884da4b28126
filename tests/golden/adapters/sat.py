"""SAT beside BorgwardtLab/SAT."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from gradformer.graphs.arrays import Schema
from gradformer.zoo.convs import PNA
from gradformer.zoo.sat import SAT, Extractor
from gradformer.zoo.tokens import add_tokens
from tests.golden.case import Case, Ref, Subject
from tests.golden.mapping import (
    dense_pairs,
    match,
    packed_place,
    real_pairs,
    stored_batch,
    training,
    watch,
    watch_weights,
)


def subjects(case: Case) -> list[Subject]:
    h = case.config["hparams"]
    model = _model(case).double()
    batch, _ = stored_batch(
        case,
        x=case["x"],
        edge_attr=case["edge_attr"].view(case["edge_index"].shape[1], -1)
        if h.get("use_edge_attr")
        else None,
        encodings={model.config.pe: case["pe"]} if h.get("abs_pe") else {},
    )
    layout, tokens = batch.layout, None
    sizes, listed = layout.node_ptr.diff().tolist(), "pre/complete_edge_index" in case
    if model.token is not None:
        tokens = add_tokens(layout, first=False)
        layout = tokens.layout

    def pairs() -> Tensor:
        """Our place of each stored pair."""
        key, query = case["pre/complete_edge_index"]
        if tokens is not None:
            node, token = tokens.node_row, tokens.token_row[batch.layout.graph]
            key, query = node[key], node[query]
            own = tokens.token_row
            key, query = torch.cat([key, node, token, own]), torch.cat([query, token, node, own])
        return packed_place(layout, query, key)

    def observe() -> dict[str, Tensor]:
        count = range(h["num_layers"])
        keys = {f"layers.{i}": f"hidden/{i}" for i in count}
        keys |= {f"layers.{i}.extractor": f"x_struct/{i}" for i in count}
        seen = watch(model, batch, keys, inputs={"layers.0": "hidden/input"})
        out = seen.pop("out")
        if tokens is not None:
            seen = {name: tokens.unpack(value) for name, value in seen.items()}
        found = {**seen, "out": out}
        found["hidden/readout"] = model.embedding(model.states(batch), batch)
        names = {f"layers.{i}.attention": f"attn/{i}" for i in count}
        weights = watch_weights(model, batch, names)
        if listed:
            return found | {name: value[pairs()] for name, value in weights.items()}
        extra = int(tokens is not None)
        return found | {name: dense_pairs(value, sizes, extra) for name, value in weights.items()}

    kind = case.config["loss_name"]
    train = training(case, model, batch, kind)
    weights = [] if listed else [f"attn/{i}" for i in range(h["num_layers"])]
    extra = int(tokens is not None)
    select = {name: partial(real_pairs, sizes=sizes, tokens=extra) for name in weights}
    return [Subject(case, model, _names(model), observe, train, select)]


def _model(case: Case) -> SAT:
    h: dict[str, Any] = case.config["hparams"]
    edges: tuple[int, ...] | int = ()
    if h.get("use_edge_attr"):
        edges = (h["num_edge_features"],) if h.get("edge_embed", True) else h["num_edge_features"]
    node_level = not h.get("use_global_pool", True)
    schema = Schema(
        node=(h["in_size"],) if h.get("in_embed", True) else h["in_size"],
        edge=edges,
        level="node" if node_level else "graph",
        task="regression",
        outputs=h["num_class"],
    )
    return SAT(
        schema,
        layers=h["num_layers"],
        width=h["d_model"],
        heads=h["num_heads"],
        inner=h["dim_feedforward"],
        extractor={"gnn": "subtree", "khopgnn": "subgraph"}[h.get("se", "gnn")],
        hops=h.get("k_hop", 2),
        gnn=h.get("gnn_type", "graph"),
        edge_width=h.get("edge_dim", 32) if h.get("use_edge_attr") else 0,
        norm="batch" if h.get("batch_norm") else "layer",
        pre_norm=h.get("pre_norm", False),
        degree_scaling=case.config["data"]["degree_scaling"],
        dropout=0.0,
        pe={"rw": "rwse", "lap": "lap"}[h["abs_pe"]] if h.get("abs_pe") else "none",
        pe_steps=h.get("abs_pe_dim") or 1,  # any, where there is no encoding
        pool="mean" if node_level else h.get("global_pool", "mean"),
    )


def _names(model: SAT) -> dict[str, Ref]:
    same = {"head.layers.0": "classifier.0", "head.layers.1": "classifier.2"}
    categories = not isinstance(model.schema.node, int)
    same["node.encoder.tables.0" if categories else "node.encoder"] = "embedding"
    if model.edge is not None:
        categories = not isinstance(model.schema.edge, int)
        same["edge.encoder.tables.0" if categories else "edge.encoder"] = "embedding_edge"
    if model.position is not None:
        same["position.linear"] = "embedding_abs_pe"
    names = {} if model.token is None else {"token": Ref("cls_token")}
    width = model.config.width
    for i in range(model.config.layers):
        ours, theirs = f"layers.{i}", f"encoder.layers.{i}"
        names[f"{ours}.attention.key.weight"] = Ref(
            f"{theirs}.self_attn.to_qk.weight", lambda w: w[:width]
        )
        names[f"{ours}.attention.query.weight"] = Ref(
            f"{theirs}.self_attn.to_qk.weight", lambda w: w[width:]
        )
        same |= {
            f"{ours}.attention.value": f"{theirs}.self_attn.to_v",
            f"{ours}.attention.out": f"{theirs}.self_attn.out_proj",
            f"{ours}.attention_norm": f"{theirs}.norm1",
            f"{ours}.norm": f"{theirs}.norm2",
            f"{ours}.feed_forward.first": f"{theirs}.linear1",
            f"{ours}.feed_forward.second": f"{theirs}.linear2",
        }
        names |= _extractor(model, f"{ours}.extractor", f"{theirs}.self_attn.")
    return names | match(model, same)


def _extractor(model: SAT, ours: str, theirs: str) -> dict[str, Ref]:
    extractor = model.get_submodule(ours)
    assert isinstance(extractor, Extractor)
    outer = "khop_structure_extractor" if model.config.extractor == "subgraph" else ""
    inner = f"{outer}.structure_extractor" if outer else "structure_extractor"
    outer = theirs + (outer or inner)
    same = {f"{ours}.norm": f"{outer}.bn", f"{ours}.out": f"{outer}.out_proj"}
    names: dict[str, Ref] = {}
    gnn = model.config.gnn
    for k, conv in enumerate(extractor.convs):
        mine, ref = f"{ours}.convs.{k}", f"{theirs}{inner}.gcn.{k}"
        if gnn == "gcn":
            edges = len(extractor.edge_maps) > 0
            same[f"{mine}.linear"] = f"{ref}.linear" if edges else f"{ref}.lin"
            own = {"root": "root_emb.weight"} if edges else {"bias": "bias"}
        elif gnn in ("gin", "gine"):
            same |= {f"{mine}.mlp.layers.0": f"{ref}.nn.0", f"{mine}.mlp.layers.1": f"{ref}.nn.2"}
            own = {"eps": "eps"}
        elif gnn == "graph":
            same |= {f"{mine}.neighbours": f"{ref}.lin_rel", f"{mine}.own": f"{ref}.lin_root"}
            own = {}
        elif gnn == "graphsage":
            same |= {f"{mine}.neighbours": f"{ref}.lin_l", f"{mine}.own": f"{ref}.lin_r"}
            own = {}
        else:
            assert isinstance(conv, PNA)
            for tower in range(len(conv.before)):
                same[f"{mine}.before.{tower}"] = f"{ref}.pre_nns.{tower}.0"
                same[f"{mine}.after.{tower}"] = f"{ref}.post_nns.{tower}.0"
            same[f"{mine}.out"] = f"{ref}.lin"
            own = {"mean_log_degree": "aggr_module.avg_deg_log"}
        names |= {f"{mine}.{a}": Ref(f"{ref}.{b}") for a, b in own.items()}
        if len(extractor.edge_maps):
            edge = "lin" if gnn == "gine" else "edge_encoder"
            same[f"{ours}.edge_maps.{k}"] = f"{ref}.{edge}"
    return names | match(model, same)
