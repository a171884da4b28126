"""Graphormer beside microsoft/Graphormer v1.0."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from gradformer.graphs.arrays import Schema
from gradformer.zoo.graphormer import Graphormer
from tests.golden.case import Case, Ref, Subject
from tests.golden.mapping import match, rows_of, stored_batch, training, watch, watch_weights
from tests.golden.padded import packed_pairs, packed_rows, table_rows

OFFSET = 512  # codes of one feature column


def subjects(case: Case) -> list[Subject]:
    given = case.config["hparams"]
    x, edge_attr = (case[name].view(len(case[name]), -1) for name in ("x", "edge_attr"))
    reach = given["spatial_pos_max"]
    schema = Schema(
        node=vocabulary(case.params["atom_encoder.weight"], x, 2),
        edge=vocabulary(case.params["edge_encoder.weight"], edge_attr, 3),
        level="graph",
        task="regression",
        outputs=case["out"].shape[1],
    )
    model = Graphormer(
        schema,
        layers=given["n_layers"],
        width=given["hidden_dim"],
        heads=given["num_heads"],
        inner=given["ffn_dim"],
        hops=given["multi_hop_max_dist"],
        edge_term="paths" if given["edge_type"] == "multi_hop" else "adjacent",
        reach=0 if reach > 510 else reach,
        degrees=len(case.params["in_degree_encoder.weight"]) - 1,
        dropout=0.0,
        attention_dropout=0.0,
        input_dropout=0.0,
        reference_quirks=True,
    ).double()
    batch, _ = stored_batch(case, x=x, edge_attr=edge_attr)
    sizes = [n + 1 for n in batch.layout.node_ptr.diff().tolist()]

    def observe() -> dict[str, Tensor]:
        keys = {f"layers.{i}": f"hidden/{i}" for i in range(len(model.layers))}
        keys |= {"input_dropout": "hidden/input", "norm": "hidden/final"}
        found = watch(model, batch, keys)
        attention = {f"layers.{i}.attention": f"attn/{i}" for i in range(len(model.layers))}
        found |= watch_weights(model, batch, attention)
        tokens, wide = model.wide(batch)
        table, bias = model.distance().add.value.t(), model.bias(batch, tokens)
        found["attn_bias_full"] = table[wide.distance.long()] + bias
        return {key: value for key, value in found.items() if key in case}

    kind = case.config["loss"].split(" ")[0]
    train = training(case, model, batch, kind)
    rows, pairs = packed_rows(sizes), packed_pairs(sizes)
    select = {f"hidden/{name}": rows for name in ["input", "final", *range(given["n_layers"])]}
    select |= {f"attn/{i}": pairs for i in range(given["n_layers"])} | {"attn_bias_full": pairs}
    return [Subject(case, model, _names(model, case), observe, train, select)]


def vocabulary(table: Tensor, codes: Tensor, first: int, offset: int = OFFSET) -> tuple[int, ...]:
    """Sizes of the feature columns in a table where column j begins at row offset · j + first."""
    starts = [offset * column + first for column in range(codes.shape[1])]
    return tuple(end - start for start, end in pairwise([*starts, len(table)]))


def _names(model: Graphormer, case: Case) -> dict[str, Ref]:
    heads, paths = model.config.heads, model.config.edge_term == "paths"
    names = {
        "token": Ref("graph_token.weight"),
        "distance.distance": Ref(
            "spatial_pos_encoder.weight", table_rows(1, len(model.distance.distance))
        ),
        "distance.token": Ref("graph_token_virtual_distance.weight"),
        "input.in_degree.weight": Ref("in_degree_encoder.weight", lambda x: x[1:]),
        "input.out_degree.weight": Ref("out_degree_encoder.weight", lambda x: x[1:]),
        "paths.padding": Ref("edge_encoder.weight", lambda x: x[:1]),
    }
    names |= columns(model, "input.features", model.schema.node, "atom_encoder.weight", 2)
    first = 3 if paths else 2
    names |= columns(model, "paths.encoder", model.schema.edge, "edge_encoder.weight", first)
    if model.distance.unreachable is not None:
        names["distance.unreachable"] = Ref("spatial_pos_encoder.weight", table_rows(511, 1))
    if paths:
        hops = model.config.hops
        names["paths.no_edge"] = Ref("edge_encoder.weight", lambda x: x[1:2])
        names["paths.mix"] = Ref(
            "edge_dis_encoder.weight", lambda x: table_rows(0, hops)(x.view(-1, heads, heads))
        )
    head = "downstream_out_proj" if "downstream_out_proj.weight" in case.params else "out_proj"
    same = {"norm": "final_ln", "head": head}
    for i in range(len(model.layers)):
        parts = {"attention_norm": "self_attention_norm", "norm": "ffn_norm"}
        parts |= {"first": "ffn.layer1", "second": "ffn.layer2"}
        maps = [f"layers.{i}.self_attention.linear_{name}" for name in "qkv"]
        names |= rows_of(f"layers.{i}.attention.qkv", maps)
        parts["attention.out"] = "self_attention.output_layer"
        same |= {f"layers.{i}.{ours}": f"layers.{i}.{theirs}" for ours, theirs in parts.items()}
    return names | match(model, same)


class OneTable(nn.Module):
    """A table with the codes of all columns, [rows, width]: large values share rows."""

    def __init__(self, rows: int, width: int, offset: int) -> None:
        super().__init__()
        self.weight, self.offset = nn.Parameter(torch.zeros(rows, width)), offset

    def forward(self, x: Tensor, *mask: Any) -> Tensor:
        codes = x + self.offset * torch.arange(x.shape[1])
        return self.weight[codes].sum(1)


def reaches_over(codes: Tensor, offset: int) -> bool:
    """Whether a value of one column takes the code of another's."""
    return codes.shape[1] > 1 and int(codes[:, :-1].max()) >= offset


def columns(
    model: nn.Module,
    ours: str,
    sizes: tuple[int, ...],
    theirs: str,
    first: int,
    offset: int = OFFSET,
) -> dict[str, Ref]:
    """Our table of each feature column → its rows in the reference's one table."""
    if sizes and isinstance(model.get_submodule(f"{ours}.encoder"), OneTable):
        return {f"{ours}.encoder.weight": Ref(theirs, lambda table: table[first:])}
    return {
        f"{ours}.encoder.tables.{j}.weight": Ref(theirs, table_rows(offset * j + first, size))
        for j, size in enumerate(sizes)
    }
