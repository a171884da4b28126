"""DeepGraph beside zhao-ht/DeepGraph, on the substructures that the reference sampled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, gelu

from gradformer.graphs.arrays import Schema
from gradformer.graphs.batch import Batch
from gradformer.zoo.deepgraph import DeepGraph
from tests.golden.adapters.graphormer import OneTable, columns, reaches_over, vocabulary
from tests.golden.case import Case, Ref, Subject
from tests.golden.mapping import match, rows_of, stored_batch, watch
from tests.golden.padded import packed_pairs, packed_rows, table_rows

OFFSET = 10  # codes of one feature column
NODES = "encoder.graph_encoder.graph_node_feature."
BIAS = "encoder.graph_encoder.graph_attn_bias."


def subjects(case: Case) -> list[Subject]:
    given, level = case.config["args"], case.config["task"]
    given.only(
        activation_fn="gelu",
        do_project=False,
        edge_type="multi_hop",
        extra_method="adj",
        fusion="None",
        pre_layernorm=False,
        reattention=False,
        share_encoder_input_output_embed=False,
    )
    bonds = len(case["edge_attr"]) > 0
    x = case["x"].view(len(case["x"]), -1)
    edge_attr = case["edge_attr"].view(case["edge_index"].shape[1], -1) if bonds else None
    edge: tuple[int, ...] = ()
    if edge_attr is not None:
        edge = vocabulary(case.params[f"{BIAS}edge_encoder.weight"], edge_attr, 3, OFFSET)
    schema = Schema(
        node=vocabulary(case.params[f"{NODES}atom_encoder.weight"], x, 2, OFFSET),
        edge=edge,
        level=level,
        task="regression" if level == "graph" else "multiclass",
        outputs=case["out"].shape[1],
    )
    model = DeepGraph(
        schema,
        layers=given["encoder_layers"],
        width=given["encoder_embed_dim"],
        heads=given["encoder_attention_heads"],
        inner=given["encoder_ffn_embed_dim"],
        hops=given["multi_hop_max_dist"],
        degrees=len(case.params[f"{NODES}in_degree_encoder.weight"]) - 1,
        members=given["subgraph_max_size"],
        deepnorm=given["deepnorm"],
        dropout=0.0,
        attention_dropout=0.0,
        reference_quirks=True,
    )
    if reaches_over(x, OFFSET):
        rows = len(case.params[f"{NODES}atom_encoder.weight"]) - 2
        model.input.features.encoder = OneTable(rows, model.config.width, OFFSET)
    if edge_attr is not None and reaches_over(edge_attr, OFFSET):
        rows = len(case.params[f"{BIAS}edge_encoder.weight"]) - 3
        model.paths.encoder.encoder = OneTable(rows, model.config.heads, OFFSET)
    model.double()
    batch, _ = stored_batch(case, x=x, edge_attr=edge_attr)
    members = _members(case, given["subgraph_max_size"])
    batch = replace(batch, extras={"substructures": members[:, None]})
    counts = (members[:, :, 0] >= 0).sum(1)
    nodes = batch.layout.node_ptr.diff()
    sizes = (1 + nodes + counts).tolist()
    total, pairs = sum(sizes), sum(n * n for n in sizes)
    ours = model.adjacency

    def adjacency(batch: Batch, members: Tensor) -> Tensor:
        """Ours; the reference's where it mistakes matrices, after a substructure without edges."""
        made = ours(batch, members).view(*members.shape[:2], -1)
        stored = torch.zeros_like(made)
        for g, (n, s) in enumerate(zip(nodes.tolist(), counts.tolist())):
            stored[g, :s] = case["sorted_adj"][g, n : n + s].flatten(1)
        alone = (made.sum(2) == 0) & (members[:, :, 0] >= 0)
        return torch.where(alone.any(1)[:, None, None], stored, made).flatten(0, 1)

    model.adjacency = adjacency  # type: ignore[method-assign]

    def observe() -> dict[str, Tensor]:
        keys = {f"layers.{i}": f"hidden/layer{i}" for i in range(len(model.layers))}
        keys["input_dropout"] = "hidden/input"
        found = watch(model, batch, keys)
        last = found[f"hidden/layer{len(model.layers) - 1}"]
        hidden = model.norm(gelu(model.hidden(last)))
        found["logits_all"] = model.head(hidden) + model.head_bias
        found = {key: value if key == "out" else value[:total] for key, value in found.items()}
        rows = model.rows(batch)
        table = model.distance().add.value.t()
        bias = table[rows.batch.distance.long()] + model.bias(batch, rows)
        found["hidden/attn_bias"] = bias[:pairs]
        return {key: value for key, value in found.items() if key in case}

    def train() -> dict[str, Tensor]:
        out = model(batch)
        if level == "graph":
            return {"out_train": out, "loss": (out - case["y"].view_as(out)).abs().sum()}
        return {"out_train": out, "loss": cross_entropy(out, case["y"], reduction="sum")}

    select: dict[str, Any] = {"hidden/attn_bias": packed_pairs(sizes)}
    names = ["hidden/input", "logits_all"]
    names += [f"hidden/layer{i}" for i in range(given["encoder_layers"])]
    select |= {name: packed_rows(sizes) for name in names}
    return [Subject(case, model, _names(model), observe, train, select)]


def _members(case: Case, width: int) -> Tensor:
    """The stored lists as [graphs, S, m]; substructures by ascending number, nodes ascending."""
    pieces: dict[tuple[int, int], list[int]] = {}
    lists = zip(case["sub_graph"].tolist(), case["sub_id"].tolist(), case["sub_node"].tolist())
    for graph, number, node in lists:
        pieces.setdefault((graph, number), []).append(node)
    graphs: list[list[list[int]]] = [[] for _ in case["num_nodes"]]
    for (graph, _), nodes in sorted(pieces.items()):
        graphs[graph].append(sorted(nodes))
    out = torch.full((len(graphs), max(map(len, graphs)), width), -1)
    for g, graph_pieces in enumerate(graphs):
        for s, nodes in enumerate(graph_pieces):
            out[g, s, : len(nodes)] = torch.tensor(nodes)
    return out


def _names(model: DeepGraph) -> dict[str, Ref]:
    heads, hops = model.config.heads, model.config.hops
    distances = len(model.distance.distance)
    names = {
        "token": Ref(f"{NODES}graph_token.weight"),
        "input.in_degree.weight": Ref(f"{NODES}in_degree_encoder.weight", lambda x: x[1:]),
        "input.out_degree.weight": Ref(f"{NODES}out_degree_encoder.weight", lambda x: x[1:]),
        "distance.distance": Ref(f"{BIAS}spatial_pos_encoder.weight", table_rows(1, distances)),
        "distance.unreachable": Ref(f"{BIAS}spatial_pos_encoder.weight", lambda x: x[511:512]),
        "distance.token": Ref(f"{BIAS}graph_token_virtual_distance.weight"),
        "paths.padding": Ref(f"{BIAS}edge_encoder.weight", lambda x: x[:1]),
        "paths.mix": Ref(
            f"{BIAS}edge_dis_encoder.weight",
            lambda x: table_rows(0, hops)(x.view(-1, heads, heads)),
        ),
        "head_bias": Ref("encoder.lm_output_learned_bias"),
    }
    atoms, bonds = f"{NODES}atom_encoder.weight", f"{BIAS}edge_encoder.weight"
    names |= columns(model, "input.features", model.schema.node, atoms, 2, OFFSET)
    names |= columns(model, "paths.encoder", model.schema.edge, bonds, 3, OFFSET)
    inside = "encoder.graph_encoder"
    same = {
        "piece.layers.0": f"{inside}.adj_encoder.encoder.0",
        "piece.layers.1": f"{inside}.adj_encoder.encoder.2",
        "input_norm": f"{inside}.emb_layer_norm",
        "hidden": "encoder.lm_head_transform_weight",
        "norm": "encoder.layer_norm",
        "head": "encoder.embed_out",
    }
    for i in range(len(model.layers)):
        parts = {"attention_norm": "self_attn_layer_norm", "norm": "final_layer_norm"}
        parts |= {"first": "fc1", "second": "fc2"}
        parts["attention.out"] = "self_attn.out_proj"
        maps = [f"{inside}.layers.{i}.self_attn.{name}_proj" for name in "qkv"]
        names |= rows_of(f"layers.{i}.attention.qkv", maps)
        same |= {f"layers.{i}.{ours}": f"{inside}.layers.{i}.{ref}" for ours, ref in parts.items()}
    return names | match(model, same)
