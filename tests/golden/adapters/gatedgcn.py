"""GatedGCN beside benchmarking-gnns: molecules (graphs) and SBMs (nodes)."""

from __future__ import annotations

from torch import Tensor

from gradformer.graphs.arrays import Schema
from gradformer.zoo.gatedgcn import GatedGCN
from tests.golden.case import Case, Ref, Subject
from tests.golden.mapping import (
    columns,
    gradients,
    leaf,
    match,
    rows_of,
    stored_batch,
    training,
    watch,
)


def subjects(case: Case) -> list[Subject]:
    net, loss = case.config["net_params"], case.config["loss"]
    net.only(residual=True, batch_norm=True)
    schema = Schema(
        node=columns(case["x"], case.params["embedding_h.weight"]),
        edge=columns(case["edge_attr"], case.params["embedding_e.weight"]),
        level="node" if len(case["out"]) == len(case["batch"]) else "graph",
        task="regression" if loss == "l1" else "multiclass",
        outputs=case["out"].shape[1],
    )
    model = GatedGCN(
        schema,
        layers=net["L"],
        width=net["hidden_dim"],
        last_width=net["out_dim"],
        lap=net["pos_enc_dim"] if net.get("pos_enc") else 0,
        flip_signs=False,
        pool={"sum": "add"}.get(net["readout"], net["readout"]),
    ).double()
    given = {name: leaf(case[name]) for name in ("x", "edge_attr", "pe") if name in case}
    inputs = gradients(case, given)
    wide = {name: x[:, None] if x.dim() == 1 else x for name, x in given.items()}
    batch, place = stored_batch(
        case,
        x=wide["x"],
        edge_attr=wide["edge_attr"],
        encodings={"lap": wide["pe"]} if net.get("pos_enc") else {},
    )

    def observe() -> dict[str, Tensor]:
        keys = {f"layers.{i}": str(i) for i in range(net["L"])}
        seen = watch(model, batch, keys)
        h, e = model.encode(batch)
        found = {"out": seen["out"], "h0": h, "e0": e[place]}
        for i in range(net["L"]):
            found[f"hidden/{i}"] = seen[str(i)][0]
            if i < net["L"] - 1:  # ours updates no edges in the last layer
                found[f"hidden_edge/{i}"] = seen[str(i)][1][place]
        return found

    train = training(case, model, batch, loss, inputs)
    return [Subject(case, model, _names(model), observe, train, inputs=inputs)]


def _names(model: GatedGCN) -> dict[str, Ref]:
    same = {f"head.net.layers.{i}": f"MLP_layer.FC_layers.{i}" for i in range(3)}
    for ours, theirs in (("node", "embedding_h"), ("edge", "embedding_e")):
        floats = isinstance(getattr(model.schema, ours), int)
        same[f"{ours}.encoder" if floats else f"{ours}.encoder.tables.0"] = theirs
    if model.position is not None:
        same["position.linear"] = "embedding_pos_enc"
    # D acts on the source and E on the target there, the other way round in ours.
    names = {}
    for i in range(len(model.layers)):
        names |= rows_of(f"layers.{i}.conv.ADBE", [f"layers.{i}.{name}" for name in "AEBD"])
        same[f"layers.{i}.conv.C"] = f"layers.{i}.C"
        same[f"layers.{i}.conv.norm"] = f"layers.{i}.bn_node_h"
        if i < len(model.layers) - 1:
            same[f"layers.{i}.conv.edge_norm"] = f"layers.{i}.bn_node_e"
    return names | match(model, same)
