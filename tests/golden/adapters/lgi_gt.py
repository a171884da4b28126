"""LGI-GT beside shuoyinn/LGI-GT."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from gradformer.graphs.arrays import Schema
from gradformer.graphs.molecules import ATOM_VOCABULARY, BOND_VOCABULARY
from gradformer.zoo.lgi_gt import LGIGT
from gradformer.zoo.tokens import add_tokens
from tests.golden.case import Case, Ref, Subject
from tests.golden.mapping import (
    dense_pairs,
    match,
    plain_loss,
    real_pairs,
    rows_of,
    stored_batch,
    watch,
    watch_weights,
    weighted_cross_entropy,
)


def subjects(case: Case) -> list[Subject]:
    model = _model(case).double()
    count = range(model.config.layers)
    edges = case["edge_index"].shape[1]
    batch, place = stored_batch(
        case,
        x=case["x"],
        edge_attr=case["edge_attr"].view(edges, -1) if model.schema.edge else None,
        encodings={"rwse": case["pe"]} if model.position is not None else {},
    )
    tokens = None if model.token is None else add_tokens(batch.layout, first=False)
    sizes, extra = batch.layout.node_ptr.diff().tolist(), int(tokens is not None)

    def observe() -> dict[str, Tensor]:
        keys, inputs = {}, {}
        for i in count:
            inputs[f"blocks.{i}.conv"] = f"hidden/gconv_in_{i}"
            inputs[f"blocks.{i}.attend"] = f"hidden/tlayer_in_{i}"
            keys[f"blocks.{i}.conv"] = f"hidden/gconv_out_{i}"
            keys[f"blocks.{i}.attend"] = f"hidden/{i}"
        seen = watch(model, batch, keys, inputs)
        for i in count:
            seen[f"hidden/gconv_out_{i}"], e = seen[f"hidden/gconv_out_{i}"]
            if tokens is not None:
                seen[f"hidden/{i}"] = tokens.unpack(seen[f"hidden/{i}"])
                seen[f"hidden/tlayer_in_{i}"] = tokens.of_nodes(seen[f"hidden/tlayer_in_{i}"])
            if model.config.conv == "eela":
                conv: Any = model.get_submodule(f"blocks.{i}.conv")
                weight, _ = conv.attend(seen[f"hidden/gconv_in_{i}"], e, batch)
                seen[f"local_attn/{i}"] = weight[place]
        seen["hidden/readout"] = model.embedding(model.states(batch), batch)
        names = {f"blocks.{i}.attend.attention": f"attn/{i}" for i in count}
        weights = watch_weights(model, batch, names)
        return seen | {name: dense_pairs(value, sizes, extra) for name, value in weights.items()}

    def train() -> dict[str, Tensor]:
        out, y = model(batch), case["y"]
        found = {"out_train": out, "loss": plain_loss(case.config["loss_name"], out, y)}
        if "loss_weighted" in case:
            found["loss_weighted"] = weighted_cross_entropy(out, y)
        return found

    select = {f"attn/{i}": lambda stored: real_pairs(stored, sizes, extra) for i in count}
    return [Subject(case, model, _names(case, model), observe, train, select)]


def _model(case: Case) -> LGIGT:
    h = case.config["hparams"]
    h.only(tlayer_dim=h["gconv_dim"])
    ogb = "node_encoder.atom_embedding_list.0.weight" in case.params
    floats = case["x"].is_floating_point()
    node: tuple[int, ...] | int = ATOM_VOCABULARY if ogb else (h.get("node_num_types", 0),)
    edge: tuple[int, ...] = BOND_VOCABULARY if ogb else (h.get("edge_num_types", 0),)
    schema = Schema(
        node=h["in_dim"] if floats else node,
        edge=() if floats else edge,
        level="graph" if h["readout"] else "node",
        task="regression",
        outputs=h["out_dim"],
    )
    return LGIGT(
        schema,
        layers=h["num_layers"],
        width=h["gconv_dim"],
        heads=h["num_heads"],
        inner=h["tlayer_ffn_hidden_times"],
        conv=h["gconv_type"],
        middle=h["middle_layer_type"] or "none",
        skip=h["skip_connection"] or "none",
        norm={"bn": "batch", "ln": "layer"}[h["norm"]],
        attention_dropout=0.0,
        pe="rwse" if "pe" in case else "none",
        pe_steps=h.get("num_rw_steps") or 1,  # any, where there is no encoding
        pe_width=h.get("dim_pe") or 1,
        pool=h["readout"] or "add",
        head_layers=h["out_layer"],
        head_inner=h.get("out_hidden_times", 1),
    )


def _names(case: Case, model: LGIGT) -> dict[str, Ref]:
    c = model.config
    same = {f"head.layers.{i}": f"predict_head.{2 * i}" for i in range(c.head_layers)}
    names = {} if model.token is None else {"token": Ref("CLS")}
    for ours, theirs, listed in (
        ("node.encoder", "node_encoder", "atom_embedding_list"),
        ("edge.encoder", "edge_encoder", "bond_embedding_list"),
    ):
        encoder = model.get_submodule(ours)
        tables = len(getattr(encoder, "tables", []))
        if tables > 1:
            same |= {f"{ours}.tables.{j}": f"{theirs}.{listed}.{j}" for j in range(tables)}
        else:
            same[f"{ours}.tables.0" if tables else ours] = theirs
    if model.position is not None:
        same["position.norm"] = "se_encoder.raw_norm"
        same["position.linear"] = "se_encoder.pe_encoder"
    for i in range(c.layers):
        same |= _conv(c.conv, f"blocks.{i}", f"gconvs.{i}")
        if c.conv == "gcn":
            names[f"blocks.{i}.conv.root"] = Ref(f"gconvs.{i}.root_emb.weight")
        if c.middle == "residual":
            same[f"blocks.{i}.middle_norm"] = f"middle_layers.{i}"
        elif c.middle == "mlp":
            weights = {
                name.removesuffix(".weight"): value.dim()
                for name, value in case.params.items()
                if name.startswith(f"middle_layers.{i}.") and name.endswith(".weight")
            }
            for name, dim in weights.items():
                same[f"blocks.{i}.middle.{'linear' if dim == 2 else 'norm'}"] = name
        ours, theirs = f"blocks.{i}.attend", f"tlayers.{i}"
        maps = f"{theirs}.node_self_attention.linear_"
        names |= rows_of(f"{ours}.attention.qkv", [f"{maps}{name}" for name in "qkv"])
        same |= {
            f"{ours}.attention.out": f"{maps}attn_out",
            f"{ours}.feed_forward.first": f"{theirs}.linear_out1",
            f"{ours}.feed_forward.second": f"{theirs}.linear_out2",
            f"{ours}.attention_norm": f"{theirs}.norm0",
            f"{ours}.norm": f"{theirs}.norm1",
        }
    return names | match(model, same)


def _conv(kind: str, ours: str, theirs: str) -> dict[str, str]:
    if kind == "gin":
        return {
            f"{ours}.conv.mlp.layers.0": f"{theirs}.mlp.0",
            f"{ours}.conv.mlp.layers.1": f"{theirs}.mlp.2",
            f"{ours}.edge_map": f"{theirs}.edge_linear",
        }
    if kind == "gcn":
        return {
            f"{ours}.conv.linear": f"{theirs}.linear",
            f"{ours}.edge_map": f"{theirs}.edge_encoder",
        }
    return {
        f"{ours}.conv.query": f"{theirs}.linear_dst",
        f"{ours}.conv.message": f"{theirs}.linear_src_edge",
        f"{ours}.conv.out": f"{theirs}.ffn.0",
        f"{ours}.conv.norm": f"{theirs}.ffn.1",
    }
