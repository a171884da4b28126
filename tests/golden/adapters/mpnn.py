"""GCN, GAT and GIN, three models in one file, beside PyG's convolutions."""

from __future__ import annotations

from torch import Tensor

from gradformer.graphs.arrays import Schema
from gradformer.model.base import create_model
from gradformer.zoo.mpnn import ConvolutionStack
from tests.golden.case import Case, Ref, Subject
from tests.golden.mapping import match, stored_batch, training, watch


def subjects(case: Case) -> list[Subject]:
    return [_subject(Case(case.path, f"{kind}/"), kind) for kind in case.config["models"]]


def _subject(case: Case, kind: str) -> Subject:
    net = case.config["net_params"]
    schema = Schema(net["in_dim"], (), "graph", "multiclass", net["n_classes"])
    heads = {"heads": net["n_heads"]} if kind == "gat" else {}
    model = create_model(
        kind,
        schema,
        layers=net["L"],
        width=net["hidden_dim"] * heads.get("heads", 1),
        last_width=net["out_dim"],
        pool={"sum": "add"}.get(case.config["readout"], case.config["readout"]),
        **heads,
    ).double()
    assert isinstance(model, ConvolutionStack)
    batch, _ = stored_batch(case, x=case["x"])

    def observe() -> dict[str, Tensor]:
        keys = {"node": "hidden/input"}
        for i in range(net["L"]):
            keys |= {f"layers.{i}": f"hidden/layer{i}", f"layers.{i}.conv": f"hidden/conv{i}"}
        seen = watch(model, batch, keys)
        for i in range(net["L"]):
            seen[f"hidden/conv{i}"] = seen[f"hidden/conv{i}"][0]
        readout = model.embedding(model.states(batch), batch)
        return {**seen, "hidden/readout": readout}

    train = training(case, model, batch, "ce")
    return Subject(case, model, _names(model, kind), observe, train)


def _names(model: ConvolutionStack, kind: str) -> dict[str, Ref]:
    same = {f"head.net.layers.{i}": f"MLP_layer.FC_layers.{i}" for i in range(3)}
    same["node.encoder"] = "embedding_h"
    names: dict[str, Ref] = {}
    for i in range(len(model.layers)):
        ours, theirs = f"layers.{i}.conv", f"convs.{i}"
        same[f"layers.{i}.norm"] = f"bns.{i}"
        if kind == "gin":
            names[f"{ours}.eps"] = Ref(f"{theirs}.eps")
            for entry, place in (("first", 0), ("norm", 1), ("second", 3)):
                same[f"{ours}.mlp.{entry}"] = f"{theirs}.nn.{place}"
            continue
        same[f"{ours}.linear"] = f"{theirs}.lin"
        names[f"{ours}.bias"] = Ref(f"{theirs}.bias")
        if kind == "gat":
            for end, theirs_end in (("source", "src"), ("target", "dst")):
                names[f"{ours}.{end}"] = Ref(f"{theirs}.att_{theirs_end}", lambda row: row[0])
    return names | match(model, same)
