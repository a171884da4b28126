"""EGT beside shamim-hussain/egt_pytorch: with the reference's padding, and each graph alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from gradformer.graphs.arrays import Schema
from gradformer.zoo.egt import EGT, EGTLayer
from tests.golden.adapters.graphormer import columns, vocabulary
from tests.golden.case import Case, Ref, Subject
from tests.golden.mapping import match, stored_batch, training
from tests.golden.padded import packed_pairs, packed_rows

NODE, EDGE = 128, 8  # codes of one feature column


def subjects(case: Case) -> list[Subject]:
    given = case.config["hparams"]
    x, edge_attr = (case[name].view(len(case[name]), -1) for name in ("x", "edge_attr"))
    virtual = given["num_virtual_nodes"]
    given.only(activation="elu")  # attn_maskout and dropout act in training only, and are 0 here
    low, high = given["clip_logits_value"] or (-float("inf"), float("inf"))
    schema = Schema(
        node=vocabulary(case.params["nodef_embed.weight"], x, 1, NODE),
        edge=vocabulary(case.params["featm_embed.weight"], edge_attr, 1, EDGE),
        level="graph",
        task="regression",
        outputs=given["output_dim"],
    )
    options: dict[str, Any] = {
        "layers": given["model_height"],
        "width": given["node_width"],
        "pair_width": given["edge_width"],
        "heads": given["num_heads"],
        "hops": given["upto_hop"],
        "svd": given.get("svd_encodings", 0),
        "flip_signs": False,
        "inner": given["node_ffn_multiplier"],
        "pair_inner": given["edge_ffn_multiplier"],
        "clip_low": low,
        "clip_high": high,
        "scale_products": given["scale_dot"],
        "scale_degree": given["scale_degree"],
        "pair_updates": not given["egt_simple"],
        "virtual_nodes": virtual,
        "head": tuple(given["mlp_ratios"]),
    }
    model = EGT(schema, **options, reference_quirks=True).double()
    batch, _ = stored_batch(case, x=x, edge_attr=edge_attr)
    if options["svd"] and "pre/svd_encodings" in case:  # signs are arbitrary: take the stored ones
        stored = packed_rows(batch.layout.node_ptr.diff().tolist())(case["pre/svd_encodings"])
        batch = replace(batch, encodings={"singular": stored.double().unflatten(1, (-1, 2))})
    largest = batch.layout.largest
    sizes = batch.layout.node_ptr.diff().tolist()
    # with virtual nodes the reference's padding is part of the model, without it is not
    sizes = [virtual + largest for _ in sizes] if virtual else sizes
    rows, pairs = sum(sizes), sum(n * n for n in sizes)

    def observe() -> dict[str, Tensor]:
        h, e, room = model.enter(model.prepare(batch))
        found = {"hidden/input": h[:rows], "hidden_edge/input": e[:pairs]}
        for i, layer in enumerate(model.layers):
            assert isinstance(layer, EGTLayer)
            _, weight, gate = layer.weigh(layer.norm(h), layer.pair_norm(e), room)
            h, e = layer(h, e, room)
            found |= {f"attn/{i}": weight[:pairs], f"gate/{i}": gate[:pairs]}
            found |= {f"hidden/{i}": h[:rows], f"hidden_edge/{i}": e[:pairs]}
        found["hidden/readout"] = model.embedding(model.unpack(model.norm(h), room), batch)
        found["out"] = model(batch)
        if "out_single" in case:
            alone = EGT(schema, **options).double().eval()
            alone.load_state_dict(model.state_dict())
            found["out_single"] = alone(batch)
        return {key: value for key, value in found.items() if key in case}

    kind = case.config["loss_name"]
    train = training(case, model, batch, kind)
    nodes, channels = packed_rows(sizes), packed_pairs(sizes, channels_last=True)
    select: dict[str, Any] = {"hidden/input": nodes, "hidden_edge/input": channels}
    for i in range(given["model_height"]):
        select |= {f"hidden/{i}": nodes, f"hidden_edge/{i}": channels}
        select |= {f"attn/{i}": packed_pairs(sizes), f"gate/{i}": packed_pairs(sizes)}
    return [Subject(case, model, _names(model), observe, train, select)]


def _names(model: EGT) -> dict[str, Ref]:
    c = model.config
    names: dict[str, Ref] = {}
    names |= columns(model, "node", model.schema.node, "nodef_embed.weight", 1, NODE)
    names |= columns(model, "edge", model.schema.edge, "featm_embed.weight", 1, EDGE)
    same = {"distance": "dist_embed", "norm": "final_ln_h"}
    if model.position is not None:
        same["position.linear"] = "svd_embed"
    same |= {f"head.{i}": f"mlp_layers.{i}" for i in range(len(model.head))}
    if model.virtual is not None:
        names["virtual"] = Ref("vn_layer.vn_node_embeddings")
        names["virtual_pair"] = Ref("vn_layer.vn_edge_embeddings")
    for i, layer in enumerate(model.layers):
        ours, theirs = f"layers.{i}", f"EGT_layers.{i}"
        parts = {"norm": "mha_ln_h", "pair_norm": "mha_ln_e", "bias": "lin_E", "gate": "lin_G"}
        parts |= {f"block.{name}": f"{ref}_h{end}" for name, ref, end in _block()}
        if layer.pair_out is not None:
            parts |= {f"pair_block.{name}": f"{ref}_e{end}" for name, ref, end in _block()}
            parts["pair_out"] = "lin_O_e"
        same |= {f"{ours}.{name}": f"{theirs}.{ref}" for name, ref in parts.items()}
        for number, name in enumerate(("query", "key", "value")):
            for entry in ("weight", "bias"):
                names[f"{ours}.{name}.{entry}"] = Ref(
                    f"{theirs}.lin_QKV.{entry}", _heads_together(number, c.heads)
                )
        names[f"{ours}.out.weight"] = Ref(
            f"{theirs}.lin_O_h.weight", lambda w: _turn(w.t(), c.heads).t()
        )
        names[f"{ours}.out.bias"] = Ref(f"{theirs}.lin_O_h.bias")
    return names | match(model, same)


def _block() -> list[tuple[str, str, str]]:
    return [("norm", "ffn_ln", ""), ("first", "lin_W", "_1"), ("second", "lin_W", "_2")]


def _turn(rows: Tensor, heads: int) -> Tensor:
    """Rows in the reference's order (head fastest) → ours (heads contiguous)."""
    return rows.reshape(-1, heads, *rows.shape[1:]).transpose(0, 1).reshape(rows.shape)


def _heads_together(number: int, heads: int) -> Any:
    """Query, key or value (``number``) of the reference's joint projection."""
    return lambda joint: _turn(joint.chunk(3)[number], heads)
